//! Implements `evenkeel check`: reports the problems of a config file.

use std::collections::BTreeSet;
use std::process::ExitCode;

use evenkeel_config::plan::Plan;
use evenkeel_config::{Problems, Severity, Style};

use super::CheckArgs;

pub(super) fn check(args: &CheckArgs) -> ExitCode {
    let loaded = evenkeel_config::load(&args.config);
    if args.json {
        print_json(&loaded.problems);
    } else {
        eprint!("{}", loaded.problems.render(Style::for_stderr()));
        match &loaded.plan {
            Some(plan) => println!("{}: OK: {}", args.config.display(), summary(plan)),
            None => eprintln!("{}: {}", args.config.display(), counted(&loaded.problems)),
        }
    }
    if loaded.plan.is_some() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print_json(problems: &Problems) {
    // Strings and numbers always have a JSON form.
    let json = serde_json::to_string_pretty(&problems.reported()).unwrap_or_default();
    println!("{json}");
}

fn summary(plan: &Plan) -> String {
    let listed = plan.services.iter().flat_map(|service| &service.servers);
    let addresses: BTreeSet<_> = listed.map(|server| &server.address).collect();
    format!(
        "{}, {}",
        number(plan.services.len(), "service"),
        number(addresses.len(), "server")
    )
}

fn counted(problems: &Problems) -> String {
    let errors = number(problems.count(Severity::Error), "error");
    match problems.count(Severity::Warning) {
        0 => errors,
        warnings => format!("{errors}, {}", number(warnings, "warning")),
    }
}

fn number(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
