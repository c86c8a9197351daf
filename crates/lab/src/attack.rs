//! `evenkeel-lab attack`: hostile requests through the balancer to several servers.
//!
//! The number and content of the requests that a server sees must equal those of the strict reading
//! of what the client has sent, or there must be none. Other clients must get their own responses.

pub mod frames;
mod inputs;
mod origin;
mod proxy;
mod reference;
mod responses;
mod run;
mod tap;
mod through;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::{row, table};
pub use inputs::{Input, all, all_http2};
pub use origin::{Kind, Origin, Record};
pub use proxy::{Proxy, ProxyKind};
pub use reference::{Request, read};
pub use run::{Row, Verdict, run};
pub use through::run_through;

/// Options of the command.
#[derive(Args)]
pub struct Options {
    /// Servers; all that are installed when absent, one of them for proxies.
    #[arg(long, value_enum, value_delimiter = ',')]
    origin: Vec<Kind>,
    /// Proxies in front of the balancer.
    #[arg(long, value_enum, value_delimiter = ',')]
    front: Vec<ProxyKind>,
    /// Only inputs whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Send the inputs of HTTP/2.
    #[arg(long, conflicts_with = "front")]
    http2: bool,
    /// Driver of the balancer.
    #[arg(long, default_value = "auto")]
    io: String,
    /// Print all rows, not only faults.
    #[arg(long)]
    all: bool,
}

/// Runs the command: prints a table, and fails if there is a fault.
///
/// # Errors
/// A server or the balancer does not start.
pub fn command(options: &Options) -> Result<ExitCode> {
    let mut inputs = if options.http2 { all_http2() } else { all() };
    if let Some(text) = &options.only {
        inputs.retain(|input| input.name.contains(text));
    }
    let mut report = Report::new(options.all);
    if options.front.is_empty() {
        let kinds = match options.origin.as_slice() {
            [] => &Kind::ALL,
            chosen => chosen,
        };
        for kind in kinds {
            let rows = Origin::start(*kind).map(|origin| run(&options.io, &origin, &inputs));
            report.add(&format!("{kind:?}"), &inputs, rows)?;
        }
    }
    for proxy in &options.front {
        let kind = options.origin.first().copied().unwrap_or(Kind::Node);
        let name = format!("{proxy:?} before {kind:?}");
        let rows = Origin::start(kind);
        let rows = rows.map(|origin| run_through(&options.io, *proxy, &origin, &inputs));
        report.add(&name, &inputs, rows)?;
    }
    Ok(report.print())
}

/// Results of all servers.
struct Report {
    shows_all: bool,
    rows: Vec<Vec<String>>,
    totals: Vec<Vec<String>>,
    has_faults: bool,
}

impl Report {
    fn new(shows_all: bool) -> Report {
        Report {
            shows_all,
            rows: vec![row![
                "input", "server", "strict", "seen", "answer", "verdict"
            ]],
            totals: vec![row!["server", "inputs", "exact", "refused", "faults"]],
            has_faults: false,
        }
    }

    /// Adds the results of a server; one that does not start is named and left out.
    fn add(&mut self, name: &str, inputs: &[Input], rows: Result<Result<Vec<Row>>>) -> Result<()> {
        let results = match rows {
            Ok(results) => results?,
            Err(error) => {
                eprintln!("skipped: {name}: {error:#}");
                return Ok(());
            }
        };
        let count =
            |is: fn(&Verdict) -> bool| results.iter().filter(|row| is(&row.verdict)).count();
        let faults = count(|verdict| matches!(verdict, Verdict::Fault(_)));
        self.has_faults |= faults > 0;
        self.totals.push(row![
            name,
            inputs.len(),
            count(|verdict| *verdict == Verdict::Exact),
            count(|verdict| *verdict == Verdict::Refused),
            faults,
        ]);
        let is_shown = |row: &Row| self.shows_all || matches!(row.verdict, Verdict::Fault(_));
        let shown = results.into_iter().filter(is_shown);
        self.rows.extend(shown.map(|result| {
            let verdict = match result.verdict {
                Verdict::Exact => "exact".to_owned(),
                Verdict::Refused => "refused".to_owned(),
                Verdict::Fault(why) => format!("FAULT: {why}"),
            };
            row![
                result.name,
                name,
                result.expected,
                result.seen,
                result.answer,
                verdict
            ]
        }));
        Ok(())
    }

    fn print(self) -> ExitCode {
        if self.rows.len() > 1 {
            println!("{}", table::columns(&self.rows));
        }
        println!("{}", table::columns(&self.totals));
        match self.has_faults {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        }
    }
}
