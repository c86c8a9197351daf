//! Runs MySQL Router with a fixed list of servers and connection pass-through.

use std::net::SocketAddr;

use anyhow::Result;

use super::room::{self, Workspace};
use super::{Rival, WORKERS, files_max, joined};
use crate::procfs;

/// MySQL Router, round robin, two threads.
pub struct MysqlRouter(Rival);

impl MysqlRouter {
    /// Starts MySQL Router in front of these servers; `None` if it is not installed.
    pub fn start(servers: &[SocketAddr], listen: SocketAddr) -> Result<Option<MysqlRouter>> {
        let Some(program) = room::program("mysqlrouter") else {
            return Ok(None);
        };
        let workspace = Workspace::new("mysqlrouter")?;
        let directory = workspace.path().display();
        let config = format!(
            "[DEFAULT]\nruntime_folder = {directory}\ndata_folder = {directory}\n\
             logging_folder =\n\
             [logger]\nlevel = WARNING\n[io]\nthreads = {WORKERS}\n\
             [routing:servers]\nbind_address = {}\nbind_port = {}\ndestinations = {}\n\
             routing_strategy = round-robin\nprotocol = classic\nmax_connections = {}\n\
             client_ssl_mode = PASSTHROUGH\nserver_ssl_mode = AS_CLIENT\n",
            listen.ip(),
            listen.port(),
            joined(servers, ","),
            files_max() / 2 - 100,
        );
        let file = workspace.write("mysqlrouter.conf", &config)?;
        let launch = workspace.launch(program, &["--config", &file]);
        let rival = Rival::start("mysqlrouter", launch, workspace.scratch, listen)?;
        Ok(Some(MysqlRouter(rival)))
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
