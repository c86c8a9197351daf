//! `evenkeel-lab attack`: hostile requests through the balancer to several servers.
//!
//! The number and content of the requests that a server sees must equal those of the strict reading
//! of what the client has sent, or there must be none. Other clients must get their own responses.

mod inputs;
mod origin;
mod reference;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::{row, table};
pub use inputs::{Input, all};
pub use origin::{Kind, Origin, Record};
pub use reference::{Request, read};
pub use run::{Row, Verdict, run};

/// Options of the command.
#[derive(Args)]
pub struct Options {
    /// Servers; all that are installed when absent.
    #[arg(long, value_enum, value_delimiter = ',')]
    origin: Vec<Kind>,
    /// Only inputs whose name contains this text.
    #[arg(long)]
    only: Option<String>,
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
    let mut inputs = all();
    if let Some(text) = &options.only {
        inputs.retain(|input| input.name.contains(text));
    }
    let kinds = match options.origin.as_slice() {
        [] => Kind::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    let mut rows = vec![row![
        "input", "origin", "strict", "seen", "answer", "verdict"
    ]];
    let mut totals = vec![row!["origin", "inputs", "exact", "refused", "faults"]];
    let mut is_clean = true;
    for kind in kinds {
        let origin = match Origin::start(kind) {
            Ok(origin) => origin,
            Err(error) => {
                eprintln!("skipped: {kind:?}: {error:#}");
                continue;
            }
        };
        let results = run(&options.io, &origin, &inputs)?;
        let count =
            |is: fn(&Verdict) -> bool| results.iter().filter(|row| is(&row.verdict)).count();
        let faults = count(|verdict| matches!(verdict, Verdict::Fault(_)));
        is_clean &= faults == 0;
        totals.push(row![
            format!("{kind:?}"),
            inputs.len(),
            count(|verdict| *verdict == Verdict::Exact),
            count(|verdict| *verdict == Verdict::Refused),
            faults,
        ]);
        let shown = results
            .into_iter()
            .filter(|row| options.all || matches!(row.verdict, Verdict::Fault(_)));
        rows.extend(shown.map(|result| {
            let verdict = match result.verdict {
                Verdict::Exact => "exact".to_owned(),
                Verdict::Refused => "refused".to_owned(),
                Verdict::Fault(why) => format!("FAULT: {why}"),
            };
            row![
                result.name,
                format!("{kind:?}"),
                result.expected,
                result.seen,
                result.answer,
                verdict
            ]
        }));
    }
    if rows.len() > 1 {
        println!("{}", table::columns(&rows));
    }
    println!("{}", table::columns(&totals));
    Ok(match is_clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
