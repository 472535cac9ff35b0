//! Where a search server is and who asks: one URL, or several nodes of one cluster with commas between them.

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use url::Url;
use vitrina_core::{Error, Result};

use crate::Connection;

#[derive(Debug)]
pub(super) struct Address {
    /// Each ends with a slash: what is called is appended.
    pub(super) nodes: Vec<Url>,
    pub(super) login: Login,
}

/// Who asks.
#[derive(Debug, Clone)]
pub(super) enum Login {
    Nobody,
    /// The first user and password among the URLs, for all of them.
    User(String, SecretString),
    /// What the header of an API key says.
    Key(HeaderValue),
}

impl Address {
    pub(super) fn of(connection: &Connection) -> Result<Self> {
        let url = connection.url.get();
        let urls = url.expose_secret().split(',').map(str::trim).filter(|url| !url.is_empty());
        let mut nodes: Vec<Url> = urls
            .map(|url| Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")))
            .collect::<Option<_>>()
            .filter(|nodes: &Vec<Url>| !nodes.is_empty())
            .ok_or_else(|| bad_url(&connection.name))?;
        let login = match &connection.api_key {
            Some(key) => Login::Key(header(&connection.name, &key.get())?),
            None => nodes.iter().find_map(login).unwrap_or(Login::Nobody),
        };
        for node in &mut nodes {
            // A URL with a host takes all of these.
            let _ = (node.set_username(""), node.set_password(None));
            node.set_query(None);
            node.set_fragment(None);
            if !node.path().ends_with('/') {
                node.set_path(&format!("{}/", node.path()));
            }
        }
        Ok(Self { nodes, login })
    }

    /// All of them are on this machine: no proxy stands in between.
    pub(super) fn is_local(&self) -> bool {
        let local = |node: &Url| match node.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        self.nodes.iter().all(local)
    }
}

fn login(url: &Url) -> Option<Login> {
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let password = decoded(url.password().unwrap_or_default());
    (!url.username().is_empty()).then(|| Login::User(decoded(url.username()), password.into()))
}

fn header(connection: &str, key: &SecretString) -> Result<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("ApiKey {}", key.expose_secret())).map_err(|_| {
        Error::fix(
            "connection.api_key",
            format!("the api_key of connection {connection:?} is no text of a header"),
        )
        .hint("write it as the server shows it, encoded in Base64")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn bad_url(name: &str) -> Error {
    Error::fix("connection.url", format!("the url of connection {name:?} is no URL of a search server"))
        .hint("write https://user:password@host:9200, and several nodes with commas between them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Result<Address> {
        Address::of(&Connection::new("search", url.into(), Vec::new()))
    }

    #[test]
    fn several_nodes_share_the_login_of_the_first_that_has_one_and_keep_their_paths() {
        let found = address("https://one:9200/search, https://anna:p%40ss@two:9200").unwrap();
        let nodes: Vec<&str> = found.nodes.iter().map(Url::as_str).collect();
        assert_eq!(nodes, ["https://one:9200/search/", "https://two:9200/"]);
        let Login::User(user, password) = found.login else { panic!("{found:?}") };
        assert_eq!((user.as_str(), password.expose_secret()), ("anna", "p@ss"));
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for url in ["", "search:9200", "postgres://x/y", "http://a,b"] {
            let error = address(url).unwrap_err();
            assert_eq!(error.code, "connection.url");
        }
    }
}
