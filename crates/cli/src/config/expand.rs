//! Secrets by reference: `${env:NAME}`, `${file:path}` and `${command:words}` inside values, `$${` for a literal `${`.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Complaint;
use super::layers::{Given, Layers, Written};
use super::{Origin, commands};

/// A value with its references replaced. Only `given` may be shown, and only if the setting is no secret.
pub(super) struct Value {
    pub(super) given: Given,
    pub(super) expanded: Written,
}

pub(super) type Values = BTreeMap<String, Value>;

pub(super) fn all(layers: &mut Layers, directory: &Path) -> Values {
    let mut values = Values::new();
    for (key, given) in std::mem::take(&mut layers.given) {
        match value(&given, layers, directory) {
            Ok(expanded) => {
                values.insert(key, Value { given, expanded });
            }
            Err(complaint) => layers.problems.push(complaint.about(&key, &given.origin)),
        }
    }
    values
}

fn value(given: &Given, layers: &Layers, directory: &Path) -> Result<Written, Complaint> {
    let base = match &given.origin {
        Origin::File { path, .. } => directory.join(path).parent().unwrap_or(directory).to_owned(),
        _ => directory.to_owned(),
    };
    let expand = |text: &String| {
        text_of(text, |reference| match reference.strip_prefix("command:") {
            Some(command) if layers.is_asked_for(&given.origin) => {
                Ok(without_newline(&commands::output(command)?))
            }
            Some(_) => Err(unasked()),
            None => fetch(reference, layers, &base),
        })
    };
    Ok(match &given.written {
        Written::Text(text) => Written::Text(expand(text)?),
        Written::List(items) => Written::List(items.iter().map(expand).collect::<Result<_, _>>()?),
    })
}

fn text_of(text: &str, fetch: impl Fn(&str) -> Result<String, Complaint>) -> Result<String, Complaint> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(literal) = before.strip_suffix('$') {
            expanded.extend([literal, "${"]);
            rest = after;
            continue;
        }
        let (reference, after) =
            after.split_once('}').ok_or_else(|| unusable("holds a reference without its `}`"))?;
        expanded.push_str(before);
        expanded.push_str(&fetch(reference)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn fetch(reference: &str, layers: &Layers, base: &Path) -> Result<String, Complaint> {
    if let Some(name) = reference.strip_prefix("env:") {
        let (value, _) = layers.variable(name).ok_or_else(|| {
            let message = format!("refers to {name}, which neither the environment nor .env sets");
            Complaint::new(message, format!("set {name}"))
        })?;
        return Ok(value.clone());
    }
    if let Some(path) = reference.strip_prefix("file:") {
        let text = std::fs::read_to_string(base.join(path)).map_err(|error| Complaint {
            message: format!("refers to file {path}, which cannot be read: {error}"),
            hint: None,
        })?;
        return Ok(without_newline(&text));
    }
    Err(unusable("holds a `${` that begins no reference"))
}

fn without_newline(text: &str) -> String {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line).to_owned()
}

fn unasked() -> Complaint {
    let message = "refers to a command, and stands in a file of the working directory that nobody has named";
    Complaint::new(
        message,
        "name the file by --config, or VITRINA_CONFIG in the environment; what stands in .env belongs into that file, or into the environment",
    )
}

/// Says nothing of the text, which may be a secret that merely looks like a reference.
fn unusable(message: &str) -> Complaint {
    Complaint::new(message, "write ${env:NAME}, ${file:path} or ${command:words}, and $${ for a literal ${")
}
