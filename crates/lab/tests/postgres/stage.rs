//! A PostgreSQL server that all tests share, and a pool of their own in front of it.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use evenkeel_lab::{Balancer, Lab, PostgresOptions, Server, eventually};
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
        stage.wait_ready();
        stage
    }

    /// As [`Stage::set`], where that is who may log in.
    pub(crate) fn set_as(io: &str, setup: Setup<'_>, login: &Login<'_>) -> Stage {
        Stage::ready_when(io, setup, |stage| {
            Client::enter(stage.address, login).is_ok()
        })
    }

    pub(crate) fn ready_when(
        io: &str,
        setup: Setup<'_>,
        is_ready: impl Fn(&Stage) -> bool,
    ) -> Stage {
        let address = loopback();
        let balancer = Balancer::start(&config(shared(), address, io, setup)).unwrap();
        let stage = Stage { balancer, address };
        let ready = eventually(LIMIT, "a first session", || {
            Ok(is_ready(&stage).then_some(()))
        });
        ready.unwrap_or_else(|error| panic!("{error}: {}", stage.balancer.log()));
        stage
    }

    /// Who has just been started may not know yet who is primary.
    fn wait_ready(&self) {
        let login = Login {
            user: "postgres",
            password: "postgres",
            database: "postgres",
            ..Login::default()
        };
        let ready = eventually(LIMIT, "a first session", || {
            Ok(Client::enter(self.address, &login).ok())
        });
        ready.unwrap_or_else(|error| panic!("{error}: {}", self.balancer.log()));
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn status(&self) -> Value {
        service(&self.balancer.status().unwrap(), "pool")
    }

    /// Sees to it that the client's next statement runs on another server connection.
    pub(crate) fn elsewhere(&self, client: &mut Client) -> Vec<Client> {
        let here = client.backend();
        let mut others = Vec::new();
        loop {
            let mut other = self.client();
            other.run("begin");
            let there = other.backend();
            others.push(other);
            if there == here {
                return others;
            }
        }
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
         [[service]]\nname = \"pool\"\nprotocol = \"postgres\"\nlisten = \"{listen}\"\n\
         servers = [{{ name = \"primary\", address = \"{address}\" }}]\n{service}\n\
         [service.monitor]\nuser = \"postgres\"\npassword = \"postgres\"\n\
         [service.pool]\n{pool}\n{tables}\n"
    )
}

/// The server of all tests that do it no harm; it ends with the tests.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<(Lab, Server)> = OnceLock::new();
    let (_, server) = SHARED.get_or_init(own);
    server
}

/// The superuser at that server.
pub(crate) fn admin() -> Client {
    let login = Login {
        user: "postgres",
        password: "postgres",
        ..Login::default()
    };
    Client::enter(shared().address, &login).unwrap_or_else(|told| panic!("{told}"))
}

/// A server for one test.
pub(crate) fn own() -> (Lab, Server) {
    let lab = Lab::new("postgres").unwrap();
    let cluster = lab.postgres(PostgresOptions::default()).unwrap();
    (lab, cluster.primary)
}

/// What a conversation is like at the server, and that it is the same through each driver.
pub(crate) fn same_as_direct(setup: Setup<'_>, talk: impl Fn(SocketAddr) -> Vec<String>) {
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
            let shown = all.iter().skip(same.saturating_sub(8)).take(16);
            shown.map(|line| line.chars().take(80).collect()).collect()
        };
        let log = stage.balancer.log();
        assert!(
            heard == direct,
            "{io}: from line {same} on\n  {:?}\nis at the server\n  {:?}\n{log}",
            around(&heard),
            around(&direct)
        );
    }
}
