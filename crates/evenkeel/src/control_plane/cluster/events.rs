//! Reports changes of a cluster with their causes: a new primary, roles and problems.

use evenkeel_engine::clock::now_ms;
use evenkeel_policy::cluster::{ClusterRoles, Problem, Role};
use evenkeel_proxy::data_plane::CutCount;

use super::{ManagedCluster, needs_roles, role_in};
use crate::control_plane::ControlPlane;
use crate::control_plane::servers::Servers;
use crate::control_plane::service::{ManagedService, name_of};
use crate::control_plane::timeline::NewEvent;
use crate::status::{EventKind, Severity};

impl ManagedCluster {
    /// Returns the members whose role has changed, with their new role. A claim being verified is
    /// reported after verification, some milliseconds later.
    fn changed_roles(&self, old: &ClusterRoles) -> Vec<(u64, Role)> {
        let changed = self.verdict.roles.iter().filter(|(server_id, role)| {
            let before = role_in(old, *server_id);
            let is_other = std::mem::discriminant(before) != std::mem::discriminant(role);
            is_other && !self.verdict.verify.contains(server_id)
        });
        changed.cloned().collect()
    }

    /// Records the times of what a decision has changed.
    fn record_times(&mut self, old: &ClusterRoles) {
        let now_ms = now_ms();
        if self.verdict.primary != old.primary {
            self.primary_since_ms = now_ms;
        }
        for (server_id, _) in self.changed_roles(old) {
            self.role_since_ms.insert(server_id, now_ms);
        }
    }

    /// Returns the problems reported before, and records that those of now are reported. `None`:
    /// nothing is decided while a claim is being verified.
    fn exchange_reported(&mut self) -> Option<Vec<Problem>> {
        let is_decided = self.verdict.verify.is_empty();
        let problems = self.problems();
        is_decided.then(|| std::mem::replace(&mut self.reported, problems))
    }
}

impl ControlPlane {
    /// Reports what a decision has changed: the primary, roles and problems.
    pub(super) fn report_decision(
        &mut self,
        index: usize,
        old: &ClusterRoles,
        cuts: Vec<CutCount>,
    ) {
        let cluster = self.clusters.get_mut(index);
        cluster.record_times(old);
        let reported = cluster.exchange_reported();
        let view = self.cluster_view(self.clusters.get(index));
        let mut events = Vec::from_iter(view.primary_event(old, cuts));
        events.extend(view.role_events(old));
        if let Some(reported) = reported {
            events.extend(view.problem_events(&reported, old.primary));
        }
        for event in events {
            self.record_event(event);
        }
    }

    /// Returns a cluster with the servers and services that reports about it name.
    pub(in crate::control_plane) fn cluster_view<'a>(
        &'a self,
        cluster: &'a ManagedCluster,
    ) -> ClusterView<'a> {
        ClusterView {
            cluster,
            servers: &self.servers,
            services: &self.services,
        }
    }
}

/// A cluster, and the servers and services that reports about it name.
pub(in crate::control_plane) struct ClusterView<'a> {
    cluster: &'a ManagedCluster,
    servers: &'a Servers,
    services: &'a [ManagedService],
}

impl<'a> ClusterView<'a> {
    /// Returns the names of the services that the cluster serves.
    pub(in crate::control_plane) fn services(&self) -> Vec<String> {
        let listing = self.listing();
        let services = listing.filter(|service| needs_roles(&service.plan));
        services.map(|service| service.plan.name.clone()).collect()
    }

    /// Returns the name of a member.
    pub(in crate::control_plane) fn name_of_id(&self, server_id: u64) -> &'a str {
        let mut known = self.cluster.members.iter().filter(|address| {
            let state = self.servers.get(address);
            state.is_some_and(|state| state.server.id == server_id)
        });
        known.next().map_or("a removed server", |address| {
            name_of(self.services, self.servers, address)
        })
    }

    /// Returns the services that list a member.
    fn listing(&self) -> impl Iterator<Item = &'a ManagedService> {
        let members = &self.cluster.members;
        let services = self.services.iter();
        services.filter(move |service| members.iter().any(|one| service.lists(one)))
    }

    fn primary_event(&self, old: &ClusterRoles, cuts: Vec<CutCount>) -> Option<NewEvent> {
        let (was, is) = (old.primary, self.cluster.verdict.primary);
        if was == is {
            return None;
        }
        let (severity, what) = match (was, is) {
            (None, Some(new)) => (
                Severity::Info,
                format!("{} is the primary", self.name_of_id(new)),
            ),
            (Some(old), Some(new)) => (
                Severity::Warning,
                format!(
                    "{} is the primary, replacing {}",
                    self.name_of_id(new),
                    self.name_of_id(old)
                ),
            ),
            (old, None) => (
                Severity::Error,
                format!(
                    "no primary: no server accepts writes; the last primary was {}",
                    old.map_or("none", |old| self.name_of_id(old))
                ),
            ),
        };
        let queued = self.listing().map(|one| one.service.queued() as u64).sum();
        let event = NewEvent::new(EventKind::Primary, severity, what);
        let event = event.cause(self.describe_cause(old, is));
        Some(event.service(self.services().join(", ")).cut(cuts, queued))
    }

    /// Returns why the primary changed: the state of the old primary, or the claim of the new one.
    fn describe_cause(&self, old: &ClusterRoles, is: Option<u64>) -> String {
        let cluster = self.cluster;
        let gone = old.primary.map(|id| match cluster.role(id) {
            Role::Unknown => self.describe_health(id),
            Role::Replica(_) => "is now a replica".to_owned(),
            Role::Spare(why) | Role::Unfit(why) => format!("is no longer usable ({why})"),
            Role::Primary => String::new(),
        });
        let name = |id| self.name_of_id(id);
        let problems = cluster.verdict.problems.iter();
        let whole = problems.filter(|one| is.is_none() && one.server.is_none());
        let mut parts: Vec<_> = whole.map(|one| one.message.clone()).collect();
        let gone = gone.filter(|_| parts.is_empty());
        let gone = old.primary.zip(gone);
        parts.extend(gone.map(|(id, why)| format!("{} {why}", name(id))));
        parts.extend(is.map(|id| format!("{} reports that it accepts writes", name(id))));
        parts.join("; ")
    }

    fn describe_health(&self, server_id: u64) -> String {
        let members = self.cluster.members.iter();
        let mut states = members.filter_map(|one| self.servers.get(one));
        let found = states.find(|state| state.server.id == server_id);
        found.map_or_else(
            || "was removed from the configuration".to_owned(),
            |state| format!("is down ({})", state.health.reason()),
        )
    }

    fn role_events(&self, old: &ClusterRoles) -> Vec<NewEvent> {
        let changed = self.cluster.changed_roles(old).into_iter();
        let event = |(server_id, role)| {
            let name = self.name_of_id(server_id);
            let (severity, what, cause) = match role {
                // Changes of the primary and of the health state are reported already.
                Role::Primary | Role::Unknown => return None,
                Role::Replica(_) => (
                    Severity::Info,
                    format!("{name} is a replica"),
                    String::new(),
                ),
                Role::Spare(why) => (
                    Severity::Info,
                    format!("{name} serves reads only if no other replica can"),
                    why,
                ),
                Role::Unfit(why) => (
                    Severity::Warning,
                    format!("{name} is neither primary nor replica"),
                    why,
                ),
            };
            let event = NewEvent::new(EventKind::Role, severity, what).cause(cause);
            Some(event.server(name))
        };
        changed.filter_map(event).collect()
    }

    /// Returns events of problems that are new since those `reported` before, or of their end.
    fn problem_events(&self, reported: &[Problem], was_primary: Option<u64>) -> Vec<NewEvent> {
        let (problems, services) = (self.cluster.problems(), self.services().join(", "));
        let event = |severity, what| {
            NewEvent::new(EventKind::Problem, severity, what).service(services.clone())
        };
        // The reason for the loss of the primary is the cause of that event.
        let is_lost = was_primary.is_some() && self.cluster.verdict.primary.is_none();
        let fresh = problems.iter().filter(|one| is_news(one, reported));
        let fresh = fresh.filter(|one| !(is_lost && one.server.is_none()));
        let mut events: Vec<_> = fresh
            .map(|problem| event(Severity::Error, problem.message.clone()))
            .collect();
        if problems.is_empty() && reported.iter().any(|one| one.server.is_some()) {
            events.push(event(Severity::Info, "cluster problem resolved".to_owned()));
        }
        events
    }
}

/// Returns whether a problem has not been reported yet. A problem of which only positions or counts
/// change is the same problem.
fn is_news(problem: &Problem, reported: &[Problem]) -> bool {
    let is_position = |word: &&str| {
        let has_digit = word.contains(|c: char| c.is_ascii_digit());
        let is_count = !word.contains(|c: char| c.is_alphabetic());
        has_digit && (is_count || word.contains(['/', ':']))
    };
    let words = |one: &Problem| -> Vec<String> {
        let words = one.message.split_whitespace();
        let fixed = words.filter(|word| !is_position(word));
        fixed.map(str::to_owned).collect()
    };
    let (server, new_words) = (problem.server, words(problem));
    reported
        .iter()
        .all(|one| one.server != server || words(one) != new_words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(server: Option<u64>, message: &str) -> Problem {
        let message = message.to_owned();
        Problem { server, message }
    }

    #[test]
    fn a_position_that_moves_on_is_no_news() {
        let reported = [problem(
            None,
            "two primaries (at 0/16B3748, 0/16B0000): select one",
        )];
        let moved = problem(None, "two primaries (at 0/16B9999, 0/16B0000): select one");
        assert!(!is_news(&moved, &reported));
    }

    #[test]
    fn another_servers_name_is_news_though_it_has_a_digit() {
        let reported = [problem(None, "db1 and db2 accept writes")];
        assert!(is_news(
            &problem(None, "db1 and db3 accept writes"),
            &reported
        ));
    }

    #[test]
    fn another_server_or_another_matter_is_news() {
        let reported = [problem(Some(1), "read_only is ON")];
        assert!(is_news(&problem(Some(2), "read_only is ON"), &reported));
        assert!(is_news(
            &problem(Some(1), "expelled from the group"),
            &reported
        ));
    }
}
