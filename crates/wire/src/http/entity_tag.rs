//! Entity tags (RFC 9110 §8.8.3) of responses whose body was compressed on the way.
//!
//! A compressed body has other bytes than the server's, so that its tag must be another one, and a
//! weak one. It keeps the server's tag, after which a mark names the coding: `"a"` becomes
//! `W/"a--gzip"`. Thereby the tags that a client sends can be changed into the server's again.

/// Text between the server's tag and the name of the coding.
const MARK: &[u8] = b"--";

/// Appends the tag of a compressed body. Returns false, and appends nothing, if the server's is no
/// strong tag: a weak one may stay.
pub fn write_marked(out: &mut Vec<u8>, tag: &[u8], coding: &[u8]) -> bool {
    let mut tags = EntityTags(tag);
    match (tags.next(), tags.is_read()) {
        (Some((false, opaque)), true) => {
            out.extend_from_slice(b"W/\"");
            for part in [opaque, MARK, coding] {
                out.extend_from_slice(part);
            }
            out.push(b'"');
            true
        }
        _ => false,
    }
}

/// Appends a list of tags, as in `If-None-Match` and `If-Match`, with the server's tags in the
/// place of marked ones. Returns false, and appends nothing, if none is marked, or if it is no list
/// of tags.
pub fn write_originals(out: &mut Vec<u8>, list: &[u8], codings: &[&[u8]]) -> bool {
    let start = out.len();
    let mut is_changed = false;
    let mut tags = EntityTags(list);
    for (is_weak, opaque) in &mut tags {
        if out.len() > start {
            out.extend_from_slice(b", ");
        }
        let original = original(opaque, codings).filter(|_| is_weak);
        is_changed |= original.is_some();
        if is_weak && original.is_none() {
            out.extend_from_slice(b"W/");
        }
        out.push(b'"');
        out.extend_from_slice(original.unwrap_or(opaque));
        out.push(b'"');
    }
    let is_valid = is_changed && tags.is_read();
    if !is_valid {
        out.truncate(start);
    }
    is_valid
}

/// Returns whether a list of tags has this one, by weak comparison (RFC 9110 §8.8.3.2).
pub fn has_tag(list: &[u8], tag: &[u8]) -> bool {
    let wanted = EntityTags(tag).next();
    let is_wanted = |(_, opaque)| Some(opaque) == wanted.map(|(_, opaque)| opaque);
    EntityTags(list).any(is_wanted)
}

fn original<'a>(opaque: &'a [u8], codings: &[&[u8]]) -> Option<&'a [u8]> {
    let mut unmarked = codings.iter().filter_map(|coding| {
        let unnamed = opaque.strip_suffix(*coding)?;
        unnamed.strip_suffix(MARK)
    });
    unmarked.next()
}

/// Tags of a list: whether each is weak, and the text between its quotes. What is left is no tag.
struct EntityTags<'a>(&'a [u8]);

impl EntityTags<'_> {
    /// Returns whether all of the list has been read.
    fn is_read(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let (is_weak, quoted) = match self.0 {
            [b'W', b'/', quoted @ ..] => (true, quoted),
            quoted => (false, quoted),
        };
        let opaque = quoted.strip_prefix(b"\"")?;
        let end = memchr::memchr(b'"', opaque)?;
        let (opaque, rest) = opaque.split_at_checked(end)?;
        let rest = rest.strip_prefix(b"\"")?;
        // The next tag follows a comma.
        let between = super::grammar::trim(rest);
        if !matches!(between, [] | [b',', ..]) {
            return None;
        }
        self.0 = between;
        Some((is_weak, opaque))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODINGS: [&[u8]; 2] = [b"gzip", b"br"];

    fn marked(tag: &str) -> Option<String> {
        let mut out = Vec::new();
        let written = write_marked(&mut out, tag.as_bytes(), b"br");
        written.then(|| String::from_utf8(out).unwrap())
    }

    fn originals(list: &str) -> Option<String> {
        let mut out = b"before ".to_vec();
        let written = write_originals(&mut out, list.as_bytes(), &CODINGS);
        let text = String::from_utf8(out).unwrap();
        assert!(written || text == "before ", "{text}");
        written.then(|| text["before ".len()..].to_owned())
    }

    #[test]
    fn a_strong_tag_becomes_a_weak_one_with_a_mark() {
        assert_eq!(marked("\"a\"").as_deref(), Some("W/\"a--br\""));
        assert_eq!(marked("\"\"").as_deref(), Some("W/\"--br\""));
        for tag in [
            "W/\"a\"",
            "a",
            "\"a",
            "\"a\" b",
            "\"a\", \"b\"",
            "w/\"a\"",
            "",
        ] {
            assert_eq!(marked(tag), None, "{tag}");
        }
    }

    #[test]
    fn marked_tags_of_a_list_become_the_servers() {
        for (list, expect) in [
            ("W/\"a--br\"", "\"a\""),
            ("W/\"a--gzip\" ,W/\"b--br\"", "\"a\", \"b\""),
            ("\"x\", W/\"y\", W/\"a,--gzip\"", "\"x\", W/\"y\", \"a,\""),
            (", W/\"a--br\" ,, \"b\",", "\"a\", \"b\""),
            ("W/\"a--gzip--br\"", "\"a--gzip\""),
        ] {
            assert_eq!(originals(list).as_deref(), Some(expect), "{list}");
        }
    }

    #[test]
    fn lists_without_a_marked_tag_stay() {
        for list in [
            "*",
            "",
            "\"a\"",
            "W/\"a\"",
            "\"a--br\"",
            "W/\"a--zstd\"",
            "W/\"a-br\"",
            "W/\"a--br\" x",
            "W/\"a--br\", *",
            "W/\"a--br",
            "w/\"a--br\"",
        ] {
            assert_eq!(originals(list), None, "{list}");
        }
    }

    #[test]
    fn tags_are_found_by_weak_comparison() {
        assert!(has_tag(b"\"b\", W/\"a\"", b"\"a\""));
        assert!(has_tag(b"\"a\"", b"W/\"a\""));
        assert!(!has_tag(b"\"ab\", W/\"b\"", b"\"a\""));
        assert!(!has_tag(b"*", b"\"a\"") && !has_tag(b"", b""));
    }
}
