//! Reads networks, such as those of permitted clients.

use std::net::IpAddr;

use ipnet::IpNet;
use toml::de::DeValue;

use crate::problem::Problems;
use crate::reader::{Value, wrong_type};

/// Reads an array of addresses and networks, or a single one.
pub(crate) fn networks(key: &str, value: &Value<'_>, problems: &mut Problems) -> Vec<IpNet> {
    match value.get_ref() {
        DeValue::Array(values) => {
            let read = values.iter().filter_map(|one| network(key, one, problems));
            read.collect()
        }
        _ => network(key, value, problems).into_iter().collect(),
    }
}

/// Reads an address or network. `None` after reporting that it is none.
pub(crate) fn network(key: &str, value: &Value<'_>, problems: &mut Problems) -> Option<IpNet> {
    let span = Some(value.span());
    let help = "write an address or a network: `\"10.0.0.5\"`, `\"10.0.0.0/8\"`, `\"fd00::/8\"`";
    let Some(text) = value.get_ref().as_str() else {
        wrong_type(key, "addresses or networks", value, help, problems);
        return None;
    };
    let parsed = text
        .parse::<IpNet>()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let Some(network) = parsed else {
        let message = format!("`{text}` is not a network");
        problems.error(&span, "E_ADDRESS", message, help);
        return None;
    };
    if network != network.trunc() {
        let message = format!("`{text}` has bits beyond its prefix");
        let help = format!(
            "write `{}` for the network, or `{}` for the one address",
            network.trunc(),
            network.addr()
        );
        problems.error(&span, "E_ADDRESS", message, help);
        return None;
    }
    Some(network)
}
