//! Runs Pgpool-II, which distributes reads over a primary and its standbys, with a process for each
//! client.

use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::Result;

use super::Rival;
use super::room::{self, Workspace};
use crate::{free_port, procfs};

/// Number of processes; each client needs one, and further clients wait.
const CLIENTS_MAX: u32 = 128;

/// Pgpool-II in streaming replication mode, with load balancing.
pub struct Pgpool(Rival);

impl From<Pgpool> for Rival {
    fn from(rival: Pgpool) -> Rival {
        rival.0
    }
}

impl Pgpool {
    /// Starts Pgpool-II for the account `sbtest` in front of a primary and its standbys; `None` if
    /// it is not installed.
    pub fn start(servers: &[SocketAddr], listen: SocketAddr) -> Result<Option<Pgpool>> {
        let Some(program) = room::program("pgpool") else {
            return Ok(None);
        };
        let workspace = Workspace::new("pgpool")?;
        let accounts = "sbtest:TEXTsbtest\nmonitor:TEXTmonitor\n";
        let accounts = workspace.write("pool_passwd", accounts)?;
        let rules = "host all all 127.0.0.1/32 scram-sha-256\n";
        let rules = workspace.write("pool_hba.conf", rules)?;
        let control = workspace.write("pcp.conf", "")?;
        let config = config(&workspace, servers, listen, &accounts);
        let file = workspace.write("pgpool.conf", &config)?;
        let arguments = ["-n", "-f", &file, "-a", &rules, "-F", &control];
        let launch = crate::process::Launch {
            // Processes of a killed parent survive; a stopped one ends them.
            children_outlive_it: true,
            ..workspace.launch(program, &arguments)
        };
        let rival = Rival::start("pgpool", launch, workspace.scratch, listen)?;
        Ok(Some(Pgpool(rival)))
    }

    /// Returns the ids of the parent and all its children.
    pub fn pids(&self) -> Vec<u32> {
        self.0.process.pids()
    }

    /// Returns the processor time of all of them, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }
}

fn config(
    workspace: &Workspace,
    servers: &[SocketAddr],
    listen: SocketAddr,
    accounts: &str,
) -> String {
    let directory = workspace.path().display();
    let mut config = format!(
        "backend_clustering_mode = streaming_replication\n\
         listen_addresses = '{}'\nport = {}\npcp_listen_addresses = '127.0.0.1'\npcp_port = {}\n\
         unix_socket_directories = '{directory}'\npcp_socket_dir = '{directory}'\n\
         wd_ipc_socket_dir = '{directory}'\nlogdir = '{directory}'\n\
         work_dir = '{directory}'\npid_file_name = '{directory}/pid'\n\
         enable_pool_hba = on\npool_passwd = '{accounts}'\n\
         num_init_children = {CLIENTS_MAX}\nmax_pool = 1\nlisten_backlog_multiplier = 8\n\
         load_balance_mode = on\nconnection_cache = on\n\
         sr_check_period = 2\nsr_check_user = 'monitor'\nsr_check_database = 'postgres'\n\
         health_check_period = 2\nhealth_check_user = 'monitor'\n\
         health_check_database = 'postgres'\nuse_watchdog = off\n",
        listen.ip(),
        listen.port(),
        free_port(),
    );
    for (number, server) in servers.iter().enumerate() {
        let (host, port) = (server.ip(), server.port());
        let _ = writeln!(
            config,
            "backend_hostname{number} = '{host}'\nbackend_port{number} = {port}\n\
             backend_weight{number} = 1\nbackend_flag{number} = 'ALLOW_TO_FAILOVER'"
        );
    }
    config
}
