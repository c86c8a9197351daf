//! One cookie of a request (RFC 6265 §4.2, §5.4).

use super::grammar;

/// Returns the value of the first cookie of a name in the values of the fields `Cookie`. Quotes
/// around a value belong to it.
pub fn find<'a>(values: impl Iterator<Item = &'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    values.flat_map(pairs).find_map(|pair| value_of(pair, name))
}

/// Appends the pairs of the fields `Cookie`, joined with `; `, without the cookies of a name.
/// Returns whether any pair is left.
pub fn write_without<'a>(
    out: &mut Vec<u8>,
    values: impl Iterator<Item = &'a [u8]>,
    name: &[u8],
) -> bool {
    let start = out.len();
    for pair in values.flat_map(pairs) {
        if value_of(pair, name).is_some() {
            continue;
        }
        if out.len() > start {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(pair);
    }
    out.len() > start
}

/// Appends the values of several fields `Cookie` as one: they join with `; `, where other fields
/// join with commas (RFC 9113 §8.2.3).
pub fn join<'a>(out: &mut Vec<u8>, values: impl Iterator<Item = &'a [u8]>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(value);
    }
}

fn pairs(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = value.split(|&byte| byte == b';').map(grammar::trim);
    pairs.filter(|pair| !pair.is_empty())
}

/// Returns the value of a pair of a name. Names of cookies are case-sensitive.
fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let equals = memchr::memchr(b'=', pair)?;
    let (found, value) = pair.split_at_checked(equals)?;
    (grammar::trim(found) == name).then(|| grammar::trim(value.get(1..).unwrap_or_default()))
}
