//! Determines versions, as programs report them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::experiment::{Speech, Tool};
use super::topology::Topology;
use crate::balancer::find_binary;
use crate::web::WebProgram;
use crate::{process, rootfs, tool};

/// Returns the first line with a digit in the program's output.
pub(crate) fn version_line(program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    process::plain_environment(&mut command);
    let Ok(output) = command.args(arguments).output() else {
        return String::new();
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains(|c: char| c.is_ascii_digit()));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns the version of a package in the rivals' root file system.
pub(crate) fn of_package(name: &str) -> String {
    rootfs::version(name).map_or_else(String::new, |version| format!("{name} {version}"))
}

pub(crate) fn of_evenkeel() -> String {
    find_binary().map_or_else(
        |_| String::new(),
        |path| version_line(&path, &["--version"]),
    )
}

/// Returns the servers' versions, by the name of their kind.
pub(crate) fn of_servers(topology: &Topology) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Some(first) = topology.servers().first() else {
        return found;
    };
    let (name, version) = match topology.speech {
        Speech::Mysql => ("MariaDB or MySQL", first.sql("SELECT @@version").ok()),
        Speech::Postgres => ("PostgreSQL", first.sql("SHOW server_version").ok()),
        Speech::Http => {
            let (name, program) = match topology.web {
                WebProgram::Nginx => ("web servers", "nginx"),
                WebProgram::Apache => ("web servers, Apache", "apache2"),
            };
            let version = tool::find(program).map(|path| version_line(&path, &["-v"]));
            (name, version.ok())
        }
    };
    let name = match &version {
        Some(version) if version.contains("MariaDB") => "MariaDB",
        Some(_) if topology.speech == Speech::Mysql => "MySQL",
        _ => name,
    };
    if let Some(version) = version {
        found.insert(name.to_owned(), version);
    }
    found
}

/// Returns the version of a load generator.
pub(crate) fn of_tool(tool: Tool) -> Option<(String, String)> {
    let (name, path, argument) = match tool {
        Tool::Sysbench => ("sysbench", tool::find("sysbench"), "--version"),
        Tool::Pgbench => ("pgbench", tool::find_postgres("pgbench"), "--version"),
        Tool::Ab => ("ab", tool::find("ab"), "-V"),
        Tool::Wrk => ("wrk", tool::find("wrk"), "-v"),
        Tool::Httperf => ("httperf", tool::find("httperf"), "--version"),
        Tool::Command => return None,
    };
    Some((name.to_owned(), version_line(&path.ok()?, &[argument])))
}
