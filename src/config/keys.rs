//! The keys of principals as one setting lists them.

use super::{ApiKey, Secret};

/// `principal=key,principal=key`. The text of an error never contains a key.
pub(super) fn api_keys(text: &str) -> Result<Vec<ApiKey>, String> {
    let mut keys: Vec<ApiKey> = Vec::new();
    for (index, pair) in text.split(',').map(str::trim).enumerate() {
        let entry = index + 1;
        let Some((principal, key)) = pair.split_once('=') else {
            return Err(format!("entry {entry} is not of the form principal=key"));
        };
        let (principal, key) = (principal.trim(), key.trim());
        if principal.is_empty() || key.is_empty() {
            return Err(format!("entry {entry} has an empty principal or key"));
        }
        if keys.iter().any(|known| known.key.reveal() == key) {
            return Err(format!("entry {entry} repeats the key of another entry"));
        }
        keys.push(ApiKey {
            principal: principal.to_owned(),
            key: Secret::from(key),
        });
    }
    Ok(keys)
}

/// `principal,principal`.
pub(super) fn admins(text: &str) -> Result<Vec<String>, String> {
    let names = text.split(',').map(str::trim);
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names
        .iter()
        .any(|name| name.is_empty() || name.contains('='))
    {
        return Err("write the names of principals, separated by commas".into());
    }
    Ok(names)
}
