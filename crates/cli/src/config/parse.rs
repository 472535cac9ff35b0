//! Parsers of single values. A complaint reads on from the value, which it does not repeat: it may be secret.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use secrecy::SecretString;
use tracing::Level;
use url::Url;
use vitrina_core::TargetName;

use super::LogFormat;
use super::error::Complaint;

pub(super) const POSTGRES: &[&str] = &["postgres", "postgresql"];
pub(super) const HTTP: &[&str] = &["http", "https"];
pub(super) const POSTGRES_OR_HTTP: &[&str] = &["postgres", "postgresql", "http", "https"];

/// Several nodes of a search server stand in one text.
pub(super) fn secret_url(text: &str, schemes: &[&str]) -> Result<SecretString, Complaint> {
    for url in urls(text) {
        parse_url(url, schemes)?;
    }
    Ok(SecretString::from(text))
}

/// Each URL of a text that may hold several.
pub(super) fn urls(text: &str) -> Vec<&str> {
    match text.starts_with("http") {
        true => text.split(',').map(str::trim).collect(),
        false => vec![text],
    }
}

const URL_FORM: &str = "write scheme://user:password@host:port/…, with special characters as %XX";

/// The URL of a database or a search server that a command takes as an argument, as settings take it.
pub(crate) fn connection_url(text: &str) -> Result<SecretString, Complaint> {
    secret_url(text, POSTGRES_OR_HTTP)
}

fn parse_url(text: &str, schemes: &[&str]) -> Result<Url, Complaint> {
    let url = Url::parse(text).map_err(|error| Complaint::new(format!("is no URL: {error}"), URL_FORM))?;
    if has_stray_at(text) {
        // What stands before it would be taken for a host, and named in errors.
        let message = "is no URL that can be read safely: it has an `@` that does not end the password";
        return Err(Complaint::new(message, URL_FORM));
    }
    if schemes.contains(&url.scheme()) {
        return Ok(url);
    }
    Err(Complaint::new(
        "is no URL of the kind this setting needs",
        format!("begin it with {}://", schemes.join(":// or ")),
    ))
}

/// A password with `@`, `/`, `?` or `#` in it splits the URL in the wrong place, and every parser in another one.
fn has_stray_at(text: &str) -> bool {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    // HTTP takes a backslash for a slash.
    let ends = |c: char| matches!(c, '/' | '?' | '#') || (c == '\\' && HTTP.contains(&scheme));
    let end = rest.find(ends).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    authority.matches('@').count() > 1 || behind.contains('@')
}

pub(super) fn api_url(text: &str) -> Result<Url, Complaint> {
    let url = parse_url(text, HTTP)?;
    if url.username().is_empty() && url.password().is_none() {
        return Ok(url);
    }
    Err(Complaint::new("holds credentials", "leave them out and set api.token"))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, Complaint> {
    let hint = "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| Complaint::new("is no address", hint))
}

/// What fits into a header.
pub(super) fn token(text: &str) -> Result<SecretString, Complaint> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(SecretString::from(text));
    }
    Err(Complaint::new("is no token", "a token is one line of visible ASCII characters without spaces"))
}

pub(super) fn name(text: &str) -> Result<String, Complaint> {
    match text.trim() {
        "" => Err(Complaint::new("is no name", "write at least one character")),
        name => Ok(name.to_owned()),
    }
}

pub(super) fn count(text: &str) -> Result<NonZeroUsize, Complaint> {
    text.parse().map_err(|_| Complaint::new("is no count", "write a whole number from 1"))
}

pub(super) fn path(text: &str) -> Result<PathBuf, Complaint> {
    match text.trim() {
        "" => Err(Complaint::new("is no path", "write the name of a file")),
        path => Ok(PathBuf::from(path)),
    }
}

/// As Python's `import` takes it.
pub(super) fn module(text: &str) -> Result<String, Complaint> {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    match text.trim() {
        module if module.split('.').all(is_name) => Ok(module.to_owned()),
        _ => Err(Complaint::new("is no module", "write it as Python imports it, such as cinema.transforms")),
    }
}

pub(super) fn rate(text: &str) -> Result<u32, Complaint> {
    text.parse().map_err(|_| {
        Complaint::new("is no rate", "write calls a second as a whole number, or 0 for no limit")
    })
}

/// As a planner counts: pages that are read one after the other.
pub(super) fn cost(text: &str) -> Result<f64, Complaint> {
    let cost = text.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost > 0.0);
    cost.ok_or_else(|| Complaint::new("is no cost", "write a number above 0, such as 1000000"))
}

/// Kilobytes and megabytes as Postgres counts them, by 1024.
pub(super) fn bytes(text: &str) -> Result<usize, Complaint> {
    let complaint =
        || Complaint::new("is no size", "write a number from 1 and its unit, such as 512kB or 16MB");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit.trim() {
        "B" => 1,
        "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return Err(complaint()),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(complaint)
}

/// The most that a wait or a lease may be: what is longer keeps a pipeline from ever being taken over.
const LONGEST_WAIT_HOURS: u64 = 24;
/// The most that anything is kept or valid. Moments that far away can still be computed with.
const LONGEST_HOURS: u64 = 10 * 8760;

/// For how long something is kept, or valid.
pub(crate) fn duration(text: &str) -> Result<Duration, Complaint> {
    bounded(text, LONGEST_HOURS)
}

/// For how long something is waited for.
pub(super) fn wait(text: &str) -> Result<Duration, Complaint> {
    bounded(text, LONGEST_WAIT_HOURS)
}

fn bounded(text: &str, most_hours: u64) -> Result<Duration, Complaint> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| duration.try_into().ok());
    let duration = parsed.filter(|duration: &Duration| !duration.is_zero()).ok_or_else(|| {
        let hint = "write a number above zero and its unit, such as 500ms, 1s, 5m or 1h";
        Complaint::new("is no duration", hint)
    })?;
    match duration <= Duration::from_secs(most_hours * 3600) {
        true => Ok(duration),
        false => Err(Complaint::new("is too long", format!("write at most {most_hours}h"))),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, Complaint> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(Complaint::new("is no log format", "write auto, text or json")),
    }
}

pub(super) fn log_level(text: &str) -> Result<Level, Complaint> {
    text.parse().map_err(|_| Complaint::new("is no log level", "write error, warn, info, debug or trace"))
}

/// A pattern is a target's name, or the beginning of one and a `*`.
pub(super) fn target_pattern(text: &str) -> Result<String, Complaint> {
    let example = match text.strip_suffix('*') {
        Some(prefix) => format!("{prefix}x"),
        None => text.to_owned(),
    };
    match example.parse::<TargetName>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => {
            let hint =
                "write names such as analytics.film_dim or es:film_dim, or prefixes such as analytics.*";
            Err(Complaint::new("is no list of targets", hint))
        }
    }
}

pub(super) fn schema(text: &str) -> Result<String, Complaint> {
    const MAX_BYTES: usize = 63;
    match (1..=MAX_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(Complaint::new(
            "is no list of schemas",
            "write names such as content, as they are: without quotes",
        )),
    }
}

pub(super) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
