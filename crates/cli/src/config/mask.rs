//! What may be shown of the values: secrets masked, everything else as it was written.

use url::Url;

use super::error::{Complaint, Problem};
use super::expand::{Value, Values};
use super::known::{self, SETTINGS, Setting, Shape};
use super::layers::Written;
use super::{Origin, Shown, parse};

const MASK: &str = "***";

pub(super) fn show(values: &Values) -> Vec<Shown> {
    let plain = SETTINGS.iter().map(|setting| setting.key).filter(|key| !key.contains('<'));
    let named = values.keys().map(String::as_str).filter(|key| key.starts_with("connections."));
    plain.chain(named).map(|key| shown(key, values.get(key))).collect()
}

fn shown(key: &str, value: Option<&Value>) -> Shown {
    let setting = known::find(key).expect("only known keys become values");
    Shown {
        key: key.to_owned(),
        value: value.map(|value| presentable(setting, value)),
        origin: value.map_or(Origin::Default, |value| value.given.origin.clone()),
    }
}

/// What `config show` says of a value.
fn presentable(setting: &Setting, value: &Value) -> String {
    match (setting.shape, &value.expanded) {
        (Shape::Url | Shape::SecretUrl, Written::Text(url)) => masked(url),
        (Shape::Url | Shape::SecretUrl | Shape::SecretText, _) => MASK.to_owned(),
        // As written: a reference in a setting that is no secret may still lead to one.
        (Shape::Text | Shape::List, _) => value.given.written.to_string(),
    }
}

/// A URL, or several, as they may be shown.
pub(crate) fn masked(text: &str) -> String {
    let shown: Vec<String> = parse::urls(text).into_iter().map(without_passwords).collect();
    match &shown[..] {
        [one] => one.clone(),
        // An at sign in what seems another node may belong to a password with a comma.
        several if several.iter().any(|url| url == MASK) => MASK.to_owned(),
        several => several.join(","),
    }
}

/// `postgres://user:***@host/db`; nothing at all of a text that might be split in the wrong place.
fn without_passwords(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return MASK.to_owned() };
    let behind_host = &url[url::Position::BeforePath..];
    if url.cannot_be_a_base() || behind_host.contains('@') {
        return MASK.to_owned();
    }
    let mut masked = url.password().is_some();
    if masked && url.set_password(Some(MASK)).is_err() {
        return MASK.to_owned();
    }
    if url.query_pairs().any(|(name, _)| is_password(&name)) {
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let hide = |(name, value): (String, String)| {
            let value = if is_password(&name) { MASK.to_owned() } else { value };
            (name, value)
        };
        url.query_pairs_mut().clear().extend_pairs(pairs.into_iter().map(hide));
        masked = true;
    }
    if masked { url.into() } else { text.to_owned() }
}

/// The same for a text that refers to secrets: none stands in it beside its references.
pub(crate) fn hides_its_secrets(text: &str) -> bool {
    let mut plain = text.to_owned();
    while let Some((start, end)) =
        plain.find("${").and_then(|start| Some((start, start + plain[start..].find('}')?)))
    {
        plain.replace_range(start..=end, MASK);
    }
    plain == MASK || masked(&plain) == plain
}

fn is_password(parameter: &str) -> bool {
    let parameter = parameter.to_ascii_lowercase();
    ["pass", "token", "secret", "key"].iter().any(|word| parameter.contains(word))
}

/// Secrets that stand in the configuration file itself, where they might end up in git (R-SEC-3).
pub(super) fn in_clear(values: &Values) -> Vec<Problem> {
    let warning = |(key, value): (&String, &Value)| {
        let Written::Text(text) = &value.given.written else { return None };
        let setting = known::find(key).filter(|setting| setting.is_secret())?;
        let in_file = matches!(value.given.origin, Origin::File { .. });
        let is_clear = match text.contains("${") {
            true => text.contains("://") && !hides_its_secrets(text),
            false => presentable(setting, value) != *text,
        };
        (in_file && is_clear).then(|| {
            Complaint::new("a secret stands in the file", "write ${env:NAME} or ${file:path} in its place")
                .about(key, &value.given.origin)
        })
    };
    values.iter().filter_map(warning).collect()
}
