//! Runs trials of a cluster's servers: the fate of writes through a target that follows the
//! primary.

mod trial;

use anyhow::{Context, Result};

use super::super::experiment::{Fault, Program, Target};
use super::super::outcome::Experiment;
use super::super::part::TestBed;
use super::super::runner::Runner;
use super::super::target::{self, Front, Started};
use super::{Contestant, Seen, note_start};
use crate::Scenario;
use trial::Trial;

/// A target in front of servers that elect a primary or have one assigned.
struct Writing<'a> {
    scenario: &'a Scenario,
    front: Front,
}

impl Contestant for Writing<'_> {
    fn name(&self) -> &str {
        &self.front.name
    }

    fn trial(&mut self, fault: &Fault) -> Result<Seen> {
        let trial = Trial {
            scenario: self.scenario,
            front: &self.front,
            fault,
        };
        trial.run()
    }

    /// Restores the state before a trial: all servers run with all rows, and the first accepts
    /// writes. Balancers without cluster support send the writes there.
    fn settle(&mut self) -> Result<()> {
        let scenario = self.scenario;
        for server in scenario
            .servers
            .iter()
            .filter(|server| !server.is_running())
        {
            scenario.bring_back(server)?;
        }
        scenario.wait_caught_up()?;
        scenario
            .hand_back()
            .context("the first server's return as primary")?;
        scenario.wait_caught_up()
    }
}

/// Returns whether the target can be tested. Direct connections have no alternative server, and
/// nginx does not check whether a server accepts writes.
pub(super) fn can_be_tried(target: &Target) -> bool {
    !matches!(
        target.program,
        Program::Direct
            | Program::OwnRoundRobin
            | Program::Nginx
            | Program::Glb
            | Program::Proxysql
            | Program::Maxscale
            | Program::MysqlProxy
            | Program::Ipvs
    )
}

/// Starts the targets again, configured to follow the primary; returns none if no server can take
/// over writes.
pub(super) fn contestants<'a>(
    wanted: &[&Target],
    bed: &'a TestBed,
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Vec<Box<dyn Contestant + 'a>> {
    let mut all: Vec<Box<dyn Contestant + 'a>> = Vec::new();
    let Some(scenario) = bed.topology.scenario() else {
        let part = &bed.part.name;
        let note = format!("{part}: no fault trials: no balancer here takes over writes");
        if !experiment.notes.contains(&note) {
            experiment.notes.push(note);
        }
        return all;
    };
    for target in wanted {
        match target::start(target, &bed.topology, true) {
            Ok(Started::Front(front)) => {
                note_start(&front, experiment);
                all.push(Box::new(Writing {
                    scenario,
                    front: *front,
                }));
            }
            Ok(Started::Missing(_)) => {}
            Err(error) => {
                let at = format!("the start of {} for fault trials", target.name);
                runner.fail(experiment, &at, &format!("{error:#}"));
            }
        }
    }
    all
}
