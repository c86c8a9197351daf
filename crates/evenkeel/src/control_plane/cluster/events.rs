//! Reports changes of a cluster with their causes: a new primary, roles and problems.

use evenkeel_policy::cluster::{ClusterRoles, Problem, Role};
use evenkeel_proxy::data_plane::CutCount;

use super::role_in;
use crate::control_plane::ControlPlane;
use crate::control_plane::timeline::NewEvent;
use crate::status::{EventKind, Severity};

impl ControlPlane {
    pub(super) fn report_primary(
        &mut self,
        index: usize,
        old: &ClusterRoles,
        cuts: Vec<CutCount>,
        now_ms: u64,
    ) {
        let cluster = &self.clusters[index];
        let (was, is) = (old.primary, cluster.verdict.primary);
        if was == is {
            return;
        }
        let (severity, what) = match (was, is) {
            (None, Some(new)) => (
                Severity::Info,
                format!("{} is the primary", self.name_of_id(index, new)),
            ),
            (Some(old), Some(new)) => (
                Severity::Warning,
                format!(
                    "{} is the primary, replacing {}",
                    self.name_of_id(index, new),
                    self.name_of_id(index, old)
                ),
            ),
            (old, None) => (
                Severity::Error,
                format!(
                    "no primary: no server accepts writes; the last primary was {}",
                    old.map_or("none", |old| self.name_of_id(index, old))
                ),
            ),
        };
        let cause = self.describe_cause(index, old, is);
        let queued = self.queued(index);
        let services = self.services_of(index).join(", ");
        self.clusters[index].primary_since_ms = now_ms;
        let event = NewEvent::new(EventKind::Primary, severity, what);
        self.record_event(event.cause(cause).service(services).cut(cuts, queued));
    }

    /// Returns why the primary changed: the state of the old primary, or the claim of the new one.
    fn describe_cause(&self, index: usize, old: &ClusterRoles, is: Option<u64>) -> String {
        let cluster = &self.clusters[index];
        let gone = old.primary.map(|id| match cluster.role(id) {
            Role::Unknown => self.describe_health(index, id),
            Role::Replica(_) => "is now a replica".to_owned(),
            Role::Spare(why) | Role::Unfit(why) => format!("is no longer usable ({why})"),
            Role::Primary => String::new(),
        });
        let name = |id| self.name_of_id(index, id);
        let problems = cluster.verdict.problems.iter();
        let whole = problems.filter(|one| is.is_none() && one.server.is_none());
        let mut parts: Vec<_> = whole.map(|one| one.message.clone()).collect();
        let gone = gone.filter(|_| parts.is_empty());
        let gone = old.primary.zip(gone);
        parts.extend(gone.map(|(id, why)| format!("{} {why}", name(id))));
        parts.extend(is.map(|id| format!("{} reports that it accepts writes", name(id))));
        parts.join("; ")
    }

    fn describe_health(&self, index: usize, server_id: u64) -> String {
        let members = &self.clusters[index].members;
        let mut states = members.iter().filter_map(|one| self.servers.get(one));
        let found = states.find(|state| state.server.id == server_id);
        found.map_or_else(
            || "was removed from the configuration".to_owned(),
            |state| format!("is down ({})", state.health.reason()),
        )
    }

    pub(super) fn report_roles(&mut self, index: usize, old: &ClusterRoles, now_ms: u64) {
        let roles = self.clusters[index].verdict.roles.clone();
        for (server_id, role) in roles {
            let before = role_in(old, server_id);
            // A claim being verified is reported after verification, some milliseconds later.
            let verifying = self.clusters[index].verdict.verify.contains(&server_id);
            if std::mem::discriminant(before) == std::mem::discriminant(&role) || verifying {
                continue;
            }
            self.clusters[index].role_since_ms.insert(server_id, now_ms);
            let name = self.name_of_id(index, server_id).to_owned();
            let (severity, what, cause) = match role {
                // Changes of the primary and of the health state are reported already.
                Role::Primary | Role::Unknown => continue,
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
            self.record_event(event.server(name));
        }
    }

    pub(super) fn report_problems(&mut self, index: usize, was_primary: Option<u64>) {
        let verdict = &self.clusters[index].verdict;
        let (new, primary) = (self.clusters[index].problems(), verdict.primary);
        // Nothing is decided while a claim is being verified.
        if !verdict.verify.is_empty() {
            return;
        }
        let reported = std::mem::replace(&mut self.clusters[index].reported, new.clone());
        let services = self.services_of(index).join(", ");
        // The reason for the loss of the primary is the cause of that event.
        let is_lost = was_primary.is_some() && primary.is_none();
        let fresh = new.iter().filter(|one| is_news(one, &reported));
        for problem in fresh.filter(|one| !(is_lost && one.server.is_none())) {
            let what = problem.message.clone();
            let event = NewEvent::new(EventKind::Problem, Severity::Error, what);
            self.record_event(event.service(services.clone()));
        }
        let of_server = reported.iter().any(|one| one.server.is_some());
        if new.is_empty() && of_server {
            let what = "cluster problem resolved";
            let event = NewEvent::new(EventKind::Problem, Severity::Info, what);
            self.record_event(event.service(services));
        }
    }

    fn queued(&self, index: usize) -> u64 {
        let members = &self.clusters[index].members;
        let services = self.services.iter();
        let concerned = services.filter(|service| members.iter().any(|one| service.lists(one)));
        concerned
            .map(|service| service.service.queued() as u64)
            .sum()
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
