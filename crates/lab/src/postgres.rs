//! Starts PostgreSQL servers: a primary with hot standbys that follow by streaming.

pub(crate) mod programs;
mod replication;

use std::fs::{self, File, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::programs::Programs;
use crate::lab::{ServerSlot, for_each_at_once};
use crate::mariadb::copy_directory;
use crate::process::{self, Launch};
use crate::replication::{Replication, form_cluster};
use crate::server::{Kind, Role, Server};
use crate::sysbench::Driver;
use crate::{Lab, sbtest, template, tool};

const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

const SETTINGS: &[&str] = &[
    "unix_socket_permissions=0700",
    // Files in the data directory instead of /dev/shm, where a kill would leave them.
    "dynamic_shared_memory_type=mmap",
    // Written data survives a kill of the server, not of the machine, which is sufficient here.
    "fsync=off",
    // pg_rewind, which turns an old primary into a standby, needs both.
    "full_page_writes=on",
    "wal_log_hints=on",
    "max_connections=1000",
    "shared_buffers=128MB",
    "wal_level=replica",
    "max_wal_senders=16",
    "wal_keep_size=512MB",
    "hot_standby=on",
    "wal_receiver_timeout=5s",
    "wal_sender_timeout=5s",
    "wal_retrieve_retry_interval=200ms",
];

/// Name of the first primary of a lab.
const PRIMARY: &str = "postgres-primary";

const ACCOUNTS: &str = "\
ALTER ROLE postgres PASSWORD 'postgres'
CREATE ROLE sbtest LOGIN PASSWORD 'sbtest'
CREATE ROLE monitor LOGIN PASSWORD 'monitor' IN ROLE pg_monitor
CREATE ROLE replica REPLICATION LOGIN PASSWORD 'replica'
CREATE DATABASE sbtest OWNER sbtest
";

/// Options of a PostgreSQL cluster.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Number of hot standbys.
    pub replicas: usize,
    /// Rows per sysbench table; `None` creates no tables (the database `sbtest` exists, empty).
    pub sbtest_rows: Option<u32>,
    /// Number of sysbench tables.
    pub sbtest_tables: u32,
    /// Major version; `None` means the newest that is installed. Versions that this machine lacks
    /// are taken from the rivals' root file system.
    pub version: Option<u32>,
    /// Further settings, as `name=value`; they override others of the same name.
    pub settings: Vec<String>,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            replicas: 0,
            sbtest_rows: None,
            sbtest_tables: 4,
            version: None,
            settings: Vec::new(),
        }
    }
}

/// Returns a command that runs one of PostgreSQL's programs, of the newest installed version, as
/// the servers' user.
pub fn command(name: &str) -> Result<Command> {
    Programs(None).command(name)
}

/// A primary and its standbys. Accounts: `sbtest`/`sbtest`, `monitor`/`monitor` (SCRAM) over TCP.
#[derive(Clone, Debug)]
pub struct PostgresCluster {
    /// Server that accepts writes.
    pub primary: Server,
    /// Read-only hot standbys.
    pub replicas: Vec<Server>,
}

impl PostgresCluster {
    /// Returns all servers, the primary first.
    pub fn servers(&self) -> Vec<Server> {
        std::iter::once(&self.primary)
            .chain(&self.replicas)
            .cloned()
            .collect()
    }

    /// Waits until every running standby has applied all previous writes of the primary.
    pub fn wait_caught_up(&self) -> Result<()> {
        for replica in self.replicas.iter().filter(|replica| replica.is_running()) {
            replica.wait_for(&self.primary, CATCH_UP_LIMIT)?;
        }
        Ok(())
    }
}

impl Lab {
    /// Starts a primary and its standbys; returns when every standby has all the data.
    pub fn postgres(&self, options: PostgresOptions) -> Result<PostgresCluster> {
        let programs = Programs(options.version);
        let primary = self.postgres_primary(programs, &options.settings)?;
        if let Some(rows) = options.sbtest_rows {
            primary.start()?;
            sbtest::load(&primary, Driver::Pgsql, options.sbtest_tables, rows)?;
        }
        let replicas = (0..options.replicas)
            .map(|number| {
                let name = format!("postgres-replica-{}", number + 1);
                self.postgres_replica(&name, programs, &options.settings, &primary)
            })
            .collect::<Result<Vec<Server>>>()?;
        let cluster = PostgresCluster { primary, replicas };
        form_cluster(&cluster.servers());
        for_each_at_once(&cluster.servers(), |server| match server.role() {
            Role::Primary if server.is_running() => Ok(()),
            Role::Primary => server.start(),
            _ => server.replication()?.follow(server, &cluster.primary),
        })?;
        cluster.wait_caught_up()?;
        Ok(cluster)
    }

    /// Creates the primary of a new cluster, not yet started.
    fn postgres_primary(&self, programs: Programs, settings: &[String]) -> Result<Server> {
        // Copies of one installation are one cluster by its system identifier.
        let is_first = self.server(PRIMARY).is_none();
        let slot = self.allocate_slot(PRIMARY);
        make_directory(&slot.directory)?;
        let data = slot.directory.join("data");
        if is_first {
            let installation =
                template::installed(&programs.template(), |to| install(programs, to))?;
            copy_directory(&installation, &data)?;
        } else {
            install(programs, &data)?;
        }
        if let Some(range) = self.network_range() {
            allow_from(&slot, &range)?;
        }
        self.enlist_postgres(&slot, programs, settings, Role::Primary)
    }

    /// Creates a copy of the primary, not yet started.
    fn postgres_replica(
        &self,
        name: &str,
        programs: Programs,
        settings: &[String],
        primary: &Server,
    ) -> Result<Server> {
        let slot = self.allocate_slot(name);
        make_directory(&slot.directory)?;
        if primary.is_running() {
            replication::copy_data(programs, &slot, primary)?;
        } else {
            let data = primary.work_dir.join(&primary.name).join("data");
            copy_directory(&data, &slot.directory.join("data"))?;
        }
        self.enlist_postgres(&slot, programs, settings, Role::Replica)
    }

    fn enlist_postgres(
        &self,
        slot: &ServerSlot,
        programs: Programs,
        settings: &[String],
        role: Role,
    ) -> Result<Server> {
        let kind = Postgres {
            // Not /usr/bin/psql, which is a Perl script on Debian.
            client: tool::find_postgres("psql")?,
            programs,
            slot: slot.clone(),
        };
        let server = programs.find("postgres")?;
        let launch = Launch {
            program: server.path,
            root: server.root,
            arguments: arguments(slot, settings),
            user: server_user()?,
            // "Fast shutdown": clients are disconnected, not waited for.
            stop_signal: libc::SIGINT,
            ..Launch::default()
        };
        Ok(self.enlist(slot, role, launch, Arc::new(kind)))
    }
}

struct Postgres {
    client: PathBuf,
    programs: Programs,
    slot: ServerSlot,
}

impl Kind for Postgres {
    fn answers(&self) -> bool {
        self.sql("SELECT 1").is_ok()
    }

    fn sql(&self, statements: &str) -> Result<String> {
        let mut command = Command::new(&self.client);
        as_server_user(&mut command)?;
        command.args([
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--quiet",
            "--field-separator=\t",
        ]);
        command.args(["--username=postgres", "--set=ON_ERROR_STOP=1", "--dbname"]);
        command.arg(if statements.contains("sbtest1") {
            "sbtest"
        } else {
            "postgres"
        });
        command.arg("--host").arg(&self.slot.directory);
        command.arg(format!("--port={}", self.slot.address.port()));
        run(command.arg("--command").arg(statements))
    }

    fn connect_command(&self) -> String {
        let address = self.slot.address;
        format!("psql postgresql://sbtest:sbtest@{address}/sbtest")
    }

    fn replication(&self) -> Option<&dyn Replication> {
        Some(self)
    }
}

fn arguments(slot: &ServerSlot, settings: &[String]) -> Vec<String> {
    let data = slot.directory.join("data");
    let mut arguments = vec![
        "-D".to_owned(),
        data.display().to_string(),
        "-p".to_owned(),
        slot.address.port().to_string(),
        "-k".to_owned(),
        slot.directory.display().to_string(),
        "-c".to_owned(),
        format!("listen_addresses={}", slot.address.ip()),
    ];
    let own = SETTINGS.iter().map(|setting| (*setting).to_owned());
    for setting in own.chain(settings.iter().cloned()) {
        arguments.extend(["-c".to_owned(), setting]);
    }
    arguments
}

/// Allows logins of clients and standbys from this address range.
fn allow_from(slot: &ServerSlot, range: &str) -> Result<()> {
    let rules = slot.directory.join("data/pg_hba.conf");
    let mut rules = File::options().append(true).open(rules)?;
    writeln!(rules, "host all all {range} scram-sha-256")?;
    writeln!(rules, "host replication replica {range} scram-sha-256")?;
    Ok(())
}

/// Creates a data directory with the accounts.
fn install(programs: Programs, directory: &Path) -> Result<()> {
    make_directory(directory)?;
    let mut initdb = programs.command("initdb")?;
    initdb.args([
        "--no-sync",
        "--no-instructions",
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C",
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
    ]);
    run(initdb.arg("--pgdata").arg(directory))?;
    // A server without a port, which ends with its input: one statement in each line.
    let mut input = tempfile::tempfile()?;
    input.write_all(ACCOUNTS.as_bytes())?;
    input.rewind()?;
    let mut server = programs.command("postgres")?;
    server.args(["--single", "-F", "-c", "exit_on_error=on", "-D"]);
    run(server.arg(directory).arg("postgres").stdin(input))?;
    Ok(())
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    give_to_server_user(path)
}

fn give_to_server_user(path: &Path) -> Result<()> {
    if let Some((uid, gid)) = server_user()? {
        chown(path, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Returns the servers' user, since PostgreSQL refuses to run as root: `postgres` if it exists,
/// else `nobody`.
pub(crate) fn server_user() -> Result<Option<(u32, u32)>> {
    if !process::is_root() {
        return Ok(None);
    }
    let accounts = process::accounts();
    let named = |name: &str| accounts.iter().find(|account| account.name == name);
    // tidy: a user of the system
    let account = named("postgres").or_else(|| named("nobody"));
    let account =
        account.context("PostgreSQL refuses root, and there is no user postgres or nobody")?;
    Ok(Some((account.uid, account.gid)))
}

fn as_server_user(command: &mut Command) -> Result<()> {
    process::plain_environment(command);
    command.current_dir("/");
    if let Some((uid, gid)) = server_user()? {
        command.uid(uid).gid(gid);
    }
    Ok(())
}

fn run(mut command: impl std::borrow::BorrowMut<Command>) -> Result<String> {
    let command = command.borrow_mut();
    let output = command.output()?;
    if !output.status.success() {
        let program = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default();
        bail!(
            "{}: {}",
            program.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
