//! Starts MySQL servers from the rivals' root file system: a primary with replicas that follow by
//! GTID.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::lab::{ServerSlot, for_each_at_once};
use crate::mariadb::copy_directory;
use crate::process::{self, Launch};
use crate::program::Program;
use crate::replication::{Replication, form_cluster};
use crate::server::{Kind, Role, Server};
use crate::sysbench::Driver;
use crate::{Lab, rootfs, sbtest, template};

mod gtid;
mod replication;

const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

/// Options for tests; written data survives a kill of the server, not of the machine.
const SMALL_AND_FAST: &[&str] = &[
    "--innodb-buffer-pool-size=128M",
    "--innodb-redo-log-capacity=64M",
    "--innodb-flush-method=nosync",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-doublewrite=OFF",
    "--innodb-use-native-aio=OFF",
    "--sync-binlog=0",
];

const SETTINGS: &[&str] = &[
    "--secure-file-priv=NULL",
    "--mysqlx=OFF",
    "--log-bin=binlog",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--replica-net-timeout=5",
    "--skip-name-resolve",
    "--max-connections=10000",
    "--max-connect-errors=4294967295",
    "--back-log=4096",
    // For a server that must be rebuilt from another.
    "--plugin-load-add=mysql_clone.so",
];

/// Options of a MySQL cluster.
#[derive(Clone, Debug)]
pub struct MysqlOptions {
    /// Number of replicas.
    pub replicas: usize,
    /// Rows per sysbench table; `None` creates no tables (the database `sbtest` exists, empty).
    pub sbtest_rows: Option<u32>,
    /// Number of sysbench tables.
    pub sbtest_tables: u32,
}

impl Default for MysqlOptions {
    fn default() -> MysqlOptions {
        MysqlOptions {
            replicas: 0,
            sbtest_rows: None,
            sbtest_tables: 4,
        }
    }
}

/// A primary and its replicas. Accounts: `sbtest`/`sbtest`, `monitor`/`monitor`, with
/// caching_sha2_password. They also accept TLS, with self-generated certificates.
#[derive(Clone, Debug)]
pub struct MysqlCluster {
    /// Server that accepts writes.
    pub primary: Server,
    /// Read-only replicas of the primary.
    pub replicas: Vec<Server>,
}

impl MysqlCluster {
    /// Returns all servers, the primary first.
    pub fn servers(&self) -> Vec<Server> {
        std::iter::once(&self.primary)
            .chain(&self.replicas)
            .cloned()
            .collect()
    }

    /// Waits until every running replica has applied all previous writes of the first primary.
    pub fn wait_caught_up(&self) -> Result<()> {
        self.replicas
            .iter()
            .filter(|replica| replica.is_running())
            .try_for_each(|replica| replica.wait_for(&self.primary, CATCH_UP_LIMIT))
    }
}

impl Lab {
    /// Starts a primary and its replicas; returns when every replica has all the data.
    pub fn mysql(&self, options: MysqlOptions) -> Result<MysqlCluster> {
        let primary = self.enlist_replicating("mysql-primary", Role::Primary)?;
        let replicas = (1..=options.replicas)
            .map(|number| {
                self.enlist_replicating(&format!("mysql-replica-{number}"), Role::Replica)
            })
            .collect::<Result<Vec<Server>>>()?;
        let cluster = MysqlCluster { primary, replicas };
        let servers = cluster.servers();
        form_cluster(&servers);
        for_each_at_once(&servers, Server::start)?;
        cluster.primary.sql(&accounts(&self.client_hosts()))?;
        for_each_at_once(&cluster.replicas, |replica| {
            replica.replication()?.follow(replica, &cluster.primary)
        })?;
        if let Some(rows) = options.sbtest_rows {
            sbtest::load(&cluster.primary, Driver::Mysql, options.sbtest_tables, rows)?;
        }
        cluster.wait_caught_up()?;
        Ok(cluster)
    }

    fn enlist_replicating(&self, name: &str, role: Role) -> Result<Server> {
        let slot = self.allocate_slot(name);
        let kind = Arc::new(Mysql::new(&slot)?);
        self.enlist_mysql(&slot, role, &[], kind)
    }

    /// Adds a server with an empty history, not yet started.
    pub(crate) fn enlist_mysql(
        &self,
        slot: &ServerSlot,
        role: Role,
        further: &[&str],
        kind: Arc<dyn Kind>,
    ) -> Result<Server> {
        let program = rootfs::find("mysqld")?;
        let template = template::installed("mysql", |directory| install(&program, directory))?;
        make_private(&slot.directory)?;
        copy_directory(&template, &slot.directory.join("data"))?;
        let mut arguments = arguments(slot)?;
        arguments.extend(further.iter().map(|argument| (*argument).to_owned()));
        let launch = Launch {
            program: program.path,
            root: program.root,
            arguments,
            stop_signal: libc::SIGTERM,
            ..Launch::default()
        };
        Ok(self.enlist(slot, role, launch, kind))
    }
}

/// Creates a data directory.
fn install(mysqld: &Program, directory: &Path) -> Result<()> {
    // The superuser has no password: only users with access to the directory reach the socket.
    make_private(directory)?;
    let mut command = mysqld.command(None)?;
    command.args(["--no-defaults", "--initialize-insecure"]);
    command.arg(format!("--datadir={}", directory.display()));
    command.args(SMALL_AND_FAST).args(run_as_root());
    let output = command.output().context("cannot run mysqld")?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!("mysqld --initialize-insecure failed: {printed}");
    }
    // The file contains the server's id; each copy gets its own.
    fs::remove_file(directory.join("auto.cnf"))?;
    Ok(())
}

/// One MySQL server, independent or in asynchronous replication.
pub(crate) struct Mysql {
    client: Program,
    slot: ServerSlot,
}

impl Mysql {
    pub(crate) fn new(slot: &ServerSlot) -> Result<Mysql> {
        Ok(Mysql {
            client: rootfs::find("mysql")?,
            slot: slot.clone(),
        })
    }
}

impl Kind for Mysql {
    fn answers(&self) -> bool {
        socket(&self.slot).exists() && self.sql("SELECT 1").is_ok()
    }

    fn sql(&self, statements: &str) -> Result<String> {
        let mut command = self.client.command(None)?;
        command.args([
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--connect-timeout=5",
            "--user=root",
        ]);
        command.arg(format!("--socket={}", socket(&self.slot).display()));
        let output = command.arg("--execute").arg(statements).output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    fn connect_command(&self) -> String {
        let address = self.slot.address;
        let (host, port) = (address.ip(), address.port());
        format!("mariadb -h {host} -P {port} -u sbtest -psbtest sbtest")
    }

    fn start_arguments(&self, server: &Server) -> Result<Vec<String>> {
        let is_replica = server.role() == Role::Replica;
        let read_only = is_replica.then_some(["--read-only=ON", "--super-read-only=ON"]);
        Ok(read_only.into_iter().flatten().map(str::to_owned).collect())
    }

    fn replication(&self) -> Option<&dyn Replication> {
        Some(self)
    }
}

/// Returns the initial statements of every cluster, for clients from these hosts.
pub(crate) fn accounts(hosts: &str) -> String {
    format!(
        "CREATE DATABASE sbtest;\
         CREATE USER sbtest@'{hosts}' IDENTIFIED BY 'sbtest';\
         GRANT ALL ON sbtest.* TO sbtest@'{hosts}';\
         CREATE USER monitor@'{hosts}' IDENTIFIED BY 'monitor';\
         GRANT REPLICATION CLIENT ON *.* TO monitor@'{hosts}';\
         GRANT SELECT ON performance_schema.* TO monitor@'{hosts}';\
         CREATE USER replica@'{hosts}' IDENTIFIED BY 'replica';\
         GRANT REPLICATION SLAVE, BACKUP_ADMIN ON *.* TO replica@'{hosts}';"
    )
}

fn arguments(slot: &ServerSlot) -> Result<Vec<String>> {
    let directory = &slot.directory;
    let temporary = directory.join("tmp");
    fs::create_dir(&temporary)?;
    let (host, port) = (slot.address.ip(), slot.address.port());
    let mut arguments = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", directory.join("data").display()),
        format!("--socket={}", socket(slot).display()),
        format!("--pid-file={}", directory.join("pid").display()),
        format!("--tmpdir={}", temporary.display()),
        format!("--bind-address={host}"),
        format!("--port={port}"),
        format!("--report-host={host}"),
        format!("--report-port={port}"),
        // Unique among all labs of this machine, as the port is.
        format!("--server-id={port}"),
    ];
    let fixed = SETTINGS.iter().chain(SMALL_AND_FAST);
    arguments.extend(fixed.map(|argument| (*argument).to_owned()));
    arguments.extend(run_as_root().map(str::to_owned));
    Ok(arguments)
}

fn socket(slot: &ServerSlot) -> PathBuf {
    slot.directory.join("sock")
}

fn make_private(directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    Ok(fs::set_permissions(
        directory,
        Permissions::from_mode(0o700),
    )?)
}

/// Returns the option that MySQL requires to run as root.
fn run_as_root() -> Option<&'static str> {
    process::is_root().then_some("--user=root")
}
