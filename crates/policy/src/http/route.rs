//! Chooses the route of a request: by host first, then by the longest path, then by the order of
//! the file.
//!
//! Hosts: an exact name before wildcards, a longer wildcard before a shorter one, routes without
//! hosts last. A route whose other conditions do not hold is skipped, and the next one in this
//! order is tried.

use std::borrow::Cow;
use std::collections::HashMap;

pub use explain::{Candidate, OutrankedBy, Verdict};
pub use pattern::{BadPattern, HeaderCondition, HostPattern, PathPattern, check_path};
pub use shadow::Shadow;

pub(super) use pattern::rest_after;
use tree::Tree;

mod explain;
mod pattern;
mod shadow;
mod tree;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

/// Conditions of a route. All must hold; an empty list is no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Hosts of which one must match.
    pub hosts: Vec<HostPattern>,
    /// Path that must match.
    pub path: PathPattern,
    /// Methods of which the request has one. Methods are case-sensitive (RFC 9110 §9.1).
    pub methods: Vec<String>,
    /// Conditions on header fields, of which each must hold.
    pub headers: Vec<HeaderCondition>,
}

/// Route to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route<T> {
    /// Requests that it takes.
    pub conditions: Conditions,
    /// True if it restricts access, so that requests must not bypass it by their spelling.
    pub protects: bool,
    /// Target of its requests.
    pub target: T,
}

/// Facts of a request, besides its header fields.
#[derive(Debug, Clone, Copy)]
pub struct RouteRequest<'a> {
    /// Host without port and without a final dot; empty if the request has none.
    pub host: &'a [u8],
    /// Path as [`normalised`](super::path::normalised) returns it.
    pub path: &'a [u8],
    /// Method.
    pub method: &'a [u8],
}

/// Routes of a service, compiled. Immutable.
#[derive(Debug)]
pub struct RouteTable<T> {
    /// Routes in the order of the file.
    routes: Vec<Route<T>>,
    /// Trees of exact hosts.
    exact: HashMap<Box<[u8]>, Tree>,
    /// Trees of wildcards, by the host after `*.`.
    wildcards: HashMap<Box<[u8]>, Tree>,
    /// Tree of routes without hosts.
    any_host: Tree,
}

impl<T> RouteTable<T> {
    /// Compiles routes, which are in the order of the file.
    pub fn new(routes: Vec<Route<T>>) -> RouteTable<T> {
        let mut table = RouteTable {
            routes: Vec::new(),
            exact: HashMap::new(),
            wildcards: HashMap::new(),
            any_host: Tree::new(),
        };
        for (index, route) in routes.iter().enumerate() {
            let Conditions { hosts, path, .. } = &route.conditions;
            for host in hosts {
                let (trees, name) = match host {
                    HostPattern::Exact(name) => (&mut table.exact, name),
                    HostPattern::Suffix(name) => (&mut table.wildcards, name),
                };
                let tree = trees.entry(name.as_bytes().into()).or_default();
                tree.insert(path, index, route.protects);
            }
            if hosts.is_empty() {
                table.any_host.insert(path, index, route.protects);
            }
        }
        table.routes = routes;
        table
    }

    /// Returns the route of a request, by its index in the order of the file. `holds` returns
    /// whether the request meets a condition on header fields.
    ///
    /// Allocates nothing if the host is in lower case.
    pub fn find(
        &self,
        request: &RouteRequest<'_>,
        holds: impl Fn(&HeaderCondition) -> bool,
    ) -> Option<usize> {
        let host = lower(request.host);
        let fits = |index: usize| {
            let conditions = &self.routes[index].conditions;
            conditions.takes_method(request.method) && conditions.headers.iter().all(&holds)
        };
        let mut trees = self.trees(&host);
        trees.find_map(|tree| tree.find(request.path, &fits))
    }

    /// Returns whether a route that may take requests for this host restricts access. If so, a
    /// request with an ambiguous path is to be refused: the server may find a restricted path where
    /// [`find`](Self::find) found another one.
    pub fn guards(&self, host: &[u8]) -> bool {
        let host = lower(host);
        self.trees(&host).any(Tree::protects)
    }

    /// Returns the routes in the order of the file.
    pub fn routes(&self) -> &[Route<T>] {
        &self.routes
    }

    /// Returns the trees for a host, the most specific first.
    fn trees<'a>(&'a self, host: &'a [u8]) -> impl Iterator<Item = &'a Tree> {
        let exact = self.exact.get(host);
        let suffixes = suffixes(host).take_while(|_| !self.wildcards.is_empty());
        let wildcards = suffixes.filter_map(|suffix| self.wildcards.get(suffix));
        exact.into_iter().chain(wildcards).chain([&self.any_host])
    }
}

impl Conditions {
    fn takes_method(&self, method: &[u8]) -> bool {
        let is_it = |known: &String| known.as_bytes() == method;
        self.methods.is_empty() || self.methods.iter().any(is_it)
    }
}

/// Returns the parts of a host after each of its dots, the longest first.
fn suffixes(host: &[u8]) -> impl Iterator<Item = &[u8]> {
    let dots = host.iter().enumerate().filter(|(_, byte)| **byte == b'.');
    dots.map(|(index, _)| &host[index + 1..])
}

/// Returns the host in lower case.
fn lower(host: &[u8]) -> Cow<'_, [u8]> {
    match host.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}
