//! A MariaDB server that all tests share, and a pool of their own in front of it.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use evenkeel_lab::{Balancer, Lab, MariadbOptions, Server, eventually};
use serde_json::Value;

use super::client::{Client, Login};
use crate::rig::{LIMIT, loopback, service};

/// How the pool of a test is set up.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    /// Lines of `[service.pool]`.
    pub(crate) pool: &'a str,
    /// Lines of `[[service]]`.
    pub(crate) service: &'a str,
    /// Further tables.
    pub(crate) tables: &'a str,
    pub(crate) workers: u32,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            pool: "size = 4",
            service: "",
            tables: "",
            workers: 2,
        }
    }
}

/// One connection to the server: what is left on it meets the next client.
pub(crate) const ONE: Setup<'_> = Setup {
    pool: "size = 1",
    service: "",
    tables: "",
    workers: 2,
};

/// Evenkeel in front of a server.
pub(crate) struct Stage {
    pub(crate) balancer: Balancer,
    pub(crate) address: SocketAddr,
}

impl Stage {
    pub(crate) fn set(io: &str, setup: Setup<'_>) -> Stage {
        Stage::before(shared(), io, setup)
    }

    /// In front of a server of the test's own.
    pub(crate) fn before(server: &Server, io: &str, setup: Setup<'_>) -> Stage {
        let address = loopback();
        let balancer = Balancer::start(&config(server, address, io, setup)).unwrap();
        let stage = Stage { balancer, address };
        stage.wait_ready(&Login::default());
        stage
    }

    /// Who has just been started may not know yet who is primary.
    fn wait_ready(&self, login: &Login<'_>) {
        let mut last = String::new();
        let ready = eventually(LIMIT, "a first session", || {
            let entered = Client::enter(self.address, login);
            Ok(entered.map_err(|told| last = told).ok())
        });
        ready.unwrap_or_else(|error| panic!("{error} ({last}): {}", self.balancer.log()));
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn status(&self) -> Value {
        service(&self.balancer.status().unwrap(), "pool")
    }
}

pub(crate) fn config(server: &Server, listen: SocketAddr, io: &str, setup: Setup<'_>) -> String {
    let Setup {
        pool,
        service,
        tables,
        workers,
    } = setup;
    let address = server.address;
    format!(
        "[engine]\nio = {io:?}\nworkers = {workers}\nshutdown_limit_ms = 3000\n\n\
         [[service]]\nname = \"pool\"\nprotocol = \"mysql\"\nlisten = \"{listen}\"\n\
         servers = [{{ name = \"primary\", address = \"{address}\" }}]\n{service}\n\
         [service.monitor]\nuser = \"evenkeel\"\npassword = \"evenkeel\"\n\
         [service.pool]\n{pool}\n{tables}\n"
    )
}

/// The server of all tests that do it no harm; it ends with the tests.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<(Lab, Server)> = OnceLock::new();
    let (_, server) = SHARED.get_or_init(own);
    server
}

/// As its superuser.
pub(crate) fn sql(text: &str) -> String {
    shared().sql(text).unwrap()
}

/// A server for one test.
pub(crate) fn own() -> (Lab, Server) {
    let lab = Lab::new("mysql").unwrap();
    let cluster = lab.mariadb(MariadbOptions::default()).unwrap();
    let server = cluster.primary;
    server.sql(ACCOUNTS).unwrap();
    (lab, server)
}

/// Who asks for roles and accounts, and a second schema.
pub(crate) const ACCOUNTS: &str = "\
    CREATE USER evenkeel@'127.0.0.1' IDENTIFIED BY 'evenkeel';\
    GRANT REPLICATION CLIENT, SLAVE MONITOR, SHOW VIEW ON *.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON mysql.* TO evenkeel@'127.0.0.1';\
    CREATE DATABASE other; GRANT ALL ON other.* TO sbtest@'127.0.0.1';\
    SET GLOBAL max_allowed_packet = 67108864;";

/// What a conversation is like at the server, and that it is the same through each driver.
pub(crate) fn same_as_direct(setup: Setup<'_>, talk: impl Fn(SocketAddr) -> Vec<String>) {
    // Once to leave behind what the next ones find too.
    talk(shared().address);
    let direct = talk(shared().address);
    for io in crate::rig::DRIVERS {
        let stage = Stage::set(io, setup);
        let talking = AssertUnwindSafe(|| talk(stage.address));
        let heard = catch_unwind(talking).unwrap_or_else(|failed| {
            println!("{io}: {}", stage.balancer.log());
            resume_unwind(failed)
        });
        let pairs = heard.iter().zip(&direct);
        let same = pairs.take_while(|(heard, direct)| heard == direct).count();
        let around = |all: &[String]| -> Vec<String> {
            let shown = all.iter().skip(same.saturating_sub(6)).take(12);
            shown.map(|line| line.chars().take(160).collect()).collect()
        };
        let log = stage.balancer.log();
        assert!(
            heard == direct,
            "{io}: from line {same} on\n  {:#?}\nis at the server\n  {:#?}\n{log}",
            around(&heard),
            around(&direct)
        );
    }
}
