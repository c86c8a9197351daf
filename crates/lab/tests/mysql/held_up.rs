//! Tests that idle connections of the pool and the monitor do not block an administrator's work on
//! the server.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{Server, rootfs};

use super::client::Client;
use super::stage::{Setup, TestBed, start_mysql, start_own};
use crate::harness::DRIVERS;

/// Limit for an administrator's statement; a lock that is held would block it much longer.
const SOON: Duration = Duration::from_secs(5);

/// Statements of a client that leave something on its connection, which is free afterwards.
const LEAVES: [&[&str]; 11] = [
    &["select * from held.t", "insert into held.t values (2)"],
    &["begin", "select * from held.t", "commit"],
    &["start transaction", "update held.t set a = 5", "rollback"],
    &[
        "set autocommit = 0",
        "select * from held.t",
        "commit",
        "set autocommit = 1",
    ],
    &[
        "set autocommit = 0",
        "insert into held.t values (3)",
        "commit",
    ],
    &[
        "use held",
        "set @word = 'left', sql_mode = 'ANSI'",
        "select @word from t",
    ],
    &[
        "lock tables held.t write",
        "select * from held.t",
        "unlock tables",
    ],
    &["flush tables held.t with read lock", "unlock tables"],
    &["select get_lock('held', 0)", "select release_lock('held')"],
    &[
        "prepare p from 'select * from held.t'",
        "execute p",
        "deallocate prepare p",
    ],
    // The client disconnects in the middle of a transaction.
    &["set autocommit = 0", "select * from held.t"],
];

/// Statements of the administrator, each with its reversal.
const DOES: [&str; 11] = [
    "alter table held.t add column b int",
    "alter table held.t drop column b",
    "lock tables held.t write; unlock tables",
    "rename table held.t to held.u; rename table held.u to held.t",
    "truncate table held.t",
    "flush tables with read lock; unlock tables",
    "flush tables held.t for export; unlock tables",
    "create trigger held.r before insert on held.t for each row set new.a = 7",
    "set global read_only = 1; set global read_only = 0",
    "drop user idle@'127.0.0.1'",
    "drop database held",
];

const MAKES: &str = "create database if not exists held; create table held.t (a int); \
    insert into held.t values (1); create user idle@'127.0.0.1' identified by 'idle'; \
    grant all on *.* to idle@'127.0.0.1'";

/// Lets all clients use the server, each in its own way; then they stay or disconnect.
fn leave(bed: &TestBed) -> Vec<Client> {
    let mut clients = Vec::new();
    for texts in LEAVES {
        let mut client = bed.client();
        client.prepare("p", "select * from held.t where a = ?");
        texts.iter().for_each(|text| client.run(text));
        clients.push(client);
    }
    // Half of them disconnect.
    clients.truncate(LEAVES.len() / 2);
    clients
}

fn is_held_up(server: &Server, text: &str) -> Option<String> {
    let limited = format!("set lock_wait_timeout = {}; {text}", SOON.as_secs());
    let since = Instant::now();
    let reply = server.sql(&limited);
    let took = since.elapsed();
    (reply.is_err() || took >= SOON).then(|| format!("{text}: {took:?}: {reply:?}"))
}

fn check(server: &Server, own: &str) {
    server
        .sql("grant all on *.* to sbtest@'127.0.0.1'")
        .unwrap();
    let mut wrong = Vec::new();
    for io in DRIVERS {
        for pool in ["size = 1", "size = 10"] {
            let setup = Setup {
                pool,
                ..Setup::default()
            };
            server.sql(MAKES).unwrap();
            let bed = TestBed::before(server, io, setup);
            let stay = leave(&bed);
            let does = [own].into_iter().chain(DOES);
            let held = does.filter_map(|text| is_held_up(server, text));
            wrong.extend(held.map(|what| format!("{io}: {pool}: {what}")));
            drop(stay);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Sessions in the middle of a transaction are waited for.
    server.sql(MAKES).unwrap();
    let bed = TestBed::before(server, DRIVERS[0], Setup::default());
    let mut busy = bed.client();
    busy.run("begin");
    busy.run("select * from held.t");
    assert!(is_held_up(server, DOES[0]).is_some());
}

/// TO SEE THIS RED: release a connection in the middle of a transaction.
#[test]
fn idle_connections_hold_up_nothing_at_mariadb() {
    let (_lab, server) = start_own();
    let backup = "backup stage start; backup stage block_commit; backup stage end";
    check(&server, backup);
}

#[test]
fn idle_connections_hold_up_nothing_at_mysql() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-held-up");
    check(&server, "lock instance for backup; unlock instance");
}

/// Clients stay logged in while the monitor queries. MySQL servers wait 2 s if any client is
/// connected.
fn check_stop(server: &Server) {
    let one = Client::connect(server.address);
    let since = Instant::now();
    server.stop().unwrap();
    let alone = since.elapsed();
    drop(one);
    for io in DRIVERS {
        server.start().unwrap();
        let bed = TestBed::before(server, io, Setup::default());
        let mut clients: Vec<Client> = (0..6).map(|_| bed.client()).collect();
        clients
            .iter_mut()
            .for_each(|client| client.query_later("select sleep(0.1)"));
        clients.iter_mut().for_each(|client| drop(client.reply()));
        thread::sleep(Duration::from_secs(1));
        let since = Instant::now();
        server.stop().unwrap();
        let took = since.elapsed();
        assert!(
            took < alone + Duration::from_secs(2),
            "{io}: {took:?}, {alone:?}"
        );
    }
}

#[test]
fn mariadb_ends_as_soon_as_without_idle_connections() {
    let (_lab, server) = start_own();
    check_stop(&server);
}

#[test]
fn mysql_ends_as_soon_as_without_idle_connections() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-ends");
    check_stop(&server);
}
