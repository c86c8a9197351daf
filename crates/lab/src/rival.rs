//! Other balancers as child processes, set up as their documentation advises for two cores.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::{self, Launch, Process};
use crate::program::Program;
use crate::scratch::Scratch;
use crate::{eventually, procfs, rootfs, tool};

mod mysql_router;
mod odyssey;
mod pgbouncer;
mod pgpool;
mod room;

pub use mysql_router::MysqlRouter;
pub use odyssey::Odyssey;
pub use pgbouncer::Pgbouncer;
pub use pgpool::Pgpool;

const READY_LIMIT: Duration = Duration::from_secs(10);

/// Two workers: one per core of the machine that the published measurements were made on.
const WORKERS: u32 = 2;

/// nginx's stream module, round robin, one listening socket per worker.
pub struct Nginx(Rival);

/// HAProxy in TCP mode, round robin, two threads in one process.
pub struct Haproxy(Rival);

struct Rival {
    process: Process,
    _scratch: Scratch,
}

impl Nginx {
    /// Starts it in front of these servers.
    pub fn stream(servers: &[SocketAddr], listen: SocketAddr) -> Result<Nginx> {
        let module = tool::find_nginx_stream_module()?;
        let scratch = Scratch::new("nginx")?;
        let room = scratch.path().display();
        let upstream: String = servers
            .iter()
            .map(|server| format!("server {server}; "))
            .collect();
        let user = if process::is_root() {
            "user root;\n"
        } else {
            ""
        };
        let files = files_max();
        let config = format!(
            "load_module {};\n{user}daemon off;\n\
             worker_processes {WORKERS};\nworker_rlimit_nofile {files};\n\
             pid {room}/pid;\nevents {{ worker_connections {files}; }}\n\
             stream {{\n  upstream servers {{ {upstream}}}\n\
             \x20 server {{ listen {listen} reuseport backlog=4096; proxy_pass servers; }}\n}}\n",
            module.display(),
        );
        let file = scratch.path().join("nginx.conf");
        fs::write(&file, config)?;
        let launch = Launch {
            program: tool::find("nginx")?,
            arguments: ["-e", "stderr", "-c", &text(&file)]
                .map(str::to_owned)
                .into(),
            // A killed master leaves its workers behind; one that is asked takes them along.
            children_outlive_it: true,
            ..Launch::default()
        };
        Ok(Nginx(Rival::start("nginx", launch, scratch, listen)?))
    }

    /// Master and workers.
    pub fn pids(&self) -> Vec<u32> {
        self.0.process.pids()
    }

    /// Processor time of all of them, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }
}

impl Haproxy {
    /// Starts this machine's in front of these servers.
    pub fn tcp(servers: &[SocketAddr], listen: SocketAddr) -> Result<Haproxy> {
        let program = Program::here(tool::find("haproxy")?);
        Haproxy::start(program, servers, listen)
    }

    /// Starts the newest, of the rivals' root file system; `None` when that is not there.
    pub fn newest_tcp(servers: &[SocketAddr], listen: SocketAddr) -> Result<Option<Haproxy>> {
        let Ok(program) = rootfs::find("haproxy") else {
            return Ok(None);
        };
        Haproxy::start(program, servers, listen).map(Some)
    }

    fn start(program: Program, servers: &[SocketAddr], listen: SocketAddr) -> Result<Haproxy> {
        let scratch = Scratch::new("haproxy")?;
        let lines: String = (1..)
            .zip(servers)
            .map(|(i, server)| format!("  server s{i} {server}\n"))
            .collect();
        // Two sockets each, and some for itself.
        let connections = files_max() / 2 - 100;
        let config = format!(
            "global\n  nbthread {WORKERS}\n  maxconn {connections}\n\
             defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             listen all\n  bind {listen}\n  balance roundrobin\n{lines}"
        );
        let file = scratch.path().join("haproxy.cfg");
        fs::write(&file, config)?;
        let launch = Launch {
            program: program.path,
            root: program.root,
            arguments: ["-db", "-f", &text(&file)].map(str::to_owned).into(),
            ..Launch::default()
        };
        Ok(Haproxy(Rival::start("haproxy", launch, scratch, listen)?))
    }

    /// Its process.
    pub fn pids(&self) -> Vec<u32> {
        self.0.process.pids()
    }

    /// Its processor time, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }
}

impl Rival {
    fn start(name: &str, launch: Launch, scratch: Scratch, listen: SocketAddr) -> Result<Rival> {
        let process = Process::new(Launch {
            name: name.to_owned(),
            log: scratch.path().join("log"),
            note: scratch.note(name),
            stop_signal: libc::SIGTERM,
            ..launch
        });
        process.start()?;
        let rival = Rival {
            process,
            _scratch: scratch,
        };
        eventually(
            READY_LIMIT,
            &format!("{name} listening on {listen}"),
            || {
                if !rival.process.is_running() {
                    bail!(
                        "{name} ended at its start; it said:\n{}",
                        rival.process.log_tail()
                    );
                }
                Ok(TcpStream::connect(listen).ok())
            },
        )?;
        Ok(rival)
    }
}

/// As many file descriptors as this machine allows, 40,000 at most.
fn files_max() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok());
    hard.unwrap_or(40_000).min(40_000)
}

fn joined(servers: &[SocketAddr], separator: &str) -> String {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    servers.join(separator)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
