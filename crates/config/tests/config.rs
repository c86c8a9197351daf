//! Tests the config file: the messages for invalid files, and the plan of valid ones.

#[path = "config/acme.rs"]
mod acme;
#[path = "config/clusters.rs"]
mod clusters;
#[path = "config/documentation.rs"]
mod documentation;
#[path = "config/files.rs"]
mod files;
#[path = "config/messages.rs"]
mod messages;
#[path = "config/mysql.rs"]
mod mysql;
#[path = "config/postgres.rs"]
mod postgres;
#[path = "config/probes.rs"]
mod probes;
#[path = "config/reference.rs"]
mod reference;
#[path = "config/routes.rs"]
mod routes;
#[path = "config/rules.rs"]
mod rules;
#[path = "config/schema.rs"]
mod schema;
#[path = "config/tls_routes.rs"]
mod tls_routes;
#[path = "config/users.rs"]
mod users;
#[path = "config/validator.rs"]
mod validator;
#[path = "config/wrong.rs"]
mod wrong;

use std::path::Path;

use evenkeel_config::plan::Plan;
use evenkeel_config::{ReportedProblem, Sources, parse};

/// Returns a valid service; `lines` begin in line 5.
fn service(lines: &str) -> String {
    let head = "[[service]]\nname = \"a\"\nlisten = \"127.0.0.1:3306\"\n";
    format!("{head}servers = [\"db1:3306\", \"db2:3306\"]\n{lines}")
}

/// Returns a valid PostgreSQL service; `lines` begin in line 6.
fn postgres(lines: &str) -> String {
    let monitor = "[service.monitor]\nuser = \"m\"\n";
    service(&format!("protocol = \"postgres\"\n{lines}\n{monitor}"))
}

fn load(text: &str) -> (Option<Plan>, Vec<ReportedProblem>) {
    let loaded = parse(text, Some(Path::new("evenkeel.toml")), &Sources::default());
    let problems = loaded.problems.reported();
    let errors = problems.iter().any(|problem| problem.severity == "error");
    assert_eq!(
        loaded.plan.is_none(),
        errors,
        "a plan exactly when no error: {problems:#?}"
    );
    schema::compare_with_check(text, !errors, &problems);
    (loaded.plan, problems)
}

/// Returns the plan of a file without any problem.
fn plan(text: &str) -> Plan {
    match load(text) {
        (Some(plan), problems) if problems.is_empty() => plan,
        (_, problems) => panic!("{text}\n{problems:#?}"),
    }
}

/// Returns `CODE line:column`, or `CODE -` without a place.
fn code_and_place(problem: &ReportedProblem) -> String {
    match (problem.line, problem.column) {
        (Some(line), Some(column)) => format!("{} {line}:{column}", problem.code),
        _ => format!("{} -", problem.code),
    }
}
