//! Tests of a server whose connection limit is reached: it is not dead, and clients wait for a
//! connection.

use evenkeel_lab::eventually;

use super::client::{Client, Login};
use super::limits::was_ended;
use super::stage::{Setup, TestBed, shared, sql};
use crate::harness::{DRIVERS, LIMIT};

/// Creates a user with a limit of connections.
fn may_have(user: &'static str, connections: u32) -> Login<'static> {
    sql(&format!("drop user if exists {user}@'127.0.0.1'"));
    sql(&format!(
        "create user {user}@'127.0.0.1' identified by 'few' with max_user_connections {connections}"
    ));
    sql(&format!("grant all on * to {user}@'127.0.0.1'"));
    Login {
        user,
        password: "few",
        ..Login::default()
    }
}

/// Logs in directly at the server, after recently closed connections have ended there.
fn connect_direct(login: &Login<'_>) -> Client {
    let entered = || Ok(Client::log_in(shared().address, login).ok());
    eventually(LIMIT, "room for a connection", entered).unwrap()
}

/// A query is ended through another connection of its user.
///
/// TO SEE THIS RED: try once, and report nothing.
#[test]
fn a_time_limit_waits_for_the_connection_that_it_needs_and_tells_when_there_is_none() {
    let login = may_have("two", 2);
    let setup = Setup {
        service: "query_timeout_ms = 300",
        ..Setup::default()
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, setup);
        let mut client = Client::with(bed.address, &login);
        client.value("select 1");
        let mut direct = connect_direct(&login);
        client.query_later("select sleep(3)");
        direct.value("select sleep(0.8)");
        drop(direct);
        assert!(was_ended(&client.reply()), "{io}: there was room at last");

        let mut direct = connect_direct(&login);
        client.query_later("select sleep(3)");
        assert_eq!(client.reply()[1], "row 0", "{io}");
        direct.value("select 1");
        let log = bed.balancer.log();
        assert!(log.contains("cannot cancel query"), "{io}: {log}");
    }
}

#[test]
fn a_user_whose_connections_are_all_in_use_waits_for_one() {
    let login = may_have("few", 1);
    let setup = Setup {
        pool: "size = 4",
        ..Setup::default()
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, setup);
        let mut first = Client::with(bed.address, &login);
        first.run("begin");
        assert_eq!(first.value("select 'first'"), "first", "{io}");
        let mut second = Client::with(bed.address, &login);
        second.query_later("select 'second'");
        // The server has refused it by now; no other client has lost anything.
        assert_eq!(first.value("select sleep(0.3)"), "0", "{io}");
        let status = bed.status();
        assert_eq!(bed.client().value("select 1"), "1", "{io}: {status}");
        first.run("commit");
        let received = second.reply();
        let log = bed.balancer.log();
        assert!(
            received.contains(&"row second".to_owned()),
            "{io}: {received:?} {log}"
        );
    }
}
