//! Starts a PostgreSQL server for the tests, and a replica of it.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use evenkeel_monitor::probe::{AccountSource, MonitorAccount, Target};

use crate::rig::{Server, is_root, program, run};

/// PostgreSQL refuses to run as root, so root runs it as the user `nobody`.
const NOBODY: u32 = 65534;

/// Connections on the socket need no password.
const HBA: &str = "local all all trust\nlocal replication all trust\n";

/// A server that the tests share while any of them runs.
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

pub(crate) struct Postgres(Server);

/// Returns the shared server; each test uses unique names.
pub(crate) fn shared() -> Arc<Postgres> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = shared
        .upgrade()
        .unwrap_or_else(|| Arc::new(Postgres::start(&[])));
    *shared = Arc::downgrade(&server);
    server
}

impl Postgres {
    pub(crate) fn start(options: &[&str]) -> Postgres {
        Postgres::up(Server::start(libc::SIGQUIT, |dir, port| {
            hand_over(dir);
            let data = dir.join("data");
            let mut initdb = Command::new(postgres_program("initdb"));
            let initdb = as_server_user(&mut initdb);
            run(initdb
                .args([
                    "--no-sync",
                    "--auth=trust",
                    "--username=postgres",
                    "--pgdata",
                ])
                .arg(&data));
            std::fs::write(data.join("pg_hba.conf"), HBA).unwrap();
            command(dir, port, options)
        }))
    }

    /// Starts a replica of this server.
    pub(crate) fn replica(&self) -> Postgres {
        Postgres::up(Server::start(libc::SIGQUIT, |dir, port| {
            hand_over(dir);
            let mut backup = Command::new(postgres_program("pg_basebackup"));
            let backup = as_server_user(&mut backup);
            run(backup
                .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
                .args(["--username=postgres", "--wal-method=stream", "--host"])
                .arg(self.0.dir.path())
                .args(["--port", &self.0.port.to_string(), "--pgdata"])
                .arg(dir.join("data")));
            command(dir, port, &[])
        }))
    }

    fn up(server: Server) -> Postgres {
        let server = Postgres(server);
        server.0.until("postgres answers", || {
            let mut psql = server.psql("postgres", "SELECT 1");
            psql.output().unwrap().status.success()
        });
        server
    }

    fn psql(&self, database: &str, text: &str) -> Command {
        let mut psql = Command::new(postgres_program("psql"));
        psql.arg("-h").arg(self.0.dir.path());
        psql.args([
            "-p",
            &self.0.port.to_string(),
            "-X",
            "-q",
            "-At",
            "-U",
            "postgres",
        ]);
        psql.args(["-v", "ON_ERROR_STOP=1", "-d", database, "-c", text]);
        psql
    }

    /// Runs SQL in a database as the superuser, and returns the result.
    pub(crate) fn sql(&self, database: &str, text: &str) -> String {
        run(&mut self.psql(database, text)).trim().to_owned()
    }

    pub(crate) fn target(&self) -> Target {
        Target::unix(self.0.path(&format!(".s.PGSQL.{}", self.0.port)))
    }
}

pub(crate) fn account(user: &str, database: Option<&str>) -> MonitorAccount {
    MonitorAccount {
        user: user.to_owned(),
        password: String::new(),
        database: database.map(str::to_owned),
        source: AccountSource::Service,
    }
}

/// Runs a future like the control plane does.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(work)
}

fn command(dir: &Path, port: u16, options: &[&str]) -> Command {
    let data = dir.join("data");
    std::fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(postgres_program("postgres"));
    as_server_user(&mut command)
        .arg("-D")
        .arg(data)
        .arg(format!("--port={port}"))
        .arg(format!("--unix_socket_directories={}", dir.display()))
        .args(["--listen_addresses=", "--fsync=off", "--shared_buffers=8MB"])
        .args(["--autovacuum=off", "--wal_level=replica"])
        .args(options);
    command
}

fn postgres_program(name: &str) -> PathBuf {
    let places = ["/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/15/bin"];
    program(name, &places, "postgresql")
}

fn as_server_user(command: &mut Command) -> &mut Command {
    match is_root() {
        true => command.uid(NOBODY).gid(NOBODY).current_dir("/"),
        false => command,
    }
}

fn hand_over(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}
