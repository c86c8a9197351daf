//! Runs other balancers as child processes, configured as their documentation advises for two
//! cores.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
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
use room::Workspace;

const READY_LIMIT: Duration = Duration::from_secs(10);

/// Number of workers: one per core of the machine of the published measurements.
pub(crate) const WORKERS: u32 = 2;

/// nginx's stream module or HTTP proxy, round robin, one listening socket per worker.
pub struct Nginx(Rival);

/// HAProxy in TCP or HTTP mode, round robin, two threads in one process.
pub struct Haproxy(Rival);

/// A running rival of any kind; killed on drop.
pub struct Rival {
    process: Process,
    scratch: Scratch,
}

/// Address of a balancer once it listens, and its network namespace.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// Network namespace; `None` means the lab's own.
    pub(crate) namespace: Option<PathBuf>,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint {
            address,
            namespace: None,
        }
    }
}

impl Nginx {
    /// Starts nginx in front of these servers.
    pub fn stream(servers: &[SocketAddr], listen: SocketAddr) -> Result<Nginx> {
        let module = tool::find_nginx_stream_module()?;
        let upstream: String = servers
            .iter()
            .map(|server| format!("server {server}; "))
            .collect();
        let config = format!(
            "load_module {};\n{}\
             stream {{\n  upstream servers {{ {upstream}}}\n\
             \x20 server {{ listen {listen} reuseport backlog=4096; proxy_pass servers; }}\n}}\n",
            module.display(),
            nginx_frame(),
        );
        Rival::nginx(&config, listen).map(Nginx)
    }

    /// Starts nginx as an HTTP proxy in front of these servers, to which it keeps connections.
    pub fn http(servers: &[SocketAddr], listen: SocketAddr) -> Result<Nginx> {
        let config = nginx_frame() + &nginx_http("", "", servers, listen);
        Rival::nginx(&config, listen).map(Nginx)
    }

    /// Starts nginx as an HTTP proxy that compresses texts by gzip, at the level that Evenkeel has.
    pub fn gzip(servers: &[SocketAddr], listen: SocketAddr) -> Result<Nginx> {
        let gzip = "  gzip on;\n  gzip_comp_level 5;\n  gzip_types text/plain;\n";
        let config = nginx_frame() + &nginx_http(gzip, "", servers, listen);
        Rival::nginx(&config, listen).map(Nginx)
    }

    /// Returns the process ids of master and workers.
    pub fn pids(&self) -> Vec<u32> {
        self.0.process.pids()
    }

    /// Returns the processor time of all of them, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }
}

impl Haproxy {
    /// Starts this machine's HAProxy in front of these servers.
    pub fn tcp(servers: &[SocketAddr], listen: SocketAddr) -> Result<Haproxy> {
        let program = Program::here(tool::find("haproxy")?);
        Haproxy::start(program, "  mode tcp\n", servers, listen)
    }

    /// Starts HAProxy in HTTP mode in front of these servers, whose idle connections all clients
    /// share: the newest one of the rivals' root file system, or this machine's.
    pub fn http(servers: &[SocketAddr], listen: SocketAddr) -> Result<Haproxy> {
        let newest = rootfs::find("haproxy");
        let program = match newest {
            Ok(program) => program,
            Err(_) => Program::here(tool::find("haproxy")?),
        };
        Haproxy::start(
            program,
            "  mode http\n  http-reuse always\n",
            servers,
            listen,
        )
    }

    /// Starts the newest HAProxy in TCP mode, from the rivals' root file system; `None` if it is
    /// not there.
    pub fn newest_tcp(servers: &[SocketAddr], listen: SocketAddr) -> Result<Option<Haproxy>> {
        let Ok(program) = rootfs::find("haproxy") else {
            return Ok(None);
        };
        Haproxy::start(program, "  mode tcp\n", servers, listen).map(Some)
    }

    /// Starts this machine's HAProxy in front of these servers, with ten health checks per second
    /// as this option defines.
    pub fn checking(option: &str, servers: &[SocketAddr], listen: SocketAddr) -> Result<Haproxy> {
        let lines = server_lines(servers, " check inter 100ms");
        let config = format!(
            "global\n  stats socket {{room}}/stats\n\
             defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             \x20 timeout check 10s\nlisten all\n  bind {listen}\n  {option}\n{lines}"
        );
        let program = Program::here(tool::find("haproxy")?);
        Rival::haproxy(program, &config, listen).map(Haproxy)
    }

    /// Returns each server's state: `UP` or another status, and the result of the last check.
    pub fn states(&self) -> Result<Vec<String>> {
        let mut socket = UnixStream::connect(self.0.scratch.path().join("stats"))?;
        socket.write_all(b"show stat -1 4 -1\n")?;
        let mut table = String::new();
        socket.read_to_string(&mut table)?;
        let mut lines = table
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>());
        let names = lines.next().unwrap_or_default();
        let column = |line: &[&str], name| {
            let at = names.iter().position(|known| *known == name);
            at.and_then(|at| line.get(at))
                .copied()
                .unwrap_or_default()
                .to_owned()
        };
        let servers = lines.filter(|line| line.len() > 1);
        let state = |line: Vec<&str>| {
            let check = column(&line, "check_status");
            // An asterisk means that another check is in progress.
            let last = check.trim_start_matches("* ");
            format!("{} {last}", column(&line, "status"))
        };
        Ok(servers.map(state).collect())
    }

    fn start(
        program: Program,
        mode: &str,
        servers: &[SocketAddr],
        listen: SocketAddr,
    ) -> Result<Haproxy> {
        let lines = server_lines(servers, "");
        // Two sockets per connection, and some for HAProxy itself.
        let connections = files_max() / 2 - 100;
        let config = format!(
            "global\n  nbthread {WORKERS}\n  maxconn {connections}\n\
             defaults\n{mode}  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             listen all\n  bind {listen}\n  balance roundrobin\n{lines}"
        );
        Rival::haproxy(program, &config, listen).map(Haproxy)
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

fn server_lines(servers: &[SocketAddr], further: &str) -> String {
    let numbered = (1..).zip(servers);
    numbered
        .map(|(i, server)| format!("  server s{i} {server}{further}\n"))
        .collect()
}

impl Rival {
    /// Returns the ids of the process and all its children.
    pub fn pids(&self) -> Vec<u32> {
        self.process.pids()
    }

    /// Returns whether it runs.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Returns its configuration files, name and text.
    pub fn configs(&self) -> Vec<(String, String)> {
        let work_dir = self.scratch.path();
        let mut files: Vec<(String, String)> = [work_dir.to_owned(), work_dir.join("room")]
            .iter()
            .filter_map(|directory| fs::read_dir(directory).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|path| {
                let extension = path.extension().and_then(|word| word.to_str());
                matches!(extension, Some("conf" | "cfg" | "ini"))
            })
            .filter_map(|path| {
                let name = path.file_name()?.to_string_lossy().into_owned();
                Some((name, fs::read_to_string(&path).ok()?))
            })
            .collect();
        files.sort();
        files
    }

    /// Starts nginx with this text, in which `{room}` is its own directory, and waits until it
    /// listens at `endpoint`.
    pub(crate) fn nginx(config: &str, endpoint: impl Into<Endpoint>) -> Result<Rival> {
        let scratch = Scratch::new("nginx")?;
        let config = config.replace("{room}", &text(scratch.path()));
        let file = scratch.path().join("nginx.conf");
        fs::write(&file, config)?;
        let launch = Launch {
            program: tool::find("nginx")?,
            arguments: ["-e", "stderr", "-c", &text(&file)]
                .map(str::to_owned)
                .into(),
            // A killed master leaves its workers running; a stopped one ends them.
            children_outlive_it: true,
            ..Launch::default()
        };
        Rival::start("nginx", launch, scratch, endpoint)
    }

    /// Starts HAProxy with this text, in which `{room}` is its own directory, and waits until it
    /// listens at `endpoint`.
    pub(crate) fn haproxy(
        program: Program,
        config: &str,
        endpoint: impl Into<Endpoint>,
    ) -> Result<Rival> {
        let scratch = Scratch::new("haproxy")?;
        let file = scratch.path().join("haproxy.cfg");
        fs::write(&file, config.replace("{room}", &text(scratch.path())))?;
        let launch = Launch {
            program: program.path,
            root: program.root,
            arguments: ["-db", "-f", &text(&file)].map(str::to_owned).into(),
            ..Launch::default()
        };
        Rival::start("haproxy", launch, scratch, endpoint)
    }

    /// Starts MySQL Router with this text, in which `{room}` is its own directory, and waits until
    /// it listens. `None` if it is not installed.
    pub(crate) fn mysql_router(config: &str, listen: SocketAddr) -> Result<Option<Rival>> {
        let Some(program) = room::program("mysqlrouter") else {
            return Ok(None);
        };
        let workspace = Workspace::new("mysqlrouter")?;
        let config = config.replace("{room}", &text(workspace.path()));
        let file = workspace.write("mysqlrouter.conf", &config)?;
        let launch = workspace.launch(program, &["--config", &file]);
        Rival::start("mysqlrouter", launch, workspace.scratch, listen).map(Some)
    }

    /// Starts glb with these arguments, in which `{room}` is its own directory, and waits until it
    /// listens.
    pub(crate) fn glb(program: Program, words: &[String], listen: SocketAddr) -> Result<Rival> {
        let scratch = Scratch::new("glb")?;
        let work_dir = text(scratch.path());
        let words = words.iter().map(|word| word.replace("{room}", &work_dir));
        let arguments: Vec<String> = words.collect();
        // The arguments are its whole configuration: for the report.
        let line = format!("glbd {}\n", arguments.join(" "));
        fs::write(scratch.path().join("glbd.cfg"), line)?;
        let launch = Launch {
            program: program.path,
            root: program.root,
            arguments,
            ..Launch::default()
        };
        Rival::start("glbd", launch, scratch, listen)
    }

    /// Starts a program of the user's with these arguments, in which `{config}` is the path of a
    /// file with this text, and waits until it listens.
    pub(crate) fn command(words: &[String], config: &str, listen: SocketAddr) -> Result<Rival> {
        let scratch = Scratch::new("rival")?;
        let work_dir = text(scratch.path());
        let file = scratch.path().join("rival.conf");
        fs::write(&file, config.replace("{room}", &work_dir))?;
        let fill = |word: &String| {
            let word = word.replace("{config}", &text(&file));
            word.replace("{room}", &work_dir)
        };
        let mut words = words.iter().map(fill);
        let program = words.next().unwrap_or_default();
        let launch = Launch {
            program: tool::find(&program).unwrap_or_else(|_| program.clone().into()),
            arguments: words.collect(),
            ..Launch::default()
        };
        Rival::start(&program.replace('/', "-"), launch, scratch, listen)
    }

    fn start(
        name: &str,
        launch: Launch,
        scratch: Scratch,
        endpoint: impl Into<Endpoint>,
    ) -> Result<Rival> {
        let Endpoint { address, namespace } = endpoint.into();
        let process = Process::new(Launch {
            name: name.to_owned(),
            log: scratch.path().join("log"),
            note: scratch.note(name),
            stop_signal: libc::SIGTERM,
            namespace,
            ..launch
        });
        process.start()?;
        let rival = Rival { process, scratch };
        eventually(
            READY_LIMIT,
            &format!("{name} listening on {address}"),
            || {
                if !rival.process.is_running() {
                    bail!(
                        "{name} ended at its start; it said:\n{}",
                        rival.process.log_tail()
                    );
                }
                Ok(TcpStream::connect(address).ok())
            },
        )?;
        Ok(rival)
    }
}

/// Returns the common part of nginx configurations, for any kind of forwarding; `{room}` is its own
/// directory.
pub(crate) fn nginx_frame() -> String {
    let user = if process::is_root() {
        "user root;\n"
    } else {
        ""
    };
    let files = files_max();
    format!(
        "{user}daemon off;\nworker_processes {WORKERS};\nworker_rlimit_nofile {files};\n\
         pid {{room}}/pid;\nevents {{ worker_connections {files}; }}\n"
    )
}

/// Returns nginx's configuration as an HTTP proxy that keeps connections to these servers.
///
/// `clients` are directives about clients, `balance` those of the upstream before its servers.
pub(crate) fn nginx_http(
    clients: &str,
    balance: &str,
    servers: &[SocketAddr],
    listen: SocketAddr,
) -> String {
    let servers: String = servers
        .iter()
        .map(|server| format!("server {server}; "))
        .collect();
    // After `keepalive_requests`, a connection is replaced by a new one.
    format!(
        "http {{\n  access_log off;\n  keepalive_requests 1000000;\n\
         \x20 proxy_temp_path {{room}}/t1;\n  client_body_temp_path {{room}}/t2;\n\
         \x20 fastcgi_temp_path {{room}}/t3;\n  uwsgi_temp_path {{room}}/t4;\n\
         \x20 scgi_temp_path {{room}}/t5;\n{clients}\
         \x20 upstream servers {{ {balance}{servers}keepalive 512; keepalive_requests 1000000; }}\n\
         \x20 server {{\n    listen {listen} reuseport backlog=4096;\n\
         \x20   location / {{\n      proxy_pass http://servers;\n      proxy_http_version 1.1;\n\
         \x20     proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n"
    )
}

/// Returns the number of file descriptors that this machine allows, at most 40,000.
pub(crate) fn files_max() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok());
    hard.unwrap_or(40_000).min(40_000)
}

pub(crate) fn joined(servers: &[SocketAddr], separator: &str) -> String {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    servers.join(separator)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
