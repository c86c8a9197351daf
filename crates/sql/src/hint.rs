//! Routing hints in SQL comments: `/* evenkeel: primary */`, `-- evenkeel: replica`, `server=NAME`.

/// Routing hint: the server that the application requests for its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HintComment<'a> {
    /// Execute on the primary, even if the statement looks like a read.
    Primary,
    /// Execute on a replica, even if the statement looks like a write.
    Replica,
    /// Execute on the named server.
    Server(&'a [u8]),
}

/// Parses a comment, including its delimiters. Returns `None` unless the whole comment is a valid
/// hint: `evenkeel:` followed by anything else is no hint.
#[must_use]
pub(crate) fn hint(comment: &[u8]) -> Option<HintComment<'_>> {
    let inside = comment
        .strip_prefix(b"/*")
        .map(|rest| rest.strip_suffix(b"*/").unwrap_or(rest))
        .or_else(|| comment.strip_prefix(b"--"))?;
    let inside = inside.strip_prefix(b"+").unwrap_or(inside);
    let said = inside.trim_ascii().strip_prefix(b"evenkeel:")?.trim_ascii();
    match said {
        b"primary" => Some(HintComment::Primary),
        b"replica" => Some(HintComment::Replica),
        _ => {
            let name = said.strip_prefix(b"server=")?;
            let plain = |byte: &u8| byte.is_ascii_graphic();
            (!name.is_empty() && name.iter().all(plain)).then_some(HintComment::Server(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_in_both_kinds_of_comment() {
        assert_eq!(hint(b"/* evenkeel: primary */"), Some(HintComment::Primary));
        assert_eq!(hint(b"/*+evenkeel:replica*/"), Some(HintComment::Replica));
        assert_eq!(
            hint(b"-- evenkeel: server=db2:5432"),
            Some(HintComment::Server(b"db2:5432"))
        );
    }

    #[test]
    fn other_comments_are_none() {
        for comment in [
            "/* evenkeel: primary replica */",
            "/* evenkeel: server= */",
            "/* evenkeel: Primary */",
            "/* the evenkeel: primary */",
            "-- ",
            "/**/",
            "evenkeel: primary",
        ] {
            assert_eq!(hint(comment.as_bytes()), None, "{comment}");
        }
    }
}
