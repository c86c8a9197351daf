//! Runs trials of a balancer: the active one of two identical balancers with a shared address
//! fails.

mod machine;
mod trial;

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::super::experiment::{Fault, Program, Target};
use super::super::outcome::Experiment;
use super::super::part::TestBed;
use super::super::runner::Runner;
use super::super::topology::Topology;
use super::super::versions;
use super::{Contestant, Seen, note_start};
use crate::keepalived::KeepalivedOptions;
use crate::network::{Link, has_address};
use crate::{eventually, free_port, tool};
use machine::Machine;
use trial::Trial;

/// Limit for the shared address to reach the expected machine.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(30);

/// Two machines, each with a balancer and a Keepalived.
struct Pair<'a> {
    target: &'a Target,
    page: &'a str,
    shared: SocketAddr,
    active: Machine<'a>,
    standby: Machine<'a>,
}

/// Returns whether the lab can set up the target's program twice.
pub(super) fn can_be_tried(target: &Target) -> bool {
    matches!(
        target.program,
        Program::Evenkeel | Program::Haproxy | Program::Nginx
    )
}

/// Starts all pairs in front of the same servers in namespaces; returns none where that is
/// impossible.
pub(super) fn contestants<'a>(
    (fault, wanted): (&Fault, &[&'a Target]),
    bed: &TestBed<'a>,
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Vec<Box<dyn Contestant + 'a>> {
    let mut all: Vec<Box<dyn Contestant + 'a>> = Vec::new();
    if wanted.is_empty() {
        return all;
    }
    let part = bed.part;
    let servers = match servers(bed) {
        Ok(servers) => Rc::new(servers),
        Err(error) => {
            let note = format!("{}: no trials of balancers: {error:#}", part.name);
            if !experiment.notes.contains(&note) {
                experiment.notes.push(note);
            }
            return all;
        }
    };
    if let Ok(path) = tool::find("keepalived") {
        let version = versions::version_line(&path, &["--version"]);
        runner.note_versions([("Keepalived".to_owned(), version)].into());
    }
    let page = part.load.first().map_or("/", |load| load.path());
    for target in wanted {
        match Pair::start(target, page, &servers, fault) {
            Ok(pair) => {
                if let Some(front) = pair.active.front() {
                    note_start(front, experiment);
                }
                all.push(Box::new(pair));
            }
            Err(error) => {
                let at = format!("the start of two of {} for fault trials", target.name);
                runner.fail(experiment, &at, &format!("{error:#}"));
            }
        }
    }
    all
}

/// Starts the part's servers again, reachable from two balancers' machines.
fn servers(bed: &TestBed) -> Result<Topology> {
    tool::find("keepalived").context("not installed")?;
    let servers = &bed.part.servers;
    let topology = Topology::in_namespaces(servers, servers.rows(bed.depth))?;
    if topology.network().is_none() {
        bail!("{}", topology.notes.join("; "));
    }
    Ok(topology)
}

impl<'a> Pair<'a> {
    fn start(
        target: &'a Target,
        page: &'a str,
        servers: &Rc<Topology>,
        fault: &Fault,
    ) -> Result<Pair<'a>> {
        let network = servers.network().context("there are no namespaces")?;
        let links = [network.link(), network.link()];
        let [local, peer] = links.each_ref().map(Link::address);
        let shared = SocketAddr::from((network.spare_address(), free_port()));
        let [active, standby] = links.map(|link| {
            let is_active = link.address() == local;
            let options = KeepalivedOptions {
                namespace: link.namespace(),
                local: link.address(),
                peer: if is_active { peer } else { local },
                shared: address(shared),
                is_active,
                advert_ms: fault.advert_ms,
            };
            Machine::start(target, servers, (link, shared.port()), &options)
        });
        let pair = Pair {
            target,
            page,
            shared,
            active: active.context("the active one")?,
            standby: standby.context("the standby")?,
        };
        pair.wait_settled()?;
        Ok(pair)
    }

    /// Waits until the active machine has the address and the standby has not.
    fn wait_settled(&self) -> Result<()> {
        let has = |machine: &Machine| has_address(&machine.namespace(), address(self.shared));
        eventually(
            ARRIVAL_LIMIT,
            "the shared address at the active one",
            || Ok((has(&self.active) && !has(&self.standby)).then_some(())),
        )
        .with_context(|| {
            let (active, standby) = (self.active.log_tail(), self.standby.log_tail());
            format!("the active one said:\n{active}\nthe standby:\n{standby}")
        })
    }
}

impl Contestant for Pair<'_> {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn trial(&mut self, fault: &Fault) -> Result<Seen> {
        Trial { pair: self, fault }.run()
    }

    /// Starts both machines and waits until the first has the address.
    fn settle(&mut self) -> Result<()> {
        self.active.come_back()?;
        self.standby.come_back()?;
        self.wait_settled()
    }
}

fn address(shared: SocketAddr) -> Ipv4Addr {
    match shared {
        SocketAddr::V4(shared) => *shared.ip(),
        SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}
