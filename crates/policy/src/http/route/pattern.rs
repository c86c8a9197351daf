//! Conditions of a route as the configuration writes them: hosts, paths and header fields.

use std::fmt;

use crate::http::path::normalised;

/// Error: a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPattern {
    /// Reason, which continues "`TEXT` …".
    pub why: &'static str,
    /// Advice for a correction.
    pub help: String,
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why, self.help)
    }
}

impl std::error::Error for BadPattern {}

fn bad(why: &'static str, help: impl Into<String>) -> BadPattern {
    BadPattern {
        why,
        help: help.into(),
    }
}

/// Hosts of a route, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host.
    Exact(String),
    /// Each host that ends with a dot and this name, whatever the number of labels before.
    Suffix(String),
}

impl HostPattern {
    /// Reads `shop.example`, `*.shop.example`, `192.0.2.1` or `[2001:db8::1]`.
    ///
    /// # Errors
    ///
    /// Fails for everything else, such as an address with a port.
    pub fn parse(text: &str) -> Result<HostPattern, BadPattern> {
        let name = text.to_ascii_lowercase();
        if name == "*" {
            return Err(bad("is every host", "leave `host` out"));
        }
        if is_address_in_brackets(&name) {
            return Ok(HostPattern::Exact(name));
        }
        let suffix = name.strip_prefix("*.");
        let labels = suffix.unwrap_or(&name);
        check_labels(labels)?;
        Ok(match suffix {
            Some(suffix) => HostPattern::Suffix(suffix.to_owned()),
            None => HostPattern::Exact(name),
        })
    }

    /// Returns whether a host in lower case matches.
    pub fn fits(&self, host: &[u8]) -> bool {
        match self {
            HostPattern::Exact(name) => name.as_bytes() == host,
            HostPattern::Suffix(name) => {
                let before = host.strip_suffix(name.as_bytes());
                before.is_some_and(|before| before.ends_with(b"."))
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Suffix(name) => write!(f, "*.{name}"),
        }
    }
}

fn is_address_in_brackets(name: &str) -> bool {
    let inner = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
}

fn check_labels(labels: &str) -> Result<(), BadPattern> {
    if labels.contains('*') {
        let help = "a wildcard stands for whole labels at the beginning: `*.shop.example`";
        return Err(bad("has a misplaced `*`", help));
    }
    if !labels.is_ascii() {
        let help = "write its ASCII form, as clients send it: `xn--…`";
        return Err(bad("is not ASCII", help));
    }
    if labels.contains(':') {
        let help = "write the host without its port; an IPv6 address needs brackets";
        return Err(bad("has a port", help));
    }
    if labels.ends_with('.') && labels.len() > 1 {
        let help = format!(
            "write `{}`; it also matches with a final dot",
            &labels[..labels.len() - 1]
        );
        return Err(bad("ends with a dot", help));
    }
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_valid);
    if !labels.split('.').all(is_label) {
        return Err(bad(
            "is not a host name",
            "write `shop.example` or `*.shop.example`",
        ));
    }
    Ok(())
}

/// Paths of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// Each path, and `*`.
    #[default]
    Any,
    /// Each path that begins with this text, which ends at the border of a segment: `/api` matches
    /// `/api` and `/api/x`, but not `/apis`; `/api/` matches `/api/x`, but not `/api`.
    Prefix(String),
    /// This path.
    Exact(String),
}

impl PathPattern {
    /// Reads a prefix (`/api/`) or an exact path (`=/api`).
    ///
    /// # Errors
    ///
    /// Fails if it is not a path in normal form, which would never match.
    pub fn parse(text: &str) -> Result<PathPattern, BadPattern> {
        let exact = text.strip_prefix('=');
        let path = exact.unwrap_or(text);
        check_path(path)?;
        Ok(match exact {
            Some(path) => PathPattern::Exact(path.to_owned()),
            None => PathPattern::Prefix(path.to_owned()),
        })
    }

    /// Returns whether a path in normal form matches.
    pub fn fits(&self, path: &[u8]) -> bool {
        match self {
            PathPattern::Any => true,
            PathPattern::Exact(exact) => exact.as_bytes() == path,
            PathPattern::Prefix(prefix) => rest_after(prefix, path).is_some(),
        }
    }

    /// Returns the length by which paths are ordered.
    pub(super) fn len(&self) -> usize {
        match self {
            PathPattern::Any => 0,
            PathPattern::Prefix(text) | PathPattern::Exact(text) => text.len(),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathPattern::Any => Ok(()),
            PathPattern::Prefix(text) => f.write_str(text),
            PathPattern::Exact(text) => write!(f, "={text}"),
        }
    }
}

/// Returns the part of a path after a prefix that ends at the border of a segment.
pub(in crate::http) fn rest_after<'a>(prefix: &str, path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix.as_bytes())?;
    let ends = prefix.ends_with('/') || rest.is_empty() || rest.starts_with(b"/");
    ends.then_some(rest)
}

/// Checks a path of the configuration.
///
/// # Errors
///
/// Fails if it is not a path in normal form.
pub fn check_path(path: &str) -> Result<(), BadPattern> {
    if !path.starts_with('/') {
        let help = "begin it with `/`, or with `=/` for an exact path";
        return Err(bad("is not a path", help));
    }
    if path.contains(['?', '#']) {
        return Err(bad(
            "has a query",
            "routes see the path only: remove all from `?` or `#` on",
        ));
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        let help = "write each byte of other characters as an escape: `%20` for a space";
        return Err(bad("has a character that no path contains", help));
    }
    if path.contains('*') {
        let help = "a path without `=` is a prefix: `/api/` matches all below it";
        return Err(bad("has a `*`, which is no wildcard", help));
    }
    let form = normalised(path.as_bytes());
    if let Some(ambiguity) = form.ambiguity {
        let help = format!("servers read it differently: it has {}", ambiguity.text());
        return Err(bad("is ambiguous", help));
    }
    if form.path != path.as_bytes() {
        let help = format!("write `{}`", String::from_utf8_lossy(&form.path));
        return Err(bad("is not in normal form", help));
    }
    Ok(())
}

/// Condition on a header field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeaderCondition {
    /// Name of the field, in lower case.
    pub name: String,
    /// Value of one of the fields of that name. `None`: any value.
    pub value: Option<String>,
}
