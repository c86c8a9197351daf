//! Client addresses that proxies forward: `X-Forwarded-For` and `Forwarded` (RFC 7239).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::grammar;

/// Returns the client's address: the last one in the lists that is not a trusted proxy's, where
/// `peer` is the address after the lists. An element that is no address, such as `unknown`, ends
/// what is believed: the result is then the farthest trusted proxy. `values` are those of the
/// fields `X-Forwarded-For` in their order.
pub fn client_of_x_forwarded_for<'a>(
    peer: IpAddr,
    values: impl Iterator<Item = &'a [u8]>,
    trusts: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    client_among(peer, values.flat_map(grammar::list).map(node), trusts)
}

/// Returns the client's address, as [`client_of_x_forwarded_for`] does, from the values of the
/// fields `Forwarded`. A value that breaks the grammar ends what is believed.
pub fn client_of_forwarded<'a>(
    peer: IpAddr,
    values: impl Iterator<Item = &'a [u8]>,
    trusts: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    client_among(peer, values.flat_map(elements), trusts)
}

/// Decides for both fields which address is the client's; `None` is an element that is no address.
fn client_among(
    peer: IpAddr,
    reported: impl Iterator<Item = Option<IpAddr>>,
    trusts: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let peer = peer.to_canonical();
    if !trusts(peer) {
        return peer;
    }
    // First of the trusted addresses at the end of the list, or the one before it.
    let mut client = None;
    for element in reported {
        match element {
            Some(address) if client.is_some() && trusts(address) => {}
            element => client = element,
        }
    }
    client.unwrap_or(peer)
}

/// Appends the values of a list of addresses and a further address, as `X-Forwarded-For` has it.
pub fn append_address<'a>(
    out: &mut Vec<u8>,
    values: impl Iterator<Item = &'a [u8]>,
    address: IpAddr,
) {
    for value in values.filter(|value| !value.is_empty()) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(address.to_canonical().to_string().as_bytes());
}

/// Reads an address with or without port; an IPv6 address with or without brackets.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    if let Some(inside) = text.strip_prefix('[') {
        let (address, port) = inside.split_once(']')?;
        let address = address.parse::<Ipv6Addr>().ok()?;
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return port_fits.then(|| IpAddr::V6(address).to_canonical());
    }
    let (address, port) = text.rsplit_once(':')?;
    let address = address.parse::<Ipv4Addr>().ok()?;
    is_port(port).then_some(IpAddr::V4(address))
}

/// Returns whether the text is a port, or the name in place of one (RFC 7239 §6).
fn is_port(text: &str) -> bool {
    let (is_name, name) = match text.strip_prefix('_') {
        Some(name) => (true, name),
        None => (false, text),
    };
    let fits = |byte: u8| match is_name {
        true => byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'),
        false => byte.is_ascii_digit(),
    };
    !name.is_empty() && (is_name || name.len() <= 5) && name.bytes().all(fits)
}

/// Returns the addresses of the elements of a value of `Forwarded`. One that breaks the grammar is
/// the last.
fn elements(value: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (address, after) = element(rest).unwrap_or_default();
        rest = after;
        Some(address)
    })
}

/// Reads the first element of a value of `Forwarded`: `name=value` pairs between semicolons, up to
/// a comma. Returns the address of `for`, and the rest of the value; `None` if it is malformed.
fn element(value: &[u8]) -> Option<(Option<IpAddr>, &[u8])> {
    let (mut rest, mut address) = (grammar::trim(value), None);
    let mut has_for = false;
    loop {
        let equals = grammar::token_end(rest, 0);
        let (name, after) = rest.split_at_checked(equals)?;
        let after = match after {
            [b'=', after @ ..] if !name.is_empty() => after,
            _ => return None,
        };
        let (text, after) = pair_value(after)?;
        if name.eq_ignore_ascii_case(b"for") {
            // RFC 7239 §4: "Each parameter MUST NOT occur more than once per field-value".
            address = if has_for { None } else { node(text) };
            has_for = true;
        }
        match grammar::trim(after) {
            [b';', after @ ..] => rest = grammar::trim(after),
            [b',', after @ ..] if !grammar::trim(after).is_empty() => {
                return Some((address, grammar::trim(after)));
            }
            [] => return Some((address, &[])),
            _ => return None,
        }
    }
}

/// Reads a token or a quoted string without escapes, which no address has.
fn pair_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match text {
        [b'"', inside @ ..] => {
            let end = inside
                .iter()
                .position(|&byte| matches!(byte, b'"' | b'\\'))?;
            match inside.split_at_checked(end)? {
                (text, [b'"', after @ ..]) => Some((text, after)),
                _ => None,
            }
        }
        text => {
            let end = grammar::token_end(text, 0);
            (end > 0).then(|| text.split_at_checked(end)).flatten()
        }
    }
}
