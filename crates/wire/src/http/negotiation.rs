//! Content codings that a client accepts, and members of lists (RFC 9110 §12.5.3).

use super::grammar;

/// Quality of a coding that has no weight, in thousandths.
const QUALITY_MAX: u16 = 1_000;

/// Returns the quality of a coding by the values of `Accept-Encoding`, in thousandths: of the first
/// member with one of these names, else of `*`. Zero: not acceptable. `None`: not mentioned, as in
/// a request without the field. Members with an invalid weight are ignored.
pub fn coding_quality<'a>(values: impl Iterator<Item = &'a [u8]>, names: &[&[u8]]) -> Option<u16> {
    let mut of_any = None;
    for member in values.flat_map(grammar::list) {
        let Some((coding, quality)) = weighted(member) else {
            continue;
        };
        if names.iter().any(|name| name.eq_ignore_ascii_case(coding)) {
            return Some(quality);
        }
        if coding == b"*" {
            of_any = of_any.or(Some(quality));
        }
    }
    of_any
}

/// Returns whether a list of tokens has this one, in any case. Arguments of members are ignored.
pub fn has_member<'a>(values: impl Iterator<Item = &'a [u8]>, token: &[u8]) -> bool {
    values.flat_map(grammar::list).any(|member| {
        let end = member.iter().position(|byte| b"=; \t".contains(byte));
        let name = end.map_or(Some(member), |end| member.get(..end));
        name.is_some_and(|name| name.eq_ignore_ascii_case(token))
    })
}

/// Returns the coding of a member, and its quality in thousandths.
fn weighted(member: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = member.split(|&byte| byte == b';').map(grammar::trim);
    let coding = parts.next()?;
    let quality = match parts.next() {
        None => QUALITY_MAX,
        Some(weight) => match weight {
            [b'q' | b'Q', b'=', number @ ..] => thousandths(number)?,
            _ => return None,
        },
    };
    parts.next().is_none().then_some((coding, quality))
}

/// Reads a weight (RFC 9110 §12.4.2): zero to one, with up to three digits after the point.
fn thousandths(number: &[u8]) -> Option<u16> {
    let (whole, fraction) = match number {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] => (whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut places = fraction.iter().chain(b"000").take(3);
    let part = places.try_fold(0_u16, |sum, digit| {
        let digit = u16::from(digit.checked_sub(b'0')?);
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    match (whole, part) {
        (b'0', part) => Some(part),
        (b'1', 0) => Some(QUALITY_MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_qualities(value: &str, gzip: Option<u16>, identity: Option<u16>) {
        let of = |names| coding_quality(std::iter::once(value.as_bytes()), names);
        assert_eq!(of(&[b"gzip", b"x-gzip"]), gzip, "gzip in {value:?}");
        assert_eq!(of(&[b"identity"]), identity, "identity in {value:?}");
    }

    #[test]
    fn weights_are_read_in_thousandths() {
        for (value, gzip, identity) in [
            ("gzip, deflate, br", Some(1_000), None),
            ("GZIP;Q=0.5", Some(500), None),
            ("x-gzip ; q=0.123", Some(123), None),
            ("gzip;q=0", Some(0), None),
            ("gzip;q=0.000, *", Some(0), Some(1_000)),
            ("*;q=0.3", Some(300), Some(300)),
            ("identity;q=1, *;q=0", Some(0), Some(1_000)),
            ("*;q=0.1, gzip;q=1.0", Some(1_000), Some(100)),
            ("gzip;q=0., br", Some(0), None),
            ("", None, None),
            ("deflate", None, None),
        ] {
            assert_qualities(value, gzip, identity);
        }
    }

    #[test]
    fn members_with_an_invalid_weight_are_ignored() {
        for weight in [
            "q=2", "q=1.1", "q=-1", "q=0.1234", "q=", "q=a", "a=1", "q=1;b", "q =1",
        ] {
            assert_qualities(&format!("gzip;{weight}"), None, None);
        }
        assert_qualities("gzip;q=7, gzip;q=0.2", Some(200), None);
    }

    #[test]
    fn all_lines_of_a_field_are_one_list() {
        let lines = || [&b"br"[..], b"gzip;q=0.4"].into_iter();
        assert_eq!(coding_quality(lines(), &[b"gzip"]), Some(400));
        assert_eq!(coding_quality(lines(), &[b"zstd"]), None);
        assert!(has_member(lines(), b"GZIP") && has_member(lines(), b"br"));
    }

    #[test]
    fn members_are_found_by_their_names() {
        let has = |value: &str| has_member(std::iter::once(value.as_bytes()), b"no-transform");
        for value in [
            "no-transform",
            "max-age=1,No-Transform",
            "a, no-transform =x",
        ] {
            assert!(has(value), "{value}");
        }
        for value in ["", "no-transforms", "x=no-transform", "no transform"] {
            assert!(!has(value), "{value}");
        }
    }
}
