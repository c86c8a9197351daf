//! Runs PgBouncer, which pools connections by transaction, with prepared statements.

use std::net::SocketAddr;

use anyhow::Result;

use super::room::{self, Workspace};
use super::{Rival, files_max};
use crate::procfs;

/// PgBouncer in front of one server, in one process: it has a single thread.
pub struct Pgbouncer(Rival);

impl From<Pgbouncer> for Rival {
    fn from(rival: Pgbouncer) -> Rival {
        rival.0
    }
}

impl Pgbouncer {
    /// Starts PgBouncer in transaction mode for the accounts `sbtest` and `postgres`; `None` if it
    /// is not installed.
    pub fn start(server: SocketAddr, listen: SocketAddr) -> Result<Option<Pgbouncer>> {
        Pgbouncer::start_in("transaction", server, listen)
    }

    /// Starts PgBouncer like [`Pgbouncer::start`], in this `pool_mode`.
    pub fn start_in(
        mode: &str,
        server: SocketAddr,
        listen: SocketAddr,
    ) -> Result<Option<Pgbouncer>> {
        let Some(program) = room::program("pgbouncer") else {
            return Ok(None);
        };
        let workspace = Workspace::new("pgbouncer")?;
        let accounts = [
            ("sbtest", "sbtest"),
            ("postgres", "postgres"),
            ("pqgo", "postgres"),
        ];
        let accounts = accounts.map(|(name, password)| format!("\"{name}\" \"{password}\"\n"));
        let accounts = workspace.write("users", &accounts.concat())?;
        let config = format!(
            "[databases]\n* = host={} port={}\n\
             [pgbouncer]\nlisten_addr = {}\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {accounts}\n\
             pool_mode = {mode}\ndefault_pool_size = 20\nmax_prepared_statements = 200\n\
             ignore_startup_parameters = extra_float_digits\n\
             max_client_conn = {}\nlog_connections = 0\nlog_disconnections = 0\n",
            server.ip(),
            server.port(),
            listen.ip(),
            listen.port(),
            files_max() - 200,
        );
        let file = workspace.write("pgbouncer.ini", &config)?;
        let launch = workspace.launch(program, &[&file]);
        let rival = Rival::start("pgbouncer", launch, workspace.scratch, listen)?;
        Ok(Some(Pgbouncer(rival)))
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
