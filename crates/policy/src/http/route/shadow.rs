//! Finds routes that never match, because routes before them take all of their requests.

use super::{Conditions, HeaderCondition, HostPattern, RouteTable};

/// Route that never matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// Index of the route.
    pub route: usize,
    /// Indices of the routes that take its requests, in the order of the file.
    pub by: Vec<usize>,
}

impl<T> RouteTable<T> {
    /// Returns the routes that never match.
    ///
    /// Only a route with the same host and the same path can take all requests of another one:
    /// those with a more specific host or a longer path leave some.
    pub fn shadowed(&self) -> Vec<Shadow> {
        let shadows = (0..self.routes.len()).filter_map(|route| {
            let by = self.shadow_of(route)?;
            Some(Shadow { route, by })
        });
        shadows.collect()
    }

    /// Returns the routes that together take all requests of a route.
    fn shadow_of(&self, route: usize) -> Option<Vec<usize>> {
        let conditions = &self.routes[route].conditions;
        let hosts = each_or_none(&conditions.hosts);
        let methods = each_or_none(&conditions.methods);
        let mut by = Vec::new();
        for host in &hosts {
            for method in &methods {
                let takes = |before: &usize| {
                    let other = &self.routes[*before].conditions;
                    takes_all(other, conditions, *host, method.map(String::as_str))
                };
                by.push((0..route).find(takes)?);
            }
        }
        by.sort_unstable();
        by.dedup();
        Some(by)
    }
}

/// Returns each element, or `None` for an empty list, which is no condition.
fn each_or_none<T>(list: &[T]) -> Vec<Option<&T>> {
    match list {
        [] => vec![None],
        list => list.iter().map(Some).collect(),
    }
}

/// Returns whether an earlier route takes the requests of a later one that have this host and
/// method.
fn takes_all(
    earlier: &Conditions,
    later: &Conditions,
    host: Option<&HostPattern>,
    method: Option<&str>,
) -> bool {
    let is_same_host = match host {
        Some(host) => earlier.hosts.contains(host),
        None => earlier.hosts.is_empty(),
    };
    let takes_method = match method {
        Some(method) => earlier.takes_method(method.as_bytes()),
        None => earlier.methods.is_empty(),
    };
    let is_implied = |condition: &HeaderCondition| {
        later.headers.iter().any(|other| {
            let same_value = condition.value.is_none() || condition.value == other.value;
            other.name == condition.name && same_value
        })
    };
    is_same_host
        && earlier.path == later.path
        && takes_method
        && earlier.headers.iter().all(is_implied)
}
