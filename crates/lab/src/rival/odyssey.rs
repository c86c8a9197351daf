//! Runs Odyssey, which pools connections by transaction on several threads.

use std::net::SocketAddr;

use anyhow::Result;

use super::room::{self, Workspace};
use super::{Rival, WORKERS, files_max};
use crate::procfs;

/// Odyssey with two workers.
pub struct Odyssey(Rival);

impl From<Odyssey> for Rival {
    fn from(rival: Odyssey) -> Rival {
        rival.0
    }
}

impl Odyssey {
    /// Starts Odyssey for the account `sbtest`; `None` if it is not installed. Given several
    /// servers, it uses any that answers.
    pub fn start(servers: &[SocketAddr], listen: SocketAddr) -> Result<Option<Odyssey>> {
        let Some(program) = room::program("odyssey") else {
            return Ok(None);
        };
        let workspace = Workspace::new("odyssey")?;
        let file = workspace.write("odyssey.conf", &config(&workspace, servers, listen))?;
        let launch = workspace.launch(program, &[&file]);
        let rival = Rival::start("odyssey", launch, workspace.scratch, listen)?;
        Ok(Some(Odyssey(rival)))
    }

    /// Returns the process id.
    pub fn pids(&self) -> Vec<u32> {
        self.0.process.pids()
    }

    /// Returns the processor time, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }
}

fn config(workspace: &Workspace, servers: &[SocketAddr], listen: SocketAddr) -> String {
    let hosts: Vec<String> = servers
        .iter()
        .map(|server| format!("[{}]:{}", server.ip(), server.port()))
        .collect();
    let directory = workspace.path().display();
    let pool = "    pool \"transaction\"\n    pool_size 20\n    pool_discard no\n    \
                pool_reserve_prepared_statement yes\n";
    format!(
        "daemonize no\nlog_to_stdout yes\nlog_format \"%p %t %l %m\\n\"\n\
         log_session no\nlog_stats no\nlog_query no\nlog_debug no\nlog_config no\n\
         unix_socket_dir \"{directory}\"\nunix_socket_mode \"0600\"\nlocks_dir \"{directory}\"\n\
         workers {WORKERS}\nresolvers 1\nclient_max {}\n\
         listen {{\n  host \"{}\"\n  port {}\n  backlog 4096\n}}\n\
         storage \"servers\" {{\n  type \"remote\"\n  host \"{}\"\n}}\n\
         database default {{\n  user \"sbtest\" {{\n    authentication \"scram-sha-256\"\n    \
         password \"sbtest\"\n    storage \"servers\"\n    storage_user \"sbtest\"\n    \
         storage_password \"sbtest\"\n{pool}  }}\n}}\n",
        files_max() - 200,
        listen.ip(),
        listen.port(),
        hosts.join(","),
    )
}
