//! A token goes where its owner sends it, and not where a file says that merely lies in the working directory.

use url::{Host, Url};

use super::Origin;
use super::error::Complaint;
use super::expand::Values;
use super::layers::{Layers, Written};

pub(super) fn refuse(values: &Values, layers: &mut Layers) {
    let origin = |key: &str| values.get(key).map(|value| &value.given.origin);
    let (Some(mut whereto), Some(whose)) = (origin("api.url"), origin("api.token")) else { return };
    if let Origin::Derived { from } = whereto
        && let Some(from) = origin(from)
    {
        whereto = from;
    }
    if layers.is_asked_for(whereto) || !layers.is_asked_for(whose) || is_of_this_machine(values) {
        return;
    }
    let message = format!(
        "stands in a file of the working directory that nobody has named, and the token of {whose} would be sent there"
    );
    let hint = "name the file by --config, or set VITRINA_API_URL in the environment";
    let problem = Complaint::new(message, hint).about("api.url", whereto);
    layers.problems.push(problem);
}

fn is_of_this_machine(values: &Values) -> bool {
    let Some(Written::Text(url)) = values.get("api.url").map(|value| &value.expanded) else { return false };
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
