//! Measures repeated changes of primary, as seen by clients of the read-write and the read-only
//! port.

mod events;
mod rig;
mod tally;
mod trial;

use anyhow::Result;
use clap::ValueEnum;
use evenkeel_lab::scenario::How;
use evenkeel_lab::{ClusterKind, Scenario};

use super::Options;
use crate::stop::Stop;
use crate::{row, table};
use rig::Rig;
use tally::{Tally, heading};

/// Limit in ms from a writable primary to the first write through Evenkeel.
const BAR_MS: u128 = 500;

/// A kind of cluster, as the command line names it.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Mariadb,
    Mysql,
    Postgres,
    Galera,
    GroupReplication,
}

impl Kind {
    fn cluster(self) -> ClusterKind {
        match self {
            Kind::Mariadb => ClusterKind::Mariadb,
            Kind::Mysql => ClusterKind::Mysql,
            Kind::Postgres => ClusterKind::Postgres,
            Kind::Galera => ClusterKind::Galera,
            Kind::GroupReplication => ClusterKind::GroupReplication,
        }
    }
}

/// Measures each kind: planned changes, then deaths of the primary.
pub(crate) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let wanted = |kind: &&Kind| options.kind.is_empty() || options.kind.contains(kind);
    let mut rows = vec![heading()];
    let mut skipped = Vec::new();
    for kind in Kind::value_variants().iter().filter(wanted) {
        let kind = kind.cluster();
        match kind.missing() {
            Some(why) => skipped.push(row![kind.name(), "skipped:", why]),
            None => rows.extend(one_kind(kind, options.trials, stop)?),
        }
    }
    println!(
        "Primary failovers with default settings; a write every 10 ms, a read on a new connection \
         every 20 ms\n{}{}",
        table::columns(&rows),
        table::columns(&skipped)
    );
    Ok(())
}

fn one_kind(kind: ClusterKind, trials: usize, stop: &Stop) -> Result<Vec<Vec<String>>> {
    let rig = Rig::start(Scenario::start(kind)?)?;
    let mut rows = Vec::new();
    for how in [How::Planned, How::Killed] {
        let mut tally = Tally::default();
        for number in 1..=trials {
            stop.check()?;
            let trial = rig.trial(how)?;
            eprintln!("{} {how:?} {number} of {trials}: {trial}", kind.name());
            tally.add(trial);
        }
        rows.push(tally.row(kind.name(), how));
    }
    rig.finish()?;
    Ok(rows)
}
