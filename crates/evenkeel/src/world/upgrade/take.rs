//! The new process's part: begins with what the old one knows, and counts its sessions.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use evenkeel_policy::health::Standing;
use evenkeel_proxy::{Endpoint, now_ms};

use super::claims::{add_to_server, add_to_service};
use crate::config::Plan;
use crate::status::{EventKind, Severity};
use crate::upgrade::doors::Doors;
use crate::upgrade::line::{FromPredecessor, Line};
use crate::upgrade::predecessor::{Inherited, Predecessor};
use crate::upgrade::state::{Counted, Report, ServerHandover};
use crate::world::history::Totals;
use crate::world::server::{Drain, ServerState};
use crate::world::service::ServiceState;
use crate::world::timeline::News;
use crate::world::{World, WorldError};

impl World {
    /// Serves this plan with the sockets and the knowledge of an old process, which stops accepting
    /// then. An error leaves the old process as it was.
    pub(in crate::world) fn take_over(
        &mut self,
        plan: Plan,
        mut predecessor: Predecessor,
        mut inherited: Inherited,
    ) -> Result<(), WorldError> {
        let mut prepared = self.prepare(&plan, &mut inherited)?;
        let (state, lines) = predecessor.ready()?;
        let pid = state.pid;
        for known in &state.servers {
            let mut servers = prepared.servers.iter_mut();
            let same = servers.find(|(address, _)| address.to_string() == known.address);
            if let Some((_, server)) = same {
                resume_server(server, known, &state.report);
            }
        }
        self.upgrades.inherited = state;
        self.listen_to_earlier(lines);
        for (address, server) in &prepared.servers {
            let places = self.elsewhere(|report| &report.servers, &address.to_string());
            server.server.load.places.set_elsewhere(places);
        }
        // Views and limits first, listeners then: nobody is let in before the old one's are known.
        self.adopt_prepared(plan, prepared);
        self.check_all_listen()?;
        if let Err(error) = inherited.take_log() {
            tracing::warn!("the log stays with the process that is being replaced: {error}");
        }
        predecessor.serving(inherited.taken())?;
        self.own_sockets();
        let heard = self.upgrades.from_predecessors.0.clone();
        let state = std::mem::take(&mut self.upgrades.inherited);
        match predecessor.line(heard) {
            Ok(line) => self.upgrades.predecessors.push(super::Predecessor {
                pid,
                report: state.report,
                line,
            }),
            // It ends as it would; only its sessions are counted no longer.
            Err(error) => tracing::error!("process {pid} is not heard as it drains: {error}"),
        }
        self.count_elsewhere();
        let what = format!("took over from process {pid}");
        self.tell(News::new(EventKind::Process, Severity::Info, what));
        Ok(())
    }

    fn listen_to_earlier(&mut self, lines: Vec<OwnedFd>) {
        let earlier = std::mem::take(&mut self.upgrades.inherited.predecessors);
        for (earlier, line) in earlier.into_iter().zip(lines) {
            let heard = self.upgrades.from_predecessors.0.clone();
            match Line::new(earlier.pid, line, earlier.unread, heard) {
                Ok(line) => self.upgrades.predecessors.push(super::Predecessor {
                    pid: earlier.pid,
                    report: earlier.report,
                    line,
                }),
                Err(error) => tracing::error!("process {} is lost: {error}", earlier.pid),
            }
        }
    }

    /// The admin door, for the next process.
    pub(crate) fn keep_doors(&mut self, doors: Doors) {
        self.upgrades.doors = Some(doors);
    }

    /// A service begins with what the old process knows of it.
    pub(in crate::world) fn resume_service(&self, state: &mut ServiceState) {
        let inherited = &self.upgrades.inherited;
        let name = &state.plan.name;
        let Some(known) = inherited.services.iter().find(|s| s.name == *name) else {
            return;
        };
        for listed in &state.plan.servers {
            let weight = known.weights.get(&listed.address.to_string());
            if let Some(weight) = weight.filter(|weight| **weight != listed.weight) {
                state.weights.insert(listed.address.clone(), *weight);
            }
        }
        let report = &inherited.report;
        if let Some(counted) = report.service_counts.get(name) {
            add_to_service(&state.service.counters, counted);
        }
        let places = self.elsewhere(|report| &report.services, name);
        state.service.places.set_elsewhere(places);
        let totals = Totals::of_service(&state.service);
        state.history.resume(known.history.clone(), totals);
    }

    fn check_all_listen(&self) -> Result<(), WorldError> {
        for state in &self.services {
            if state.listening.len() < state.plan.listen.len() {
                return Err(WorldError::NotAccepting {
                    service: state.plan.name.clone(),
                });
            }
        }
        Ok(())
    }

    fn own_sockets(&mut self) {
        for state in &mut self.services {
            state
                .listening
                .iter_mut()
                .for_each(|listening| listening.make_own());
        }
    }

    pub(in crate::world) fn hear_predecessor(&mut self, said: FromPredecessor) {
        match said {
            FromPredecessor::Report { pid, report } => {
                self.add_counts(pid, &report);
                let mut known = self.upgrades.predecessors.iter_mut();
                if let Some(known) = known.find(|known| known.pid == pid) {
                    known.report.follow(*report);
                }
            }
            FromPredecessor::Gone { pid } => {
                self.upgrades.predecessors.retain(|known| known.pid != pid);
                let what = format!("process {pid} has ended");
                self.tell(News::new(EventKind::Process, Severity::Info, what));
            }
        }
        self.count_elsewhere();
    }

    /// What other processes have of each limit, anew.
    pub(in crate::world) fn count_elsewhere(&self) {
        for state in &self.services {
            let places = self.elsewhere(|report| &report.services, &state.plan.name);
            state.service.places.set_elsewhere(places);
        }
        for (address, state) in &self.servers {
            let places = self.elsewhere(|report| &report.servers, &address.to_string());
            self.engine.set_elsewhere(&state.server, places);
        }
    }

    fn elsewhere(&self, of: fn(&Report) -> &BTreeMap<String, u32>, key: &str) -> u32 {
        let draining = self.upgrades.predecessors.iter();
        let reports = draining.map(|known| &known.report);
        let all = reports.chain([&self.upgrades.inherited.report]);
        let places = all.filter_map(|report| of(report).get(key));
        places.fold(0, |sum: u32, places| sum.saturating_add(*places))
    }

    /// Totals go on growing with what the old process counts to its end.
    fn add_counts(&self, pid: u32, report: &Report) {
        let mut known = self.upgrades.predecessors.iter();
        let Some(known) = known.find(|known| known.pid == pid) else {
            return;
        };
        let nothing = Counted::default();
        for state in &self.services {
            let name = &state.plan.name;
            if let Some(now) = report.service_counts.get(name) {
                let before = known.report.service_counts.get(name).unwrap_or(&nothing);
                add_to_service(&state.service.counters, &now.since(before));
            }
        }
        for (address, state) in &self.servers {
            let address = address.to_string();
            if let Some(now) = report.server_counts.get(&address) {
                let before = known.report.server_counts.get(&address).unwrap_or(&nothing);
                add_to_server(&state.server.counters, &now.since(before));
            }
        }
    }
}

fn resume_server(state: &mut ServerState, known: &ServerHandover, report: &Report) {
    let now_ms = now_ms();
    // Our clock begins with our process: what was before it is at its zero.
    let ago = |age_ms: u64| now_ms.saturating_sub(age_ms);
    let standing = match known.standing.as_str() {
        "up" => Standing::Up,
        "down" => Standing::Down,
        _ => Standing::Starting,
    };
    let since_ms = ago(known.standing_for_ms);
    state
        .health
        .resume(standing, since_ms, known.reason.clone());
    state.last_probe.clone_from(&known.last_probe);
    state.back_since_ms = known.back_for_ms.map(ago);
    state.drain = known.drain.as_ref().map(|drain| Drain {
        since_ms: ago(drain.since_ms),
        until_ms: now_ms.saturating_add(drain.left_ms),
        cut_again_ms: None,
    });
    if state.server.endpoints().is_empty() {
        // Until our own look-up has an answer.
        let resolved = known.resolved.iter().filter_map(|text| endpoint(text));
        state.server.set_endpoints(resolved.collect());
    }
    if let Some(counted) = report.server_counts.get(&known.address) {
        add_to_server(&state.server.counters, counted);
    }
    let totals = Totals::of_server(&state.server);
    state.history.resume(known.history.clone(), totals);
}

fn endpoint(text: &str) -> Option<Endpoint> {
    match text.strip_prefix("unix:") {
        Some(path) => Some(Endpoint::Unix(path.into())),
        None => text.parse().ok().map(Endpoint::Tcp),
    }
}
