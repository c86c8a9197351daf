//! Starts MariaDB servers: a primary with replicas that follow by GTID, or several independent
//! ones.

mod client;
mod programs;
mod replication;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, bail};

pub(crate) use client::Client;
pub(crate) use programs::Programs;

use crate::lab::{ServerSlot, for_each_at_once};
use crate::process::{self, Launch};
use crate::replication::{Replication, form_cluster};
use crate::server::{Kind, Role, Server};
use crate::sysbench::Driver;
use crate::{Lab, sbtest, template};

const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

/// Options for a small, fast server. The installation has no `log-bin`, so every server's history
/// starts with the lab's accounts.
const SMALL_AND_FAST: &[&str] = &[
    "--innodb-buffer-pool-size=128M",
    "--innodb-log-file-size=64M",
    "--innodb-flush-method=nosync",
    // The log reaches the operating system at each commit: kill -9 loses no acknowledged
    // transaction.
    "--innodb-flush-log-at-trx-commit=2",
];

/// Options of servers in replication.
const LOGGED: &[&str] = &[
    "--log-bin=binlog",
    "--log-slave-updates",
    "--gtid-strict-mode=ON",
    "--slave-net-timeout=5",
];

/// Step between server ids, above the number of ports.
const ID_STEP: u32 = 100_000;

const ACCOUNTS: &str = "\
    CREATE DATABASE sbtest;\
    CREATE USER sbtest@'HOSTS' IDENTIFIED BY 'sbtest';\
    GRANT ALL ON sbtest.* TO sbtest@'HOSTS';\
    CREATE USER monitor@'HOSTS' IDENTIFIED BY 'monitor';\
    GRANT REPLICATION CLIENT, SLAVE MONITOR ON *.* TO monitor@'HOSTS';\
    CREATE USER replica@'HOSTS' IDENTIFIED BY 'replica';\
    GRANT REPLICATION SLAVE ON *.* TO replica@'HOSTS';";

/// Options of a MariaDB cluster.
#[derive(Clone, Debug)]
pub struct MariadbOptions {
    /// Number of replicas.
    pub replicas: usize,
    /// Rows per sysbench table; `None` creates no tables (the database `sbtest` exists, empty).
    pub sbtest_rows: Option<u32>,
    /// Number of sysbench tables.
    pub sbtest_tables: u32,
    /// Major version, such as 11, from the rivals' root file system; `None` means this machine's
    /// own. `EVENKEEL_MARIADB` is the default.
    pub version: Option<u32>,
}

impl Default for MariadbOptions {
    fn default() -> MariadbOptions {
        MariadbOptions {
            replicas: 0,
            sbtest_rows: None,
            sbtest_tables: 4,
            version: programs::wanted(),
        }
    }
}

/// Returns a command that runs one of the programs of this version.
pub fn command(version: u32, name: &str) -> Result<Command> {
    Ok(Programs(Some(version)).find(name)?.command(None)?)
}

/// A primary and its replicas. Accounts: `sbtest`/`sbtest`, `monitor`/`monitor`, from 127.0.0.1.
#[derive(Clone, Debug)]
pub struct MariadbCluster {
    /// Server that accepts writes.
    pub primary: Server,
    /// Read-only replicas of the primary.
    pub replicas: Vec<Server>,
}

impl MariadbCluster {
    /// Returns all servers, the primary first.
    pub fn servers(&self) -> Vec<Server> {
        std::iter::once(&self.primary)
            .chain(&self.replicas)
            .cloned()
            .collect()
    }

    /// Waits until every running replica has applied all previous writes of the primary.
    pub fn wait_caught_up(&self) -> Result<()> {
        for replica in self.replicas.iter().filter(|replica| replica.is_running()) {
            replica.wait_for(&self.primary, CATCH_UP_LIMIT)?;
        }
        Ok(())
    }
}

impl Lab {
    /// Starts a primary and its replicas; returns when every replica has all the data.
    pub fn mariadb(&self, options: MariadbOptions) -> Result<MariadbCluster> {
        let enlist = |name: &str, role| {
            let template = self.mariadb_template(Programs(options.version))?;
            self.enlist_mariadb(name, role, &template, Vec::new())
        };
        let primary = enlist("mariadb-primary", Role::Primary)?;
        let replicas = (1..=options.replicas)
            .map(|number| enlist(&format!("mariadb-replica-{number}"), Role::Replica))
            .collect::<Result<Vec<Server>>>()?;
        let cluster = MariadbCluster { primary, replicas };
        form_cluster(&cluster.servers());
        for_each_at_once(&cluster.servers(), Server::start)?;
        cluster.primary.sql(&self.mariadb_accounts())?;
        for_each_at_once(&cluster.replicas, |replica| {
            replica.replication()?.follow(replica, &cluster.primary)
        })?;
        if let Some(rows) = options.sbtest_rows {
            sbtest::load(&cluster.primary, Driver::Mysql, options.sbtest_tables, rows)?;
        }
        cluster.wait_caught_up()?;
        Ok(cluster)
    }

    /// Starts `count` independent servers with the same sysbench tables.
    pub fn mariadb_stand_alone(
        &self,
        count: usize,
        sbtest_rows: Option<u32>,
    ) -> Result<Vec<Server>> {
        let template = self.mariadb_template(Programs::wanted())?;
        let first = self.enlist_mariadb("mariadb-1", Role::StandAlone, &template, Vec::new())?;
        first.start()?;
        first.sql(&self.mariadb_accounts())?;
        if let Some(rows) = sbtest_rows {
            sbtest::load(&first, Driver::Mysql, 4, rows)?;
        }
        first.stop()?;
        let mut servers = vec![first.clone()];
        for number in 2..=count {
            let copied = Template {
                directory: self.path().join(&first.name).join("data"),
                ..template
            };
            let name = format!("mariadb-{number}");
            servers.push(self.enlist_mariadb(&name, Role::StandAlone, &copied, Vec::new())?);
        }
        for_each_at_once(&servers, Server::start)?;
        Ok(servers)
    }

    /// Returns the statements that create the accounts and the database `sbtest`.
    pub(crate) fn mariadb_accounts(&self) -> String {
        ACCOUNTS.replace("HOSTS", &self.client_hosts())
    }

    /// Adds a server with a copy of this data directory, not yet started.
    pub(crate) fn enlist_mariadb(
        &self,
        name: &str,
        role: Role,
        template: &Template,
        further: Vec<String>,
    ) -> Result<Server> {
        let slot = self.allocate_slot(name);
        fs::create_dir(&slot.directory)?;
        copy_directory(&template.directory, &slot.directory.join("data"))?;
        let kind = Mariadb {
            client: Client::new(&slot)?,
            template: template.directory.clone(),
            generation: AtomicU32::new(0),
            slot: slot.clone(),
        };
        let mut arguments = arguments(&slot)?;
        arguments.extend(LOGGED.iter().map(|argument| (*argument).to_owned()));
        arguments.extend(run_as_root().map(str::to_owned));
        arguments.extend(further);
        let server = template.programs.find("mariadbd")?;
        let launch = Launch {
            program: server.path,
            root: server.root,
            arguments,
            stop_signal: libc::SIGTERM,
            ..Launch::default()
        };
        Ok(self.enlist(&slot, role, launch, Arc::new(kind)))
    }

    /// Returns the template of this version.
    pub(crate) fn mariadb_template(&self, programs: Programs) -> Result<Template> {
        let install = |directory: &Path| self.install_mariadb(programs, directory);
        let directory = template::installed(&programs.template(), install)?;
        Ok(Template {
            programs,
            directory,
        })
    }

    fn install_mariadb(&self, programs: Programs, directory: &Path) -> Result<()> {
        let mut command = programs.find("mariadb-install-db")?.command(None)?;
        command.args([
            "--no-defaults",
            "--skip-test-db",
            "--auth-root-authentication-method=socket",
        ]);
        command.arg(format!("--auth-root-socket-user={}", os_user()?));
        command.arg(format!("--datadir={}", directory.display()));
        command.arg(temporary_files(self.path())?);
        command.args(SMALL_AND_FAST).args(run_as_root());
        let output = command.output();
        let output = output.context("cannot run mariadb-install-db")?;
        if !output.status.success() {
            bail!(
                "mariadb-install-db failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }
}

/// An installed, never started data directory, with its programs and owner.
pub(crate) struct Template {
    pub(crate) programs: Programs,
    pub(crate) directory: PathBuf,
}

struct Mariadb {
    client: Client,
    template: PathBuf,
    /// Number of times it was emptied, or found dead.
    generation: AtomicU32,
    slot: ServerSlot,
}

impl Kind for Mariadb {
    fn answers(&self) -> bool {
        self.client.is_answered()
    }

    fn sql(&self, statements: &str) -> Result<String> {
        self.client.sql(statements)
    }

    fn connect_command(&self) -> String {
        self.client.connect_command()
    }

    fn start_arguments(&self, server: &Server) -> Result<Vec<String>> {
        // Unique among all labs of this machine, as the port is. An emptied server needs a new id:
        // it would skip, as its own, the transactions that it wrote as the primary. So does a dead
        // one: its temporary tables live on in other servers' logs, by server id and thread number.
        // Later threads with those numbers would write into them.
        let generation = self.generation.load(Ordering::Relaxed);
        let id = u32::from(self.slot.address.port()) + generation * ID_STEP;
        let mut arguments = vec![format!("--server-id={id}")];
        // As in a real my.cnf: a primary is writable after a restart, a replica is not.
        if server.role() == Role::Replica {
            arguments.push("--read-only=ON".to_owned());
        }
        Ok(arguments)
    }

    fn replication(&self) -> Option<&dyn Replication> {
        Some(self)
    }
}

/// Returns the arguments of every MariaDB server in a lab.
pub(crate) fn arguments(slot: &ServerSlot) -> Result<Vec<String>> {
    let data = slot.directory.join("data");
    let mut arguments = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--socket={}", client::socket(slot).display()),
        format!("--pid-file={}", slot.directory.join("pid").display()),
        temporary_files(&slot.directory)?,
        format!("--bind-address={}", slot.address.ip()),
        format!("--port={}", slot.address.port()),
        "--skip-name-resolve".to_owned(),
        "--max-connections=10000".to_owned(),
        "--max-connect-errors=4294967295".to_owned(),
        "--back-log=4096".to_owned(),
    ];
    arguments.extend(SMALL_AND_FAST.iter().map(|argument| (*argument).to_owned()));
    Ok(arguments)
}

/// Creates a directory for temporary files, never /tmp: a starting MariaDB deletes the temporary
/// tables of others there.
fn temporary_files(work_dir: &Path) -> Result<String> {
    let directory = work_dir.join("mariadb-tmp");
    fs::create_dir_all(&directory)?;
    Ok(format!("--tmpdir={}", directory.display()))
}

/// Returns the option that MariaDB requires to run as root.
fn run_as_root() -> Option<&'static str> {
    process::is_root().then_some("--user=root")
}

/// Returns the superuser's name, which is that of the user running the lab.
pub(crate) fn os_user() -> Result<String> {
    let uid = process::own_uid();
    let found = process::accounts()
        .into_iter()
        .find(|account| account.uid == uid);
    found.map(|account| account.name).with_context(|| {
        format!("user id {uid} has no name in /etc/passwd, by which MariaDB knows its superuser")
    })
}

pub(crate) fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp")
        .args(["-a", "--reflink=auto", "--"])
        .arg(from)
        .arg(to)
        .status();
    if !status?.success() {
        return Err(io::Error::other(format!(
            "cannot copy {} to {}",
            from.display(),
            to.display()
        ))
        .into());
    }
    Ok(())
}
