//! Normalises the path of a request for the choice of its route, and names what servers read
//! differently.

use std::borrow::Cow;

/// Part of a path that two servers may read as two different paths. The request is forwarded as
/// the client wrote it, so a server may find another path than the route was chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguity {
    /// `%2F`: a part of a segment (RFC 3986 §2.2), or the border of one.
    EncodedSlash,
    /// `\` or `%5C`: a character, or the border of a segment.
    Backslash,
    /// `.` or `..` as a segment, also encoded: resolved (RFC 3986 §5.2.4), or a name.
    DotSegment,
    /// `;`: a character, or the begin of a parameter that is no part of the path.
    PathParameter,
    /// `%25` before two hexadecimal digits: decoded once, or twice.
    DoubleEscape,
    /// `%` without two hexadecimal digits: a character, or an error.
    BadEscape,
    /// An encoded control character: a character, or the end of the path.
    Control,
    /// `%C0` or `%C1`, which UTF-8 never contains (RFC 3629 §3): an error, or an ASCII character.
    Overlong,
}

impl Ambiguity {
    /// Returns the name for messages.
    pub const fn text(self) -> &'static str {
        match self {
            Ambiguity::EncodedSlash => "an encoded slash",
            Ambiguity::Backslash => "a backslash",
            Ambiguity::DotSegment => "a dot segment",
            Ambiguity::PathParameter => "a path parameter",
            Ambiguity::DoubleEscape => "a double escape",
            Ambiguity::BadEscape => "an invalid escape",
            Ambiguity::Control => "a control character",
            Ambiguity::Overlong => "an overlong character",
        }
    }
}

/// Path in the form by which routes are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchPath<'a> {
    /// Path without repeated slashes and dot segments, with unreserved characters decoded
    /// (RFC 3986 §6.2.2) and upper-case escapes.
    pub path: Cow<'a, [u8]>,
    /// First part that servers may read differently.
    pub ambiguity: Option<Ambiguity>,
    /// True if dot segments were resolved.
    pub has_dot_segments: bool,
}

/// Normalises a path, without its query. A path that does not begin with `/`, such as `*`, stays
/// as it is.
///
/// Allocates only if the normal form differs. Letters keep their case: servers that ignore it need
/// routes in every form that a client may use.
pub fn normalised(path: &[u8]) -> MatchPath<'_> {
    let Some(below_root) = path.strip_prefix(b"/") else {
        return MatchPath {
            path: Cow::Borrowed(path),
            ambiguity: None,
            has_dot_segments: false,
        };
    };
    let mut reading = Reading::default();
    let mut rest = Some(below_root);
    while let Some((segment, after)) = rest.map(first_segment) {
        reading.segment(segment, after.is_none());
        rest = after;
    }
    let path = match reading.differs {
        false => Cow::Borrowed(path),
        true => Cow::Owned(copied(below_root)),
    };
    MatchPath {
        path,
        ambiguity: reading.ambiguity,
        has_dot_segments: reading.has_dot_segments,
    }
}

/// Returns the bytes before the first slash, and those after it.
fn first_segment(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
        None => (path, None),
    }
}

/// Facts that the bytes of a path have shown so far.
#[derive(Default)]
struct Reading {
    /// True if the normal form is not the path itself.
    differs: bool,
    ambiguity: Option<Ambiguity>,
    has_dot_segments: bool,
}

impl Reading {
    fn segment(&mut self, segment: &[u8], is_last: bool) {
        self.differs |= segment.is_empty() && !is_last;
        let mut dots = 0;
        let mut count = 0;
        for unit in Units(segment) {
            count += 1;
            dots += usize::from(unit.byte == Some(b'.'));
            self.differs |= unit.differs;
            if let Some(ambiguity) = unit.ambiguity {
                self.found(ambiguity);
            }
        }
        if dots == count && matches!(dots, 1 | 2) {
            self.differs = true;
            self.has_dot_segments = true;
            self.found(Ambiguity::DotSegment);
        }
    }

    fn found(&mut self, ambiguity: Ambiguity) {
        self.ambiguity.get_or_insert(ambiguity);
    }
}

/// Returns the normal form of the path below the root.
fn copied(below_root: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(below_root.len() + 1);
    let mut rest = Some(below_root);
    while let Some((segment, after)) = rest.map(first_segment) {
        let border = copy.len();
        copy.push(b'/');
        for unit in Units(segment) {
            unit.write(&mut copy);
        }
        let is_last = after.is_none();
        let is_up = &copy[border + 1..] == b"..";
        if is_up || &copy[border + 1..] == b"." {
            copy.truncate(border);
            if is_up {
                let parent = copy.iter().rposition(|byte| *byte == b'/');
                copy.truncate(parent.unwrap_or(0));
            }
            if is_last {
                copy.push(b'/');
            }
        } else if segment.is_empty() && !is_last {
            copy.truncate(border);
        }
        rest = after;
    }
    copy
}

/// A character of a segment, or an escape.
struct Unit {
    /// Character that it is; `None` for an escape that stays one.
    byte: Option<u8>,
    /// Digits of an escape that stays one, in upper case.
    digits: [u8; 2],
    /// True if the normal form is not the unit itself.
    differs: bool,
    ambiguity: Option<Ambiguity>,
}

impl Unit {
    fn write(&self, copy: &mut Vec<u8>) {
        match self.byte {
            Some(byte) => copy.push(byte),
            None => copy.extend_from_slice(&[b'%', self.digits[0], self.digits[1]]),
        }
    }
}

/// Units of a segment, in order.
struct Units<'a>(&'a [u8]);

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        match *self.0 {
            [b'%', high, low, ref rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                self.0 = rest;
                Some(escape(high, low, rest))
            }
            [byte, ref rest @ ..] => {
                self.0 = rest;
                Some(character(byte))
            }
            [] => None,
        }
    }
}

/// Returns the unit of a byte that begins no escape. A `%` is escaped, so that it forms no escape
/// with characters that are decoded.
fn character(byte: u8) -> Unit {
    let is_percent = byte == b'%';
    Unit {
        byte: (!is_percent).then_some(byte),
        digits: *b"25",
        differs: is_percent,
        ambiguity: match byte {
            b'\\' => Some(Ambiguity::Backslash),
            b';' => Some(Ambiguity::PathParameter),
            b'%' => Some(Ambiguity::BadEscape),
            _ => None,
        },
    }
}

/// Returns the unit of an escape with these digits.
fn escape(high: u8, low: u8, rest: &[u8]) -> Unit {
    let digits = [high.to_ascii_uppercase(), low.to_ascii_uppercase()];
    let byte = value(high) << 4 | value(low);
    let is_unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let ambiguity = match byte {
        b'/' => Some(Ambiguity::EncodedSlash),
        b'\\' => Some(Ambiguity::Backslash),
        b'%' if matches!(rest, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()) => {
            Some(Ambiguity::DoubleEscape)
        }
        b';' => Some(Ambiguity::PathParameter),
        0x00..0x20 | 0x7f => Some(Ambiguity::Control),
        0xc0 | 0xc1 => Some(Ambiguity::Overlong),
        _ => None,
    };
    Unit {
        byte: is_unreserved.then_some(byte),
        digits,
        differs: is_unreserved || digits != [high, low],
        ambiguity,
    }
}

/// Returns the value of a hexadecimal digit.
fn value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expect: &str, ambiguity: Option<Ambiguity>) {
        let found = normalised(path.as_bytes());
        assert_eq!(String::from_utf8_lossy(&found.path), expect, "{path}");
        assert_eq!(found.ambiguity, ambiguity, "{path}");
        let dots = Ambiguity::DotSegment;
        assert!(found.has_dot_segments || ambiguity != Some(dots), "{path}");
        let again = normalised(&found.path);
        assert_eq!(again.path, found.path, "{path}: the normal form is final");
        if path == expect {
            assert!(matches!(found.path, Cow::Borrowed(_)), "{path} is copied");
        }
    }

    #[test]
    fn ordinary_paths_stay_as_they_are_without_a_copy() {
        for path in [
            "/",
            "/a",
            "/a/",
            "/a/b.c/..d",
            "/.well-known/x",
            "/%20%C3%A4",
            "/a:b@c,d",
        ] {
            check(path, path, None);
        }
        for path in ["*", "", "example:443"] {
            check(path, path, None);
        }
    }

    #[test]
    fn equivalent_paths_have_one_form() {
        check("/%61%2d%2E%5f%7E1", "/a-._~1", None);
        check("/%c3%a4", "/%C3%A4", None);
        check("//a///b//", "/a/b/", None);
        check("//", "/", None);
    }

    #[test]
    fn dot_segments_are_resolved_and_named() {
        let dots = Some(Ambiguity::DotSegment);
        check("/a/./b", "/a/b", dots);
        check("/a/../b", "/b", dots);
        check("/a/..", "/", dots);
        check("/a/b/..", "/a/", dots);
        check("/a/.", "/a/", dots);
        check("/..", "/", dots);
        check("/../../a", "/a", dots);
        check("/a//../b", "/b", dots);
        check("/a/%2e%2E/b", "/b", dots);
        check("/a/.%2e/b", "/b", dots);
        check("/a/%2e/b", "/a/b", dots);
        check("/...", "/...", None);
        assert!(!normalised(b"/a/..b").has_dot_segments);
    }

    #[test]
    fn parts_that_servers_read_differently_are_named_and_kept() {
        check("/a%2fb", "/a%2Fb", Some(Ambiguity::EncodedSlash));
        check("/a%2Fb", "/a%2Fb", Some(Ambiguity::EncodedSlash));
        check("/a\\b", "/a\\b", Some(Ambiguity::Backslash));
        check("/a%5cb", "/a%5Cb", Some(Ambiguity::Backslash));
        check("/a;x=1/b", "/a;x=1/b", Some(Ambiguity::PathParameter));
        check("/a%3Bx", "/a%3Bx", Some(Ambiguity::PathParameter));
        check("/a%252e", "/a%252e", Some(Ambiguity::DoubleEscape));
        check("/100%25", "/100%25", None);
        check("/a%25g0", "/a%25g0", None);
        check("/a%zz", "/a%25zz", Some(Ambiguity::BadEscape));
        check("/a%2", "/a%252", Some(Ambiguity::BadEscape));
        check("/%", "/%25", Some(Ambiguity::BadEscape));
        check("/a%00", "/a%00", Some(Ambiguity::Control));
        check("/a%0D", "/a%0D", Some(Ambiguity::Control));
        check("/a%7F", "/a%7F", Some(Ambiguity::Control));
        check("/%C0%AF", "/%C0%AF", Some(Ambiguity::Overlong));
    }

    #[test]
    fn the_first_ambiguity_is_named() {
        check("/a;b/%2F", "/a;b/%2F", Some(Ambiguity::PathParameter));
        check("/%2F/../b", "/b", Some(Ambiguity::EncodedSlash));
    }

    /// Red without the escape of a bare `%`: `%%41a` then becomes `%Aa`, an escape.
    #[test]
    fn the_normal_form_of_random_paths_is_final_and_has_no_dot_segment() {
        let parts = [
            "/", ".", "%2e", "%2E", "%25", "41", "%2f", "a", ";", "\\", "%", "..", "//",
        ];
        let mut state = 1_u64;
        for _ in 0..50_000 {
            let mut path = String::from("/");
            for _ in 0..8 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                path.push_str(parts[(state >> 33) as usize % parts.len()]);
            }
            let once = normalised(path.as_bytes()).path.into_owned();
            assert_eq!(normalised(&once).path, once, "{path}");
            let text = String::from_utf8(once).expect("ASCII");
            let bad = |segment: &str| segment == "." || segment == "..";
            assert!(text.starts_with('/') && !text.split('/').any(bad), "{path}");
            assert!(!text.contains("//"), "{path}: {text}");
        }
    }
}
