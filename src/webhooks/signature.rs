//! Signatures of deliveries, in the form of Standard Webhooks.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What marks a secret that is written as base64.
const PREFIX: &str = "whsec_";

/// The secret that deliveries are signed with. It does not show itself.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// The key of a secret: what follows `whsec_` is base64, any other text is the key itself.
    ///
    /// # Errors
    /// It is empty or not base64.
    pub fn new(secret: &str) -> Result<Self, String> {
        let bytes = match secret.strip_prefix(PREFIX) {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| format!("what follows {PREFIX} must be base64"))?,
            None => secret.as_bytes().to_vec(),
        };
        if bytes.is_empty() {
            return Err("it must not be empty; leave it unset to send without signatures".into());
        }
        let key = Hmac::new_from_slice(&bytes).map_err(|error| error.to_string())?;
        Ok(Self(key))
    }

    /// The header `webhook-signature` of a delivery.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        let signature = mac.finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(signature))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_signed_as_standard_webhooks_says() {
        // The vector of the specification's own libraries.
        let key = SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = key.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_any_text_or_base64_and_is_not_shown() {
        let plain = SigningKey::new("MfKQ9r8G").unwrap();
        let encoded = SigningKey::new("whsec_TWZLUTlyOEc=").unwrap();
        assert_eq!(plain.sign("a", "1", b"x"), encoded.sign("a", "1", b"x"));
        assert_eq!(format!("{plain:?}"), "***");
        assert!(SigningKey::new("whsec_!").is_err());
        assert!(SigningKey::new("").is_err());
        assert!(SigningKey::new("whsec_").is_err());
    }
}
