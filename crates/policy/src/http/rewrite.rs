//! Rewrites the path of a request on its way to the server: removes or replaces a prefix.

use super::path::MatchPath;
use super::route::{PathPattern, rest_after};

/// Change of the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rewrite {
    /// The path stays as the client wrote it.
    #[default]
    Keep,
    /// The prefix is replaced, at the border of a segment. A path without the prefix stays as it
    /// is.
    Prefix {
        /// Prefix to replace, in normal form.
        from: String,
        /// Replacement in normal form; `/` removes the prefix.
        to: String,
    },
}

impl Rewrite {
    /// Returns the rewriting that removes a prefix.
    pub fn strip(prefix: &str) -> Rewrite {
        Rewrite::replace(prefix, "/")
    }

    /// Returns the rewriting that replaces a prefix.
    pub fn replace(from: &str, to: &str) -> Rewrite {
        Rewrite::Prefix {
            from: from.to_owned(),
            to: to.to_owned(),
        }
    }

    /// Returns whether it changes each path that a pattern matches.
    pub fn applies_to_all(&self, pattern: &PathPattern) -> bool {
        match (self, pattern) {
            (Rewrite::Keep, _) => true,
            (Rewrite::Prefix { .. }, PathPattern::Any) => false,
            (
                Rewrite::Prefix { from, .. },
                PathPattern::Prefix(path) | PathPattern::Exact(path),
            ) => rest_after(from, path.as_bytes()).is_some(),
        }
    }

    /// Returns the path to send to the server, in parts that follow each other. `path` is what the
    /// client wrote, without its query, and `normal` its normal form.
    ///
    /// The part after the prefix stays as the client wrote it, unless the prefix is written in
    /// another form (`/%61pi`) or dot segments may leave it: then that part is in normal form, too.
    /// Slashes between both parts become one: a path that begins with two may be read as a host.
    pub fn apply<'a>(&'a self, path: &'a [u8], normal: &'a MatchPath<'_>) -> [&'a [u8]; 3] {
        let Rewrite::Prefix { from, to } = self else {
            return [path, b"", b""];
        };
        let Some(normal_rest) = rest_after(from, &normal.path) else {
            return [path, b"", b""];
        };
        let written_rest = rest_after(from, path).filter(|_| !normal.has_dot_segments);
        let rest = written_rest.unwrap_or(normal_rest);
        if rest.is_empty() && !from.ends_with('/') {
            return [to.as_bytes(), b"", b""];
        }
        let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
        let parent = to.strip_suffix('/').unwrap_or(to);
        [parent.as_bytes(), b"/", &rest[slashes..]]
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::normalised;
    use super::*;

    #[track_caller]
    fn check(rewrite: &Rewrite, path: &str, expect: &str) {
        let normal = normalised(path.as_bytes());
        let parts = rewrite.apply(path.as_bytes(), &normal);
        assert_eq!(String::from_utf8_lossy(&parts.concat()), expect, "{path}");
    }

    #[test]
    fn a_prefix_is_removed_at_the_border_of_a_segment() {
        let strip = Rewrite::strip("/api");
        check(&strip, "/api", "/");
        check(&strip, "/api/", "/");
        check(&strip, "/api/x/y", "/x/y");
        check(&strip, "/apis", "/apis");
        check(&strip, "/other/api", "/other/api");
        check(&strip, "*", "*");
        check(&Rewrite::strip("/api/"), "/api/x", "/x");
        check(&Rewrite::strip("/api/"), "/api/", "/");
        check(&Rewrite::strip("/api/"), "/api", "/api");
        check(&Rewrite::strip("/"), "/x", "/x");
    }

    #[test]
    fn a_prefix_is_replaced() {
        let replace = Rewrite::replace("/api", "/v2");
        check(&replace, "/api", "/v2");
        check(&replace, "/api/", "/v2/");
        check(&replace, "/api/x", "/v2/x");
        check(&Rewrite::replace("/api", "/v2/"), "/api", "/v2/");
        check(&Rewrite::replace("/api", "/v2/"), "/api/x", "/v2/x");
        check(&Rewrite::replace("/api/", "/v2"), "/api/x", "/v2/x");
        check(&Rewrite::replace("/", "/v2"), "/x", "/v2/x");
        check(&Rewrite::replace("/", "/v2"), "/", "/v2/");
    }

    #[test]
    fn without_a_rewriting_the_path_stays() {
        check(&Rewrite::Keep, "/api//%61/../x", "/api//%61/../x");
    }

    #[test]
    fn the_rest_stays_as_written_unless_it_may_leave_the_prefix() {
        let strip = Rewrite::strip("/api");
        check(&strip, "/api/a//b/%61%2f", "/a//b/%61%2f");
        check(&strip, "/%61pi/a//%61", "/a/a");
        check(&strip, "//api/x", "/x");
        check(&strip, "/api/../x", "/api/../x");
        check(&strip, "/x/../api/y", "/y");
        check(&strip, "/api/y/../../api/z", "/z");
        check(&strip, "/api/y/../z", "/z");
    }

    #[test]
    fn no_path_begins_with_two_slashes_after_a_rewriting() {
        check(
            &Rewrite::strip("/api"),
            "/api//evil.example/",
            "/evil.example/",
        );
        check(&Rewrite::replace("/api", "/v2"), "/api///x", "/v2/x");
    }

    #[test]
    fn a_rewriting_applies_to_all_paths_below_its_prefix() {
        let strip = Rewrite::strip("/api");
        let applies = |path| strip.applies_to_all(&PathPattern::parse(path).expect("a path"));
        for path in ["/api", "/api/", "/api/x", "=/api"] {
            assert!(applies(path), "{path}");
        }
        for path in ["/", "/apis", "=/x"] {
            assert!(!applies(path), "{path}");
        }
        assert!(!strip.applies_to_all(&PathPattern::Any));
        assert!(Rewrite::Keep.applies_to_all(&PathPattern::Any));
    }
}
