//! Values that must not reach a log or a screen.

use std::fmt;

/// A text that shows itself as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

pub(super) fn mask_all(_: &str) -> String {
    "***".to_owned()
}

/// Hides the password before the host, and the query, where drivers take one as well.
pub(super) fn mask_url(url: &str) -> String {
    let (base, query) = match url.split_once('?') {
        Some((base, _)) => (base, "?***"),
        None => (url, ""),
    };
    let Some((scheme, rest)) = base.split_once("://") else {
        return mask_all(url);
    };
    // A password may contain an unescaped `@` or `/`: everything before the last `@` goes.
    match rest.rsplit_once('@') {
        Some((credentials, location)) => {
            let user = credentials.split([':', '/']).next().unwrap_or_default();
            let password = if user.len() == credentials.len() {
                ""
            } else {
                ":***"
            };
            format!("{scheme}://{user}{password}@{location}{query}")
        }
        // Then the `?` was part of a password.
        None if url.contains('@') => mask_all(url),
        None => format!("{scheme}://{rest}{query}"),
    }
}

/// `principal=***` for each pair.
pub(super) fn mask_pairs(pairs: &str) -> String {
    let masked: Vec<String> = pairs
        .split(',')
        .map(|pair| match pair.split_once('=') {
            Some((principal, _)) => format!("{}=***", principal.trim()),
            None => mask_all(pair),
        })
        .collect();
    masked.join(",")
}
