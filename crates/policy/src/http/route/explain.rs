//! Explains the choice of a route: each route with the reason why it was chosen or not.

use std::cmp::Reverse;

use super::{
    Conditions, HeaderCondition, HostPattern, PathPattern, RouteRequest, RouteTable, lower,
};

/// Route, and why it was chosen or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Index of the route in the order of the file.
    pub route: usize,
    /// Reason.
    pub verdict: Verdict,
}

/// Reason why a route was chosen or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The route takes the request.
    Chosen,
    /// All conditions hold, but the chosen route comes first.
    Outranked(OutrankedBy),
    /// No host matches.
    OtherHost,
    /// Path that does not match.
    OtherPath,
    /// No method matches.
    OtherMethod,
    /// The condition of this index in [`Conditions::headers`] does not hold.
    OtherHeader(usize),
}

/// Reason why the chosen route comes before another one that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutrankedBy {
    /// The chosen route has a more specific host.
    Host,
    /// The chosen route has a longer path, or the exact one.
    Path,
    /// The chosen route is earlier in the file.
    Order,
}

/// Precedence of a route for a request; the smallest one is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    host: (HostKind, Reverse<usize>),
    path: (Reverse<usize>, PathKind),
    route: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HostKind {
    Exact,
    Wildcard,
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathKind {
    Exact,
    Prefix,
}

impl<T> RouteTable<T> {
    /// Returns every route with the reason why it was chosen or not: the matching ones in order of
    /// precedence, then the others in the order of the file.
    ///
    /// Evaluates each condition by itself, and not by the compiled table; the laws compare both.
    pub fn explain(
        &self,
        request: &RouteRequest<'_>,
        holds: impl Fn(&HeaderCondition) -> bool,
    ) -> Vec<Candidate> {
        let host = lower(request.host);
        let mut matching: Vec<Rank> = Vec::new();
        let mut others = Vec::new();
        for (route, Conditions { hosts, path, .. }) in self.conditions() {
            match self.mismatch(route, request, &holds) {
                Some(verdict) => others.push(Candidate { route, verdict }),
                None => matching.push(Rank {
                    host: host_rank(hosts, &host),
                    path: path_rank(path),
                    route,
                }),
            }
        }
        matching.sort_unstable();
        let candidate = |rank: &Rank| Candidate {
            route: rank.route,
            verdict: rank.verdict(&matching[0]),
        };
        let mut all: Vec<Candidate> = matching.iter().map(candidate).collect();
        all.extend(others);
        all
    }

    fn conditions(&self) -> impl Iterator<Item = (usize, &Conditions)> {
        let conditions = self.routes.iter().map(|route| &route.conditions);
        conditions.enumerate()
    }

    /// Returns the first condition that does not hold.
    fn mismatch(
        &self,
        route: usize,
        request: &RouteRequest<'_>,
        holds: &impl Fn(&HeaderCondition) -> bool,
    ) -> Option<Verdict> {
        let conditions = &self.routes[route].conditions;
        let host = lower(request.host);
        let hosts = &conditions.hosts;
        if !hosts.is_empty() && !hosts.iter().any(|pattern| pattern.fits(&host)) {
            return Some(Verdict::OtherHost);
        }
        if !conditions.path.fits(request.path) {
            return Some(Verdict::OtherPath);
        }
        if !conditions.takes_method(request.method) {
            return Some(Verdict::OtherMethod);
        }
        let unmet = conditions.headers.iter().position(|header| !holds(header));
        unmet.map(Verdict::OtherHeader)
    }
}

impl Rank {
    fn verdict(&self, chosen: &Rank) -> Verdict {
        if self == chosen {
            Verdict::Chosen
        } else if self.host != chosen.host {
            Verdict::Outranked(OutrankedBy::Host)
        } else if self.path != chosen.path {
            Verdict::Outranked(OutrankedBy::Path)
        } else {
            Verdict::Outranked(OutrankedBy::Order)
        }
    }
}

/// Returns the rank of the most specific host that matches.
fn host_rank(hosts: &[HostPattern], host: &[u8]) -> (HostKind, Reverse<usize>) {
    let fitting = hosts.iter().filter(|pattern| pattern.fits(host));
    let ranks = fitting.map(|pattern| match pattern {
        HostPattern::Exact(name) => (HostKind::Exact, Reverse(name.len())),
        HostPattern::Suffix(name) => (HostKind::Wildcard, Reverse(name.len())),
    });
    ranks.min().unwrap_or((HostKind::Any, Reverse(0)))
}

fn path_rank(path: &PathPattern) -> (Reverse<usize>, PathKind) {
    let kind = match path {
        PathPattern::Exact(_) => PathKind::Exact,
        PathPattern::Prefix(_) | PathPattern::Any => PathKind::Prefix,
    };
    (Reverse(path.len()), kind)
}
