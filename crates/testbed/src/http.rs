//! An HTTP client for tests. Built with the rest of the workspace it carries TLS, and TLS wants to be told
//! by whom it shall encrypt.

/// A client of its own; the choice of ring is made once a process, by whoever comes first.
pub fn http_client() -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::new()
}
