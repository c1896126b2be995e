//! Bodies of requests: read within limits of size and time, then parsed.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, StatusCode,
    body::{Body as _, Incoming},
    header::CONTENT_LENGTH,
};
use tokio::time::Instant;

use super::error::Error;
use crate::value::{JsonError, Value};

/// The slowest a body may come once the grace is over.
const BYTES_PER_SECOND: f64 = 1000.0;

/// Where the body of a request is.
pub enum Source {
    /// Still to be read.
    Coming(Incoming),
    /// Read already.
    Read(Bytes),
}

impl Source {
    /// Reads all of it, at most `limit` bytes.
    ///
    /// # Errors
    /// See [`read`].
    pub async fn read(
        self,
        headers: &HeaderMap,
        limit: usize,
        grace: Duration,
    ) -> Result<Bytes, Error> {
        match self {
            Self::Coming(body) => read(headers, body, limit, grace).await,
            Self::Read(bytes) if bytes.len() > limit => Err(too_large(limit)),
            Self::Read(bytes) => Ok(bytes),
        }
    }
}

fn too_large(limit: usize) -> Error {
    Error::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("The request body is larger than the limit of {limit} bytes"),
    )
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// 413 as soon as the size is known to be too large, 408 when it comes too slowly, 400 when the
/// connection breaks.
async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    limit: usize,
    grace: Duration,
) -> Result<Bytes, Error> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let begin = Instant::now();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while !body.is_end_stream() {
        let read = first.len() + rest.len();
        let deadline = begin + grace + Duration::from_secs_f64(read as f64 / BYTES_PER_SECOND);
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(Error::bad_request("The request body broke off")),
            Err(_) => {
                let detail = "The request body came too slowly";
                return Err(Error::new(StatusCode::REQUEST_TIMEOUT, detail));
            }
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if read + data.len() > limit {
            return Err(too_large(limit));
        }
        // Most bodies come in one frame, which is then not copied.
        if read == 0 {
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

/// Parses a JSON body; its content type does not matter.
///
/// # Errors
/// 422.
pub fn parse(bytes: &[u8]) -> Result<Value, Error> {
    Value::from_json_slice(bytes).map_err(|error| match error {
        JsonError::IntegerTooLarge { .. } => Error::invalid(sentence(&error.to_string())),
        JsonError::Syntax { ref message, .. } if message.contains("recursion limit") => {
            Error::invalid("JSON in the request body is nested too deeply: at most 128 levels")
        }
        JsonError::Syntax { .. } => Error::invalid("Invalid JSON in request body"),
    })
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_cannot_be_kept_is_refused_with_the_reason() {
        let detail = |text: &[u8]| {
            let error = parse(text).unwrap_err();
            assert_eq!(error.status, 422);
            error.detail.into_owned()
        };
        assert_eq!(detail(b""), "Invalid JSON in request body");
        assert_eq!(detail(b"{not json"), "Invalid JSON in request body");
        assert_eq!(detail(b"NaN"), "Invalid JSON in request body");
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        assert!(detail(&deep).contains("nested too deeply"));
        assert!(detail(b"{\"a\": 18446744073709551616}").contains("does not fit 64 bits"));
        assert_eq!(parse(b" {\"a\":1.0}").unwrap()["a"], Value::Float(1.0));
    }
}
