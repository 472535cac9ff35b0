//! What nginx asks of its callers, and the configuration of nginx that follows from it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Nginx, certificates};

#[derive(Debug, Clone)]
pub struct NginxPlan {
    server: String,
    tls: bool,
    login: Option<(String, String)>,
    api_key: Option<String>,
    prefix: String,
    largest_body: Option<usize>,
}

impl NginxPlan {
    pub(super) fn before(server: &str) -> Self {
        let server = server.to_owned();
        Self { server, tls: false, login: None, api_key: None, prefix: String::new(), largest_body: None }
    }

    /// HTTPS, with a certificate of an authority that nobody knows: see `Nginx::ca`.
    #[must_use]
    pub fn tls(self) -> Self {
        Self { tls: true, ..self }
    }

    #[must_use]
    pub fn basic(self, user: &str, password: &str) -> Self {
        Self { login: Some((user.to_owned(), password.to_owned())), ..self }
    }

    #[must_use]
    pub fn api_key(self, key: &str) -> Self {
        Self { api_key: Some(key.to_owned()), ..self }
    }

    /// The server is found below this folder, and nothing elsewhere.
    #[must_use]
    pub fn prefix(self, folder: &str) -> Self {
        Self { prefix: format!("/{folder}"), ..self }
    }

    /// Of a request; more is answered with 413.
    #[must_use]
    pub fn largest_body(self, bytes: usize) -> Self {
        Self { largest_body: Some(bytes), ..self }
    }

    pub async fn start(self) -> Nginx {
        Nginx::start(&self).await
    }

    pub(super) fn url(&self, port: u16) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{port}{}", self.prefix)
    }

    pub(super) fn write(&self, directory: &Path, port: u16) {
        put(directory, "nginx.conf", &self.configuration(port));
        if let Some((user, password)) = &self.login {
            put(directory, "passwords", &format!("{user}:{{PLAIN}}{password}\n"));
        }
        if self.tls {
            let made = certificates::make();
            put(directory, "ca.pem", &made.ca);
            put(directory, "certificate.pem", &made.certificate);
            put(directory, "key.pem", &made.key);
        }
    }

    /// One process, so that whoever kills it has killed all of it. Relative paths begin at the directory.
    fn configuration(&self, port: u16) -> String {
        let (ssl, tls) = match self.tls {
            true => (" ssl", "ssl_certificate certificate.pem;\n        ssl_certificate_key key.pem;"),
            false => ("", ""),
        };
        let login = if self.login.is_some() {
            "auth_basic search;\n            auth_basic_user_file passwords;"
        } else {
            ""
        };
        let key = self.api_key.as_ref();
        let key = key.map(|key| format!("if ($http_authorization != \"ApiKey {key}\") {{ return 401; }}"));
        let Self { prefix, server, .. } = self;
        format!(
            "daemon off;
master_process off;
pid home/nginx.pid;
events {{ worker_connections 256; }}
http {{
    log_format answer '$status $request_method $request_uri';
    access_log home/answers answer;
    client_body_temp_path home/body;
    proxy_temp_path home/proxy;
    fastcgi_temp_path home/fastcgi;
    uwsgi_temp_path home/uwsgi;
    scgi_temp_path home/scgi;
    server {{
        listen 127.0.0.1:{port}{ssl};
        client_max_body_size {largest};
        {tls}
        location {prefix}/ {{
            {login}
            {key}
            proxy_http_version 1.1;
            proxy_pass {server}/;
        }}
    }}
}}
",
            largest = self.largest_body.unwrap_or(0),
            key = key.unwrap_or_default(),
        )
    }
}

/// Another user may be the one who reads it.
fn put(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    let put = fs::write(&path, text).and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o644)));
    put.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
