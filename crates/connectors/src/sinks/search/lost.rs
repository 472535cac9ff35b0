//! No answer: the line is cut, or the two sides cannot agree to talk at all, which no later attempt will change.

use std::error::Error as StdError;
use std::io;

use rustls::CertificateError;
use vitrina_core::Error;

/// The words of the library may hold the URL, and that a password.
pub(super) fn explain(connection: &str, error: reqwest::Error) -> Error {
    let error = error.without_url();
    if let Some(disagreement) = disagreement(&error).filter(|_| error.is_connect()) {
        return refuse(connection, disagreement);
    }
    let mut reason = error.to_string();
    let mut cause = StdError::source(&error);
    while let Some(deeper) = cause {
        reason = format!("{reason}: {deeper}");
        cause = deeper.source();
    }
    Error::release("sink.connection_lost", format!("the search connection {connection:?} is lost: {reason}"))
}

/// What TLS says, wrapped in errors of input and output, which do not name what they wrap as their source.
fn disagreement(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut cause = StdError::source(error);
    while let Some(this) = cause {
        if let Some(told) = this.downcast_ref::<rustls::Error>() {
            return Some(told).filter(|told| is_lasting(told));
        }
        let wrapped = this.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => this.source(),
        };
    }
    None
}

/// Others may come of a server that is just being stopped.
fn is_lasting(told: &rustls::Error) -> bool {
    use rustls::{AlertDescription, Error as Told};
    match told {
        Told::AlertReceived(alert) => {
            !matches!(alert, AlertDescription::InternalError | AlertDescription::CloseNotify)
        }
        Told::InvalidCertificate(_) | Told::InvalidMessage(_) | Told::PeerIncompatible(_) => true,
        _ => false,
    }
}

fn refuse(connection: &str, disagreement: &rustls::Error) -> Error {
    let rustls::Error::InvalidCertificate(reason) = disagreement else {
        let message = format!("the search connection {connection:?} cannot agree on TLS: {disagreement}");
        return Error::fix("sink.tls", message)
            .hint("check its url: a server without TLS is called by http://, one with TLS by https://");
    };
    let message =
        format!("the certificate of the search connection {connection:?} is refused: {disagreement}");
    Error::fix("sink.certificate", message).hint(match reason {
        CertificateError::UnknownIssuer => {
            "name a file with the certificate of the authority that issued it as `ca` of the connection"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "write a name into the url that the certificate is for"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "renew it at the server",
        _ => "check the certificate at the server, and `ca` of the connection",
    })
}
