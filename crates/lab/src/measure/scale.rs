//! Measures the control plane with 10,000 servers in one service and with 1,000 services of three.

use anyhow::Result;
use evenkeel_lab::scale::{self, Size};

use super::Options;
use super::program::programs;
use crate::stop::Stop;
use crate::table::columns;

/// Prints the figures, and returns whether each keeps its limit.
pub(crate) fn measure(options: &Options, stop: &Stop) -> Result<bool> {
    let sizes = [
        Size {
            services: 1,
            servers: options.servers,
        },
        Size {
            services: options.services,
            servers: 3,
        },
    ];
    let programs = programs(&[()], |()| "evenkeel", options);
    let mut is_kept = true;
    for size in sizes {
        for program in &programs {
            stop.check()?;
            let figures = scale::measure(size, program.binary.clone())?;
            is_kept &= !figures.iter().any(|figure| figure.is_missed(1.0));
            let Size { services, servers } = size;
            let name = &program.name;
            println!("{name}: services: {services}, servers of each: {servers}\n");
            let mut rows = vec![crate::row!["", "value", "limit", ""]];
            rows.extend(figures.iter().map(scale::Figure::row));
            println!("{}", columns(&rows));
        }
    }
    Ok(is_kept)
}
