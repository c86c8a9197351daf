//! Measures the cost of a MariaDB query through services that forward TCP.

use anyhow::Result;
use evenkeel_lab::{Driver, Lab};

use super::Options;
use super::blocks::{Comparison, Target, interleaved};
use super::front::{ALL, Front, Kind};
use super::selects::{self, FORMS, METRICS};
use crate::stop::Stop;

/// Measures with two independent MariaDB servers and sysbench's prepared point selects.
pub(crate) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("speed")?;
    let servers = lab.mariadb_stand_alone(2, Some(options.rows))?;
    stop.check()?;
    let fronts = Front::start_all(&ALL, &servers, options)?;
    let (_, prepared) = FORMS[0];
    for clients in &options.clients {
        let title = format!("MariaDB point selects over TCP services, {clients} clients");
        let comparison = Comparison {
            title: &title,
            metrics: METRICS,
            rival: Kind::Nginx.name(),
            blocks: options.blocks,
        };
        let mut targets: Vec<Target> = fronts
            .iter()
            .map(|front| {
                let to = (Driver::Mysql, front.address);
                let load = selects::load(to, prepared, *clients, options);
                selects::target(&front.name, || front.cpu_us(), load)
            })
            .collect();
        interleaved(&comparison, &mut targets, stop)?;
    }
    Ok(())
}
