//! Tests of commands that a client sends after its transaction was lost with the server, before it
//! knows.

use evenkeel_lab::{Server, eventually, rootfs};

use super::client::{Client, Login, Value};
use super::stage::{ONE, TestBed, shared, start_mysql, start_own};
use crate::harness::progress::wait_clients;
use crate::harness::{DRIVERS, LIMIT};

/// Ends the server connection of an idle client, and waits until Evenkeel knows.
fn lose(server: &Server, bed: &TestBed, client: &mut Client) {
    let backend = client.backend();
    server.sql(&format!("kill {backend}")).unwrap();
    let pins = || bed.status()["database"]["pins"].clone();
    let waited = eventually(LIMIT, "nothing binds any more", || {
        Ok((pins() == serde_json::json!([])).then_some(()))
    });
    waited.unwrap_or_else(|error| panic!("{error}: {}", pins()));
}

fn sends_ahead_and_loses(server: &Server) {
    for io in DRIVERS {
        let bed = TestBed::before(server, io, ONE);
        let mut client = bed.client();
        client.run("drop table if exists sent_ahead");
        client.run("create table sent_ahead (v text)");
        client.prepare("add", "insert into sent_ahead values (?)");
        client.run("begin");
        client.run("insert into sent_ahead values ('never')");
        lose(server, &bed, &mut client);
        client.send_long_data("add", 0, b"once");
        let reply = client.execute("add", &[Value::Sent]);
        assert!(reply[0].starts_with("error 1213 "), "{io}: {reply:?}");
        client.run("rollback");
        client.run("begin");
        client.send_long_data("add", 0, b"once");
        let reply = client.execute("add", &[Value::Sent]);
        assert!(reply[0].starts_with("ok rows=1 "), "{io}: {reply:?}");
        client.run("commit");
        assert_eq!(client.value("select v from sent_ahead"), "once", "{io}");
    }
}

/// TO SEE THIS RED: keep data on the server that was sent for a refused execution.
#[test]
fn a_value_that_was_sent_ahead_of_a_refused_execution_is_not_in_the_row_of_the_next_one() {
    sends_ahead_and_loses(shared());
}

#[test]
fn nor_is_it_at_mysql() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-lost");
    sends_ahead_and_loses(&server);
}

/// MySQL ends idle connections by an error with the number of MariaDB's "referenced trigger does
/// not exist". TO SEE THIS RED: decide by the number alone.
#[test]
fn a_statement_that_fails_by_the_number_of_an_idle_end_is_not_run_again_and_ends_nothing() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        client.run("create or replace table numbered (v int)");
        let fails = "signal sqlstate '45000' set mysql_errno = 4031";
        let reply = client.refusal(&format!(
            "begin not atomic insert into numbered values (1); {fails}; end"
        ));
        assert!(reply.starts_with("4031 "), "{io}: {reply}");
        assert_eq!(client.value("select count(*) from numbered"), "1", "{io}");
        client.run("create temporary table bound (v int)");
        let backend = client.backend();
        client.run("begin");
        client.run("insert into bound values (1)");
        let reply = client.refusal(fails);
        assert!(reply.starts_with("4031 "), "{io}: {reply}");
        client.run("commit");
        assert_eq!(client.value("select count(*) from bound"), "1", "{io}");
        assert_eq!(client.backend(), backend, "{io}");
    }
}

/// TO SEE THIS RED: answer these with the loss of the transaction, too.
#[test]
fn who_begins_anew_behind_a_lost_transaction_does_so_and_hears_nothing_of_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        let begin_anew: [fn(&mut Client) -> bool; 2] = [
            |client| client.reset()[0].starts_with("ok "),
            |client| client.change_user(&Login::default()).is_ok(),
        ];
        for begins_anew in begin_anew {
            client.run("begin");
            client.run("select 1");
            lose(shared(), &bed, &mut client);
            assert!(begins_anew(&mut client), "{io}");
            assert_eq!(client.value("select 'new'"), "new", "{io}");
        }
    }
}

/// TO SEE THIS RED: answer the reset as if its server had executed it.
#[test]
fn a_role_that_was_lost_with_its_server_in_a_reset_is_told_to_be() {
    let (_lab, server) = start_own();
    let grant = "create role kept; grant kept to sbtest@'127.0.0.1'";
    server.sql(grant).unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let mut client = bed.client();
        client.run("set role kept");
        server.freeze().unwrap();
        let resetting = std::thread::spawn(move || (client.reset(), client.was_last_word));
        // The status does not show a reset.
        std::thread::sleep(std::time::Duration::from_millis(300));
        server.kill().unwrap();
        server.start().unwrap();
        let (reply, was_last_word) = resetting.join().unwrap();
        assert!(reply[0].starts_with("error 1053 "), "{io}: {reply:?}");
        assert!(!was_last_word, "{io}: it is no answer");
    }
}

/// Clients take a packet with an unexpected number as the end of the connection, whatever its
/// content.
///
/// TO SEE THIS RED: give it the number of an unsolicited packet.
#[test]
fn who_is_bound_hears_as_the_answer_to_its_command_that_its_server_is_gone() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let mut client = bed.client();
        client.run("create temporary table mine (a int)");
        client.query_later("select sleep(30)");
        wait_clients(&bed.balancer, "pool", "active", 1);
        server.kill().unwrap();
        server.start().unwrap();
        let reply = client.reply();
        assert!(reply[0].starts_with("error 1053 "), "{io}: {reply:?}");
        assert!(!client.was_last_word, "{io}: it is no answer");
    }
}
