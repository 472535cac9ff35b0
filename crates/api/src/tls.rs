//! Encryption of the server's own connections, where it is not a proxy's business.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate chain and its key, as PEM files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .file.display())]
pub struct TlsError {
    file: PathBuf,
    reason: String,
}

impl TlsFiles {
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let wrong = |file: &Path, reason: &dyn ToString| TlsError {
            file: file.to_owned(),
            reason: reason.to_string(),
        };
        let read = |error: &rustls::pki_types::pem::Error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => "holds no PEM item of this kind".to_owned(),
            error => error.to_string(),
        };
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&self.certificate).and_then(Iterator::collect);
        let certificates = certificates.map_err(|error| wrong(&self.certificate, &read(&error)))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| wrong(&self.key, &read(&error)))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| wrong(&self.certificate, &error))?.with_no_client_auth();
        let config =
            config.with_single_cert(certificates, key).map_err(|error| wrong(&self.certificate, &error))?;
        Ok(Arc::new(config))
    }
}
