//! MariaDB servers: a primary with replicas that follow by GTID, or several that stand alone.

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

use crate::lab::{Place, for_each_at_once};
use crate::process::{self, Launch};
use crate::replication::{Replication, unite};
use crate::server::{Kind, Role, Server};
use crate::sysbench::Driver;
use crate::{Lab, sbtest};

const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

/// `log-bin` is left out of the installation, so every server's history starts with our accounts.
const SMALL_AND_FAST: &[&str] = &[
    "--innodb-buffer-pool-size=128M",
    "--innodb-log-file-size=64M",
    "--innodb-flush-method=nosync",
    // The log reaches the operating system at each commit: nothing acknowledged is lost by kill -9.
    "--innodb-flush-log-at-trx-commit=2",
];

/// For servers that follow one another.
const LOGGED: &[&str] = &[
    "--log-bin=binlog",
    "--log-slave-updates",
    "--gtid-strict-mode=ON",
    "--slave-net-timeout=5",
];

/// More than there are ports.
const ID_STEP: u32 = 100_000;

const ACCOUNTS: &str = "\
    CREATE DATABASE sbtest;\
    CREATE USER sbtest@'HOSTS' IDENTIFIED BY 'sbtest';\
    GRANT ALL ON sbtest.* TO sbtest@'HOSTS';\
    CREATE USER monitor@'HOSTS' IDENTIFIED BY 'monitor';\
    GRANT REPLICATION CLIENT, SLAVE MONITOR ON *.* TO monitor@'HOSTS';\
    CREATE USER replica@'HOSTS' IDENTIFIED BY 'replica';\
    GRANT REPLICATION SLAVE ON *.* TO replica@'HOSTS';";

/// What a MariaDB cluster consists of.
#[derive(Clone, Debug)]
pub struct MariadbOptions {
    /// How many replicas follow the primary.
    pub replicas: usize,
    /// Rows per sysbench table; `None` loads no tables (the database `sbtest` is there, empty).
    pub sbtest_rows: Option<u32>,
    /// How many sysbench tables.
    pub sbtest_tables: u32,
    /// The version, such as 11, which comes from the rivals' root file system; `None` is this
    /// machine's own. `EVENKEEL_MARIADB` decides where nothing is said.
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

/// A command that runs one of the programs of this version.
pub fn command(version: u32, name: &str) -> Result<Command> {
    Ok(Programs(Some(version)).find(name)?.command(None)?)
}

/// A primary and its replicas. Accounts: `sbtest`/`sbtest`, `monitor`/`monitor`, from 127.0.0.1.
#[derive(Clone, Debug)]
pub struct MariadbCluster {
    /// Takes writes.
    pub primary: Server,
    /// Follow the primary, read only.
    pub replicas: Vec<Server>,
}

impl MariadbCluster {
    /// All servers, the primary first.
    pub fn servers(&self) -> Vec<Server> {
        std::iter::once(&self.primary)
            .chain(&self.replicas)
            .cloned()
            .collect()
    }

    /// Waits until every running replica has applied what the primary has written so far.
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
        unite(&cluster.servers());
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

    /// Starts `count` servers that know nothing of each other and hold the same sysbench tables.
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

    /// The statements that make the accounts and the database `sbtest`.
    pub(crate) fn mariadb_accounts(&self) -> String {
        ACCOUNTS.replace("HOSTS", &self.client_hosts())
    }

    /// A server with a copy of this data directory, not yet started.
    pub(crate) fn enlist_mariadb(
        &self,
        name: &str,
        role: Role,
        template: &Template,
        further: Vec<String>,
    ) -> Result<Server> {
        let place = self.place(name);
        fs::create_dir(&place.directory)?;
        copy_directory(&template.directory, &place.directory.join("data"))?;
        let kind = Mariadb {
            client: Client::new(&place)?,
            template: template.directory.clone(),
            generation: AtomicU32::new(0),
            place: place.clone(),
        };
        let mut arguments = arguments(&place)?;
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
        Ok(self.enlist(&place, role, launch, Arc::new(kind)))
    }

    /// Made once per lab and version, because that takes seconds.
    pub(crate) fn mariadb_template(&self, programs: Programs) -> Result<Template> {
        let directory = self.path().join(programs.template());
        if !directory.exists() {
            self.install_mariadb(programs, &directory)?;
        }
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

/// An installed, never started data directory, and whose it is.
pub(crate) struct Template {
    pub(crate) programs: Programs,
    pub(crate) directory: PathBuf,
}

struct Mariadb {
    client: Client,
    template: PathBuf,
    /// How often it was emptied, or found dead.
    generation: AtomicU32,
    place: Place,
}

impl Kind for Mariadb {
    fn answers(&self) -> bool {
        self.client.is_answered()
    }

    fn sql(&self, statements: &str) -> Result<String> {
        self.client.sql(statements)
    }

    fn how_to_connect(&self) -> String {
        self.client.how_to_connect()
    }

    fn arguments_now(&self, own: &Server) -> Result<Vec<String>> {
        // Unique among all labs of this machine, as the port is. A server that was emptied needs a
        // new one: it would skip, as its own, what it wrote when it was primary. So does one that
        // died: its temporary tables live on in the logs of others, by server id and thread number,
        // and take what its later threads of those numbers write.
        let generation = self.generation.load(Ordering::Relaxed);
        let id = u32::from(self.place.address.port()) + generation * ID_STEP;
        let mut arguments = vec![format!("--server-id={id}")];
        // As in a real my.cnf: a primary that comes back is writable, a replica is not.
        if own.role() == Role::Replica {
            arguments.push("--read-only=ON".to_owned());
        }
        Ok(arguments)
    }

    fn replication(&self) -> Option<&dyn Replication> {
        Some(self)
    }
}

/// What every MariaDB server of a lab is started with.
pub(crate) fn arguments(place: &Place) -> Result<Vec<String>> {
    let data = place.directory.join("data");
    let mut arguments = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--socket={}", client::socket(place).display()),
        format!("--pid-file={}", place.directory.join("pid").display()),
        temporary_files(&place.directory)?,
        format!("--bind-address={}", place.address.ip()),
        format!("--port={}", place.address.port()),
        "--skip-name-resolve".to_owned(),
        "--max-connections=10000".to_owned(),
        "--max-connect-errors=4294967295".to_owned(),
        "--back-log=4096".to_owned(),
    ];
    arguments.extend(SMALL_AND_FAST.iter().map(|argument| (*argument).to_owned()));
    Ok(arguments)
}

/// Never /tmp: a MariaDB that starts deletes the temporary tables which others have there.
fn temporary_files(room: &Path) -> Result<String> {
    let directory = room.join("mariadb-tmp");
    fs::create_dir_all(&directory)?;
    Ok(format!("--tmpdir={}", directory.display()))
}

/// MariaDB runs as root only when told in so many words.
fn run_as_root() -> Option<&'static str> {
    process::is_root().then_some("--user=root")
}

/// The superuser is known by the name of whoever runs the lab.
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
