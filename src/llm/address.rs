//! Addresses of models and tools as messages show them.

/// An address without what comes before its host and after its path, where keys may stand.
pub(super) fn without_password(url: &str) -> &str {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let url = &url[..end];
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => &url[at + 1..],
        _ => url,
    }
}
