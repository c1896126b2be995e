//! TLS of the connections that this program opens: which library carries out the cryptography.

/// Makes `ring` the provider of cryptography for the whole process, unless the program has chosen
/// one itself. Every HTTP client of this library calls it before it is built, because the clients
/// come without a provider.
pub fn set_provider() {
    // An error means that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
