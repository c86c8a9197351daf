//! Tests of the number of connections that a service keeps: after a reload, after the removal of
//! the service or a server, and when other services need connections.

use std::time::{Duration, Instant};

use super::client::{Client, Login};
use super::stage::{KIND, Setup, TestBed, admin, shared};
use crate::harness::{DRIVERS, done, loopback, pool, server, wait_until};

/// Reloads the config with `from` replaced by `to`.
fn reload(bed: &TestBed, from: &str, to: &str) {
    let config = bed.balancer.config();
    assert!(config.contains(from), "{config}");
    bed.balancer.reload(&config.replace(from, to)).unwrap();
}

/// Returns the number of server connections in the pools of the service.
fn open(bed: &TestBed) -> u64 {
    let pools = bed.status()["database"]["pools"].clone();
    let pools = pools.as_array().into_iter().flatten();
    pools.filter_map(|pool| pool["connections"].as_u64()).sum()
}

/// Returns clients that each had a server connection, all at the same time.
fn busy(address: std::net::SocketAddr, name: &str, count: usize) -> Vec<Client> {
    let parameters = [("application_name", name)];
    let mut clients: Vec<Client> = (0..count)
        .map(|_| Client::with(address, &parameters))
        .collect();
    clients.iter_mut().for_each(|client| client.run("begin"));
    clients.iter_mut().for_each(|client| client.run("commit"));
    clients
}

/// Waits until no server connection was last used under that name.
fn until_none_of(bed: &TestBed, name: &str) {
    let mut admin = admin();
    let count = format!(
        "select count(*) from pg_stat_activity where application_name = '{name}' \
         and usename = 'sbtest' and datname = current_database()"
    );
    wait_until(&bed.balancer, "the end of idle connections", || {
        admin.value(&count) == "0"
    });
}

#[test]
fn a_reload_of_a_size_holds_for_pools_in_use() {
    let users = "[service.pool.users.sbtest]\nsize = 1";
    for io in DRIVERS {
        for (pool, tables) in [("size = 1", ""), ("size = 9", users)] {
            let setup = Setup {
                pool,
                tables,
                ..Setup::default()
            };
            let bed = TestBed::set_up(io, setup);
            let (mut first, mut second) = (bed.client(), bed.client());
            first.run("begin");
            second.run_later("begin");
            assert!(second.is_silent_for(Duration::from_millis(300)));
            reload(&bed, "size = 1", "size = 2");
            assert!(!second.reply()[0].starts_with('E'), "{io}: {pool}");
            reload(&bed, "size = 2", "size = 1");
            first.run("commit");
            second.run("commit");
            wait_until(&bed.balancer, "as many as may be", || open(&bed) <= 2);
            first.run("begin");
            second.run_later("begin");
            let waits = second.is_silent_for(Duration::from_millis(300));
            assert!(waits, "{io}: {pool}");
        }
    }
}

#[test]
fn nothing_is_kept_open_for_a_service_that_left() {
    for io in DRIVERS {
        let name = format!("left-{io}");
        let setup = Setup {
            pool: "size = 4\nmin_idle = 2",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        drop(busy(bed.address, &name, 3));
        reload(&bed, "name = \"pool\"", "name = \"renamed\"");
        assert_eq!(bed.client().value("select 'in'"), "in", "{io}");
        until_none_of(&bed, &name);
    }
}

#[test]
fn nothing_is_kept_open_to_a_server_that_is_drained() {
    for io in DRIVERS {
        let name = format!("drained-{io}");
        let setup = Setup {
            pool: "size = 4\nmin_idle = 2",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut clients = busy(bed.address, &name, 3);
        clients[0].run("begin");
        done(&bed.balancer, &["drain", "primary"]);
        wait_until(&bed.balancer, "the end of idle connections", || {
            server(&bed.balancer, "pool/primary")["sessions"]["current"] == 1
        });
        assert_eq!(clients[0].value("select 'on'"), "on", "{io}");
        clients[0].run("commit");
        until_none_of(&bed, &name);
        clients[1].run_later("select 1");
        done(&bed.balancer, &["undrain", "primary"]);
        assert!(clients[1].reply().contains(&"D 1".to_owned()), "{io}");
    }
}

#[test]
fn an_idle_connection_of_one_service_makes_room_for_another_at_a_full_server() {
    let setup = Setup {
        pool: "size = 3",
        ..Setup::default()
    };
    for io in DRIVERS {
        let other = loopback();
        let limited = |config: String| config.replace(" }]", ", max_connections = 3 }]");
        let both = |address| {
            let own = limited(pool::config(KIND, shared(), address, io, setup));
            let second = limited(pool::config(KIND, shared(), other, io, setup));
            let second = second.replace("\"pool\"", "\"other\"");
            let (_, second) = second.split_once("\n\n").unwrap();
            format!("{own}\n{second}")
        };
        let bed = TestBed::start(both, |bed| {
            Client::log_in(bed.address, &Login::default()).map(|_| ())
        });
        let mut clients = busy(bed.address, "neighbour", 3);
        let started = Instant::now();
        let mut guest = Client::connect(other);
        assert_eq!(guest.value("select 'in'"), "in", "{io}");
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(6), "{io}: {waited:?}");
        for client in &mut clients {
            assert_eq!(client.value("select 'on'"), "on", "{io}");
        }
    }
}

#[test]
fn a_new_process_finds_places_at_a_server_whose_connections_the_old_one_does_not_use() {
    let setup = Setup {
        pool: "size = 4\nmin_idle = 4",
        ..Setup::default()
    };
    for io in DRIVERS {
        let config = |address| {
            let config = pool::config(KIND, shared(), address, io, setup);
            let config = config.replace(" }]", ", max_connections = 4 }]");
            config.replace("limit_ms = 3000", "limit_ms = 60000")
        };
        let bed = TestBed::start(config, |bed| {
            Client::log_in(bed.address, &Login::default()).map(|_| ())
        });
        let mut idle: Vec<Client> = (0..6).map(|_| bed.client()).collect();
        let mut clients = busy(bed.address, "over-an-upgrade", 4);
        bed.balancer.upgrade(&[]).unwrap();
        let started = Instant::now();
        let mut newcomer = bed.client();
        assert_eq!(newcomer.value("select 'in'"), "in", "{io}");
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(7), "{io}: {waited:?}");
        for client in clients.iter_mut().chain(&mut idle) {
            assert_eq!(client.value("select 'on'"), "on", "{io}");
        }
        assert_eq!(newcomer.value("select 'still'"), "still", "{io}");
    }
}
