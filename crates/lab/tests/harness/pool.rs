//! Provides a pool in front of one server for a test, and compares conversations with direct ones.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use evenkeel_lab::{Balancer, Server, eventually, procfs};
use serde_json::Value;

use super::{DRIVERS, LIMIT, loopback, own, service};

/// Configuration of a test's pool.
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

/// Returns its config; the monitor's password equals its name.
pub(crate) fn config(
    (protocol, monitor): (&str, &str),
    server: &Server,
    listen: SocketAddr,
    io: &str,
    setup: Setup<'_>,
) -> String {
    let Setup {
        pool,
        service,
        tables,
        workers,
    } = setup;
    let address = server.address;
    format!(
        "[engine]\nio = {io:?}\nworkers = {workers}\nshutdown_limit_ms = 3000\n\n\
         [[service]]\nname = \"pool\"\nprotocol = {protocol:?}\nlisten = \"{listen}\"\n\
         servers = [{{ name = \"primary\", address = \"{address}\" }}]\n{service}\n\
         [service.monitor]\nuser = {monitor:?}\npassword = {monitor:?}\n\
         [service.pool]\n{pool}\n{tables}\n"
    )
}

/// Evenkeel in front of a server.
pub(crate) struct TestBed {
    pub(crate) balancer: Balancer,
    pub(crate) address: SocketAddr,
    /// Database or schema of the test that started it, for clients in other threads.
    pub(crate) own: Option<&'static str>,
}

impl TestBed {
    /// Starts it, and waits for the first successful login: the primary may be unknown just after
    /// the start.
    pub(crate) fn start(
        config: impl FnOnce(SocketAddr) -> String,
        mut try_in: impl FnMut(&TestBed) -> Result<(), String>,
    ) -> TestBed {
        let address = loopback();
        let balancer = Balancer::start(&config(address)).expect("evenkeel starts");
        let mut bed = TestBed {
            balancer,
            address,
            own: None,
        };
        let mut last = String::new();
        let ready = eventually(LIMIT, "a first session", || {
            Ok(try_in(&bed).map_err(|reply| last = reply).ok())
        });
        ready.unwrap_or_else(|error| panic!("{error} ({last}): {}", bed.balancer.log()));
        bed.own = own::known();
        bed
    }

    /// Returns the memory of one idle client in bytes. `open` connects one.
    pub(crate) fn bytes_per_client<C>(&self, open: impl Fn() -> C) -> u64 {
        const CLIENTS: u64 = 600;
        let memory_bytes = || procfs::memory_kb(&self.balancer.pids()) * 1024;
        // The first clients cause allocations that happen once in each worker.
        let _first: Vec<C> = (0..40).map(|_| open()).collect();
        let before_bytes = memory_bytes();
        let _idle: Vec<C> = (0..CLIENTS).map(|_| open()).collect();
        memory_bytes().saturating_sub(before_bytes) / CLIENTS
    }

    pub(crate) fn status(&self) -> Value {
        let status = self.balancer.status().expect("a status");
        service(&status, "pool")
    }
}

/// Checks that a conversation through each driver equals the direct one.
pub(crate) fn same_as(
    direct: &[String],
    set: impl Fn(&str) -> TestBed,
    talk: impl Fn(SocketAddr) -> Vec<String>,
) {
    for io in DRIVERS {
        let bed = set(io);
        let talking = AssertUnwindSafe(|| talk(bed.address));
        let received = catch_unwind(talking).unwrap_or_else(|failed| {
            println!("{io}: {}", bed.balancer.log());
            resume_unwind(failed)
        });
        let pairs = received.iter().zip(direct);
        let same = pairs
            .take_while(|(received, direct)| received == direct)
            .count();
        let around = |all: &[String]| -> Vec<String> {
            let shown = all.iter().skip(same.saturating_sub(8)).take(16);
            shown.map(|line| line.chars().take(160).collect()).collect()
        };
        let log = bed.balancer.log();
        assert!(
            received == direct,
            "{io}: from line {same} on\n  {:#?}\nis at the server\n  {:#?}\n{log}",
            around(&received),
            around(direct)
        );
    }
}
