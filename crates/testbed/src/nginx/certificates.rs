//! An authority that nobody knows, and a certificate of its for 127.0.0.1.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Each in PEM form.
pub(super) struct Made {
    pub(super) ca: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

pub(super) fn make() -> Made {
    sign().expect("names and keys of our own can be signed")
}

fn sign() -> Result<Made, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "an authority of the tests");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
    Ok(Made { ca: authority.as_ref().pem(), certificate: certificate.pem(), key: key.serialize_pem() })
}
