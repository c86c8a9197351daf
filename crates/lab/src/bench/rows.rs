//! Creates the rows of the results from an experiment's file, before anything has run.

use super::experiment::{Effort, Load, Program, Sweep, Target, Tool};
use super::outcome::{self, Loop};

pub(crate) fn of_target(target: &Target) -> outcome::Target {
    let title = if target.title.is_empty() {
        &target.name
    } else {
        &target.title
    };
    outcome::Target {
        name: target.name.clone(),
        title: title.clone(),
        program: program(target.program).to_owned(),
        servers: target.servers.unwrap_or(1) as u32,
        missing: Some("not run".to_owned()),
        ..outcome::Target::default()
    }
}

/// Returns the program's name in the report; empty for a direct connection.
fn program(program: Program) -> &'static str {
    match program {
        Program::Direct | Program::OwnRoundRobin => "",
        Program::Evenkeel => "evenkeel",
        Program::Haproxy => "haproxy",
        Program::Nginx => "nginx",
        Program::MysqlRouter => "mysql-router",
        Program::Pgpool => "pgpool",
        Program::Pgbouncer => "pgbouncer",
        Program::Odyssey => "odyssey",
        Program::Glb => "glb",
        Program::Proxysql => "proxysql",
        Program::Maxscale => "maxscale",
        Program::MysqlProxy => "mysql-proxy",
        Program::Ipvs => "ipvs",
        Program::Command => "command",
    }
}

pub(crate) fn of_load(load: &Load, effort: &Effort) -> outcome::Load {
    let title = if load.title.is_empty() {
        &load.name
    } else {
        &load.title
    };
    let is_sql = matches!(load.tool, Tool::Sysbench | Tool::Pgbench);
    outcome::Load {
        name: load.name.clone(),
        title: title.clone(),
        tool: format!("{:?}", load.tool).to_lowercase(),
        command: String::new(),
        kind: match load.sweep {
            Sweep::Rate => Loop::Open,
            _ => Loop::Closed,
        },
        counted: if is_sql { "transactions" } else { "requests" }.to_owned(),
        axis: match load.sweep {
            Sweep::Threads => "threads",
            Sweep::Connections => "connections",
            Sweep::Rate => "offered rate (requests/s)",
            Sweep::Requests => "requests in all",
        }
        .to_owned(),
        seconds: f64::from(effort.seconds),
    }
}

/// Returns the row of this load's open-loop companion.
pub(crate) fn of_companion(load: &Load, effort: &Effort) -> outcome::Load {
    let title = if load.title.is_empty() {
        &load.name
    } else {
        &load.title
    };
    outcome::Load {
        name: format!("{}-open", load.name),
        title: format!("{title}, open loop"),
        tool: match load.tool {
            Tool::Ab => "built in".to_owned(),
            tool => format!("{tool:?}").to_lowercase(),
        },
        command: String::new(),
        kind: Loop::Open,
        counted: match load.tool {
            Tool::Sysbench | Tool::Pgbench => "transactions",
            _ => "requests",
        }
        .to_owned(),
        axis: "offered rate (% of the target's own peak)".to_owned(),
        seconds: f64::from(effort.seconds),
    }
}
