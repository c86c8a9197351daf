//! Makes the locations of redirects.

use std::borrow::Cow;

/// Statuses of redirects that have a location for the same request (RFC 9110 §15.4).
pub const STATUSES: [u16; 4] = [301, 302, 307, 308];

/// Redirect of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Status, one of [`STATUSES`].
    pub status: u16,
    /// URL with a host, or a path that begins with one slash.
    pub location: String,
    /// True if the path and the query of the request follow the location, which has neither query
    /// nor fragment then.
    pub keeps_path: bool,
}

impl Redirect {
    /// Returns the location for a request. `path` and `query`, with its `?`, are as clients wrote
    /// them, perhaps rewritten.
    ///
    /// The part that a client wrote never changes the host: it follows a slash, and does not begin
    /// with another one or with `\`, which browsers read as one (`//evil.example`).
    pub fn location(&self, path: &[u8], query: &[u8]) -> Cow<'_, [u8]> {
        let location = self.location.as_bytes();
        if !self.keeps_path {
            return Cow::Borrowed(location);
        }
        let end = location.iter().rposition(|byte| *byte != b'/');
        let mut out = location[..end.map_or(0, |end| end + 1)].to_vec();
        out.push(b'/');
        // The path `*` is the server as a whole.
        if path.starts_with(b"/") {
            let begin = path.iter().position(|byte| !matches!(byte, b'/' | b'\\'));
            out.extend_from_slice(&path[begin.unwrap_or(path.len())..]);
        }
        out.extend_from_slice(query);
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(location: &str, path: &str, query: &str, expect: &str) {
        let redirect = Redirect {
            status: 301,
            location: location.to_owned(),
            keeps_path: true,
        };
        let made = redirect.location(path.as_bytes(), query.as_bytes());
        assert_eq!(String::from_utf8_lossy(&made), expect, "{path}{query}");
    }

    #[test]
    fn path_and_query_follow_the_location() {
        let host = "https://new.example";
        check(host, "/", "", "https://new.example/");
        check(host, "/a%20b/", "?c=/d", "https://new.example/a%20b/?c=/d");
        check(host, "*", "", "https://new.example/");
        check("https://new.example/", "/a", "", "https://new.example/a");
        check("https://a/shop/", "/a//b", "?", "https://a/shop/a//b?");
        check("/shop", "/a", "?b", "/shop/a?b");
        check("/", "/a", "", "/a");
    }

    #[test]
    fn no_path_names_another_host() {
        for path in ["//evil.example", "/\\evil.example", "/\\/\\//evil.example"] {
            check("/", path, "", "/evil.example");
            check("https://a", path, "", "https://a/evil.example");
        }
        check("https://a", "/@evil.example", "", "https://a/@evil.example");
        check("https://a", "//", "?//b", "https://a/?//b");
    }

    #[test]
    fn without_the_path_the_location_is_that_of_the_file() {
        let redirect = Redirect {
            status: 307,
            location: "https://a/b?c".to_owned(),
            keeps_path: false,
        };
        assert_eq!(&*redirect.location(b"/x", b"?y"), b"https://a/b?c");
    }
}
