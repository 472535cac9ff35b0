//! What the server is told when it starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use secrecy::{ExposeSecret, SecretString};
use vitrina_core::AllowedTargets;
use vitrina_guard::Reading;

use crate::tls::TlsFiles;

#[derive(Debug, Clone)]
pub struct ApiSettings {
    pub listen: SocketAddr,
    pub allowed_targets: AllowedTargets,
    /// Calls a second that one token may make; 0 is no limit.
    pub rate_limit: u32,
    /// HTTPS instead of HTTP.
    pub tls: Option<TlsFiles>,
    /// Becomes the token named `admin`, so that a fresh installation can be reached at all.
    pub admin_token: Option<SecretString>,
    /// The databases that pipelines may read, by name.
    pub source_connections: BTreeMap<String, SourceConnection>,
}

#[derive(Debug, Clone)]
pub struct SourceConnection {
    pub url: SecretString,
    pub allowed_schemas: Vec<String>,
}

impl SourceConnection {
    /// A session to look with.
    pub(crate) async fn read(&self, purpose: &str) -> Result<Reading, String> {
        Reading::open(self.url.expose_secret(), purpose).await
    }
}
