//! Starts a front for database servers: none, Evenkeel, or a rival.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::balancer::find_binary;
use crate::scenario::ServiceSpec;
use crate::write_probe::Client;
use crate::{Balancer, Driver, Odyssey, Pgbouncer, Pgpool, Server, eventually, free_port, procfs};

const READY_LIMIT: Duration = Duration::from_secs(20);
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// Query for the statements that grant the lab's MySQL monitor read access, from any host.
const MYSQL_GRANTS: &str = "\
    SELECT CONCAT('GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO ', QUOTE(User), '@', QUOTE(Host)) \
    FROM mysql.user WHERE User = 'monitor'";

/// Kind of a front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolerKind {
    /// No one: the first server.
    Direct,
    /// Evenkeel on io_uring.
    IoUring,
    /// Evenkeel on epoll.
    Epoll,
    /// Evenkeel as a forwarder of TCP to the current primary, without a pool.
    Tcp,
    /// PgBouncer, one thread; PostgreSQL only, as the next two.
    Pgbouncer,
    /// Odyssey, two workers.
    Odyssey,
    /// Pgpool-II, a process for each client.
    Pgpool,
}

/// Condition for a server connection to be assigned to another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolMode {
    /// After each transaction.
    Transaction,
    /// After its client has disconnected.
    Session,
}

/// Configuration; a rival without a corresponding setting uses its own file's.
#[derive(Clone, Debug)]
pub struct PoolerOptions {
    /// Protocol.
    pub driver: Driver,
    /// Condition for a server connection to be assigned to another client.
    pub mode: PoolMode,
    /// Server connections per user and database.
    pub size: u32,
    /// True if reads go to replicas too.
    pub reads: bool,
    /// Binary of Evenkeel; `None` is [`find_binary`]'s.
    pub binary: Option<PathBuf>,
    /// Further lines of Evenkeel's `[[service]]`.
    pub extra: String,
    /// Further lines of Evenkeel's `[service.pool]`.
    pub pool: String,
    /// Further lines of Evenkeel's `[service.split]`.
    pub split: String,
}

impl Default for PoolerOptions {
    fn default() -> PoolerOptions {
        PoolerOptions {
            driver: Driver::Pgsql,
            mode: PoolMode::Transaction,
            size: 20,
            reads: false,
            binary: None,
            extra: String::new(),
            pool: String::new(),
            split: String::new(),
        }
    }
}

/// A running front, stopped on drop. Accounts: `sbtest`, and PostgreSQL's superuser `postgres`.
pub struct Pooler {
    /// Kind of the front.
    pub kind: PoolerKind,
    /// Protocol.
    pub driver: Driver,
    /// Address for clients.
    pub address: SocketAddr,
    process: Running,
}

enum Running {
    Nothing,
    Evenkeel(Balancer),
    Pgbouncer(Pgbouncer),
    Odyssey(Odyssey),
    Pgpool(Pgpool),
}

impl PoolerKind {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            PoolerKind::Direct => "direct",
            PoolerKind::IoUring => "evenkeel io_uring",
            PoolerKind::Epoll => "evenkeel epoll",
            PoolerKind::Tcp => "evenkeel tcp",
            PoolerKind::Pgbouncer => "pgbouncer",
            PoolerKind::Odyssey => "odyssey",
            PoolerKind::Pgpool => "pgpool-ii",
        }
    }

    /// Returns whether this is Evenkeel.
    pub fn is_evenkeel(self) -> bool {
        matches!(
            self,
            PoolerKind::IoUring | PoolerKind::Epoll | PoolerKind::Tcp
        )
    }

    /// Returns the maximum number of concurrent clients, if it is low.
    pub fn clients_max(self) -> u32 {
        match self {
            // Each client needs its own process.
            PoolerKind::Pgpool => 120,
            _ => u32::MAX,
        }
    }
}

impl PoolMode {
    /// Returns the name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            PoolMode::Transaction => "transaction",
            PoolMode::Session => "session",
        }
    }
}

/// Allows the lab's MySQL monitor to read more than roles: the accounts, and the effects of
/// statements.
pub(crate) fn let_monitor_read(primary: &Server) -> Result<()> {
    let printed = primary.sql(MYSQL_GRANTS)?;
    for grant in printed.lines().filter(|line| line.starts_with("GRANT ")) {
        primary.sql(grant)?;
    }
    Ok(())
}

impl Pooler {
    /// Starts a front for a primary and its replicas; `None` if the rival is not installed.
    pub fn start(
        kind: PoolerKind,
        servers: &[Server],
        options: &PoolerOptions,
    ) -> Result<Option<Pooler>> {
        let Some(primary) = servers.first() else {
            bail!("{} has no server to stand in front of", kind.name());
        };
        let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = match kind {
            PoolerKind::Direct => Some(Running::Nothing),
            PoolerKind::IoUring | PoolerKind::Epoll => {
                if options.driver == Driver::Mysql {
                    let_monitor_read(primary)?;
                }
                let config = pooling(kind, listen, servers, options);
                let binary = options.binary.clone().map_or_else(find_binary, Ok)?;
                Some(Running::Evenkeel(Balancer::start_binary(binary, &config)?))
            }
            PoolerKind::Tcp => {
                let balancer = Balancer::start(&forwarding(listen, servers, options.driver))?;
                Some(Running::Evenkeel(balancer))
            }
            _ if options.driver == Driver::Mysql => bail!("{} speaks no MySQL", kind.name()),
            PoolerKind::Pgbouncer => {
                Pgbouncer::start_in(options.mode.name(), primary.address, listen)?
                    .map(Running::Pgbouncer)
            }
            PoolerKind::Odyssey => Odyssey::start(&addresses[..1], listen)?.map(Running::Odyssey),
            PoolerKind::Pgpool => Pgpool::start(&addresses, listen)?.map(Running::Pgpool),
        };
        let address = match kind {
            PoolerKind::Direct => primary.address,
            _ => listen,
        };
        let Some(process) = process else {
            return Ok(None);
        };
        let pooler = Pooler {
            kind,
            driver: options.driver,
            address,
            process,
        };
        pooler.wait_ready()?;
        Ok(Some(pooler))
    }

    /// Waits until the front knows the primary after its start.
    fn wait_ready(&self) -> Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut last = String::new();
        let ready = eventually(READY_LIMIT, "a first session", || {
            let asked = runtime.block_on(async {
                let mut client = Client::connect(self.driver, self.address, ASK_LIMIT).await?;
                client.port().await
            });
            Ok(asked.map_err(|error| last = format!("{error:#}")).ok())
        });
        let log = self.log();
        ready.with_context(|| format!("{}: {last}\n{log}", self.kind.name()))?;
        Ok(())
    }

    /// Returns the processor time used so far, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&self.pids())
    }

    /// Returns the anonymous memory in kB.
    pub fn memory_kb(&self) -> u64 {
        procfs::memory_kb(&self.pids())
    }

    /// Returns the balancer if this is Evenkeel.
    pub fn balancer(&self) -> Option<&Balancer> {
        match &self.process {
            Running::Evenkeel(balancer) => Some(balancer),
            _ => None,
        }
    }

    /// Returns Evenkeel's log so far; empty for others.
    pub(crate) fn log(&self) -> String {
        self.balancer().map(Balancer::log).unwrap_or_default()
    }

    fn pids(&self) -> Vec<u32> {
        match &self.process {
            Running::Nothing => Vec::new(),
            Running::Evenkeel(balancer) => vec![balancer.pid()],
            Running::Pgbouncer(pgbouncer) => pgbouncer.pids(),
            Running::Odyssey(odyssey) => odyssey.pids(),
            Running::Pgpool(pgpool) => pgpool.pids(),
        }
    }
}

/// Queries one value, as a user whose password equals its name, like those of the lab.
pub(crate) async fn ask(
    address: SocketAddr,
    (user, database): (&str, &str),
    query: &str,
) -> Result<Option<String>> {
    let mut config = tokio_postgres::Config::new();
    config.host(address.ip().to_string()).port(address.port());
    config.user(user).password(user).dbname(database);
    let asking = async {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client.simple_query(query).await
    };
    let messages = timeout(ASK_LIMIT, asking).await??;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

/// Returns the pooling sections of the config. The monitor is PostgreSQL's superuser here: it also
/// reads the clients' verifiers.
fn pooling(
    kind: PoolerKind,
    listen: SocketAddr,
    servers: &[Server],
    options: &PoolerOptions,
) -> String {
    let io = match kind {
        PoolerKind::Epoll => "epoll",
        _ => "io_uring",
    };
    let protocol = options.driver.protocol();
    let account = match options.driver {
        Driver::Mysql => "monitor",
        Driver::Pgsql => "postgres",
    };
    let servers: Vec<String> = servers
        .iter()
        .map(|one| {
            format!(
                "  {{ name = {:?}, address = \"{}\" }},\n",
                one.name, one.address
            )
        })
        .collect();
    format!(
        "[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 3000\n\n\
         [[service]]\nname = {protocol:?}\nprotocol = {protocol:?}\nlisten = \"{listen}\"\n\
         max_connections = 20000\nservers = [\n{}]\n{}\n\
         [service.monitor]\nuser = {account:?}\npassword = {account:?}\n\
         [service.pool]\nmode = {:?}\nsize = {}\n{}\n[service.split]\nreads = {}\n{}\n",
        servers.concat(),
        options.extra,
        options.mode.name(),
        options.size,
        options.pool,
        options.reads,
        options.split,
    )
}

fn forwarding(listen: SocketAddr, servers: &[Server], driver: Driver) -> String {
    let probe = driver.protocol();
    let service = ServiceSpec {
        name: probe,
        listen,
        role: "primary",
        further: "",
    };
    let engine = "[engine]\nshutdown_limit_ms = 3000\n\n";
    format!("{engine}{}", service.toml(probe, servers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_a_pool_is_toml_with_its_settings() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 20_001));
        let options = PoolerOptions {
            reads: true,
            extra: "query_timeout_ms = 5".to_owned(),
            pool: "user_size = 6".to_owned(),
            split: "wait_ms = 7".to_owned(),
            ..PoolerOptions::default()
        };
        let config = pooling(PoolerKind::Epoll, listen, &[], &options);
        let table: toml::Table = config.parse().expect("it is TOML");
        let service = &table["service"][0];
        assert_eq!(table["engine"]["io"].as_str(), Some("epoll"));
        assert_eq!(service["query_timeout_ms"].as_integer(), Some(5));
        assert_eq!(service["protocol"].as_str(), Some("postgres"));
        assert_eq!(service["pool"]["mode"].as_str(), Some("transaction"));
        assert_eq!(service["pool"]["user_size"].as_integer(), Some(6));
        assert_eq!(service["split"]["reads"].as_bool(), Some(true));
        assert_eq!(service["split"]["wait_ms"].as_integer(), Some(7));
    }
}
