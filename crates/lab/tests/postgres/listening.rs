//! Tests of LISTEN in transaction pooling: one server connection listens for all clients, who hold
//! none.

use evenkeel_lab::eventually;

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{ONE, Setup, TestBed, admin, same_as_direct};
use crate::harness::{DRIVERS, LIMIT};

const TWO: Setup<'static> = Setup {
    pool: "size = 2\nwait_ms = 3000",
    ..ONE
};

/// Connections that listen for clients of the test's database.
const SHARED: &str = "select count(*) from pg_stat_activity where datname = current_database() \
                      and application_name = 'evenkeel listen'";

/// Waits until the query returns the value at the server.
fn wait_for(query: &str, value: &str) {
    let mut admin = admin();
    let waited = eventually(LIMIT, query, || {
        Ok((admin.value(query) == value).then_some(()))
    });
    waited.unwrap();
}

fn is_refused(reply: &[String]) -> bool {
    reply
        .iter()
        .any(|line| line.starts_with('E') || line == "end")
}

/// Listens as drivers do: by a query, in one batch, with the statement prepared before, in a block.
fn listen(client: &mut Client, habit: usize, channel: &str) {
    let text = format!("listen {channel}");
    let execute = |name| Script::new().bind(name, &[]).execute().sync();
    match habit {
        0 => client.run(&text),
        1 => {
            let batch = Script::new().parse("", &text).bind("", &[]);
            let batch = batch.describe_portal("").execute().sync();
            let reply = client.exchange(&batch, 1);
            assert_eq!(reply, ["1", "2", "n", "C LISTEN", "Z Idle"]);
        }
        2 => {
            let name = format!("p{channel}");
            client.send_script(&Script::new().parse(&name, &text).describe(&name).flush());
            let replies = [(); 3].map(|()| client.receive_message());
            assert_eq!(replies, ["1", "t", "n"]);
            let reply = client.exchange(&execute(&name), 1);
            assert_eq!(reply, ["2", "C LISTEN", "Z Idle"]);
        }
        3 => {
            let reply = client.query(&format!(
                "DO $$BEGIN LISTEN {channel};\nLISTEN other; END$$"
            ));
            assert_eq!(reply, ["C DO", "Z Idle"]);
        }
        _ => {
            let parse = Script::new().parse("", &text).sync();
            assert_eq!(client.exchange(&parse, 1), ["1", "Z Idle"]);
            let reply = client.exchange(&execute(""), 1);
            assert_eq!(reply, ["2", "C LISTEN", "Z Idle"]);
        }
    }
}

/// TO SEE THIS RED: let the session's own connection execute LISTEN.
#[test]
fn clients_that_listen_hold_no_connection_and_each_gets_what_it_listens_for() {
    for io in DRIVERS {
        for habit in 0..5 {
            let bed = TestBed::set_up(io, TWO);
            let mut listeners: Vec<Client> = (0..5).map(|_| bed.client()).collect();
            for (index, listener) in listeners.iter_mut().enumerate() {
                listen(listener, habit, if index < 3 { "jobs" } else { "mails" });
            }
            let (mut first, mut second) = (bed.client(), bed.client());
            first.run("begin");
            assert_eq!(second.value("select 1"), "1", "{io} {habit}");
            second.run("notify jobs, 'a'");
            first.run("notify mails, 'b'");
            first.run("commit");
            for (index, listener) in listeners.iter_mut().enumerate() {
                let expected = if index < 3 { "A jobs a" } else { "A mails b" };
                assert_eq!(listener.receive_message(), expected, "{io} {habit}");
                assert_eq!(listener.value("select 1"), "1", "{io} {habit}");
            }
            wait_for(SHARED, "1");
            drop(listeners);
            wait_for(SHARED, "0");
        }
    }
}

/// TO SEE THIS RED: answer LISTEN before the server has.
#[test]
fn a_notification_after_the_answer_to_listen_always_arrives() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut admin, mut sender) = (admin(), bed.client());
        let mut listener = bed.client();
        for round in 0..300 {
            if round % 10 == 0 {
                listener = bed.client();
            }
            let channel = format!("round_{}", round % 7);
            listen(&mut listener, round % 4 / 3, &channel);
            let notifier = if round % 2 == 0 {
                &mut admin
            } else {
                &mut sender
            };
            notifier.run(&format!("notify {channel}, '{round}'"));
            let expected = format!("A {channel} {round}");
            assert_eq!(listener.receive_message(), expected, "{io}");
            if round % 3 == 0 {
                listener.run(&format!("unlisten {channel}"));
            }
        }
    }
}

/// TO SEE THIS RED: let UNLISTEN of all kinds only reach the session's own connection.
#[test]
fn a_client_that_stops_to_listen_gets_nothing_and_the_server_neither() {
    let prepared = |text: &str| Script::new().parse("", text).bind("", &[]).execute().sync();
    let query = |text: &str| Script::new().query(text);
    for io in DRIVERS {
        for (stop, replies) in [
            (query("unlisten a"), 1),
            (query("UNLISTEN \"a\";"), 1),
            (query("unlisten *"), 1),
            (query("discard all"), 1),
            (
                query("select pg_advisory_unlock_all(); close all; unlisten *; reset all"),
                1,
            ),
            (query("DO $$BEGIN UNLISTEN \"a\"; END$$"), 1),
            (query("begin").query("unlisten a").query("commit"), 3),
            (prepared("unlisten a"), 1),
            (prepared("unlisten *"), 1),
        ] {
            let bed = TestBed::set_up(io, TWO);
            let (mut listener, mut other, mut sender) = (bed.client(), bed.client(), bed.client());
            listener.run("listen a");
            other.run("listen b");
            let reply = listener.exchange(&stop, replies);
            assert!(!is_refused(&reply), "{io}: {reply:?}");
            wait_for(
                "select count(*) from pg_stat_activity where query = 'UNLISTEN \"a\"' \
                 and application_name = 'evenkeel listen' and datname = current_database()",
                "1",
            );
            sender.run("notify a; notify b, 'last'");
            assert_eq!(other.receive_message(), "A b last", "{io}");
            assert_eq!(listener.query("select 1")[0], "T ?column?", "{io}");
        }
    }
}

/// TO SEE THIS RED: end the listening when UNLISTEN is sent.
#[test]
fn an_unlisten_that_is_rolled_back_ends_nothing() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut listener, mut sender) = (bed.client(), bed.client());
        listener.run("listen a");
        for texts in [
            &["begin", "unlisten a", "rollback"][..],
            &["begin", "unlisten *", "rollback"],
            &["begin", "unlisten *", "select 1 / 0", "commit"],
            &["unlisten *; select 1 / 0"],
        ] {
            texts.iter().for_each(|text| drop(listener.query(text)));
            sender.run("notify a, 'still'");
            assert_eq!(listener.receive_message(), "A a still", "{io}: {texts:?}");
        }
    }
}

/// TO SEE THIS RED: deliver notifications at any time.
#[test]
fn notifications_wait_for_the_end_of_the_transaction_and_of_the_reply() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut listener, mut sender) = (bed.client(), bed.client());
        listener.run("listen a");
        listener.run("begin");
        sender.run("notify a, '1'");
        sender.run("notify a, '2'");
        assert_eq!(listener.query("select 1").len(), 4, "{io}");
        assert_eq!(listener.query("commit"), ["C COMMIT", "Z Idle"], "{io}");
        assert_eq!(listener.receive_message(), "A a 1", "{io}");
        assert_eq!(listener.receive_message(), "A a 2", "{io}");
        listener.run_later("select repeat('x', 10000) from generate_series(1, 2000)");
        assert_eq!(listener.receive_message(), "T repeat", "{io}");
        sender.run("notify a, '3'");
        let reply = listener.reply();
        assert!(reply.iter().all(|line| !line.starts_with('A')), "{io}");
        assert_eq!(listener.receive_message(), "A a 3", "{io}");
    }
}

/// TO SEE THIS RED: go on silently when the shared connection is lost.
#[test]
fn clients_that_listen_are_ended_when_the_shared_connection_is_lost() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut listeners: Vec<Client> = (0..3).map(|_| bed.client()).collect();
        let mut other = bed.client();
        other.run("listen c");
        other.run("unlisten c");
        listeners.iter_mut().for_each(|one| one.run("listen a"));
        listeners[1].run("begin");
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where \
                   datname = current_database() and application_name = 'evenkeel listen'";
        assert_eq!(admin().value(end), "1", "{io}");
        for index in [0, 2] {
            assert_eq!(listeners[index].reply(), ["E 57P01", "end"], "{io}");
        }
        assert_eq!(listeners[1].value("select 'goes on'"), "goes on", "{io}");
        let reply = listeners[1].query("commit");
        assert_eq!(reply, ["C COMMIT", "Z Idle"], "{io}");
        assert_eq!(listeners[1].reply(), ["E 57P01", "end"], "{io}");
        assert_eq!(other.value("select 'goes on'"), "goes on", "{io}");
        let mut again = bed.client();
        again.run("listen a");
        other.run("notify a, 'again'");
        assert_eq!(again.receive_message(), "A a again", "{io}");
    }
}

/// TO SEE THIS RED: keep the channels of clients that are gone.
#[test]
fn the_end_of_a_client_ends_its_listening() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        for with_reset in [true, false] {
            let mut listener = bed.client();
            listener.run("listen gone");
            wait_for(SHARED, "1");
            listener.abort(with_reset);
            wait_for(SHARED, "0");
        }
    }
}

/// TO SEE THIS RED: compare channels as they are written.
#[test]
fn channels_are_folded_and_cut_as_by_the_server() {
    let long = "Long_".repeat(20);
    let quoted = format!("\"{long}\"");
    let umlauts = format!("\"{}\"", "ü".repeat(40));
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut listener, mut sender) = (bed.client(), bed.client());
        for channel in [
            "Jobs",
            "\"Jobs\"",
            "\"a \"\"b\"\"; c\"",
            "Größe",
            &long,
            &quoted,
            &umlauts,
        ] {
            listener.run(&format!("listen {channel}"));
            sender.run(&format!("notify {channel}, 'x'"));
            let heard = listener.receive_message();
            assert!(
                heard.starts_with("A ") && heard.ends_with(" x"),
                "{io}: {channel}: {heard}"
            );
            sender.run("notify jOBS2");
        }
        wait_for(SHARED, "1");
    }
}

/// TO SEE THIS RED: quote the channel for the server.
#[test]
fn replies_are_those_of_the_server() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        for text in [
            "listen a",
            "/* job */ LISTEN \"B\" ; ;",
            "listen select",
            "listen \"\"",
            "listen a.b",
            "listen a; select 1",
            "begin",
            "listen c",
            "rollback",
            "unlisten a",
            "unlisten *",
            "select 1",
        ] {
            received.extend(client.query(text));
        }
        let batches = Script::new()
            .parse("l", "listen a")
            .describe("l")
            .bind("l", &[])
            .execute()
            .bind("l", &[])
            .execute()
            .sync()
            .parse("l", "listen b")
            .bind("l", &[])
            .execute()
            .sync()
            .bind("l", &[])
            .execute()
            .sync();
        received.extend(client.exchange(&batches, 3));
        received.extend(client.query("select 1"));
        received
    });
}

/// TO SEE THIS RED: let the shared connection listen for a client of any encoding.
#[test]
fn a_client_of_another_encoding_listens_itself() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let login = Login {
            settings: &[("client_encoding", "LATIN1")],
            ..bed.login()
        };
        let mut listener = Client::log_in(bed.address, &login).unwrap();
        let mut sender = bed.client();
        listener.run("listen a");
        sender.run("notify a, 'Größe'");
        // The bytes of the reply are not UTF-8.
        assert_eq!(
            listener.receive_message(),
            "A a Gr\u{fffd}\u{fffd}e",
            "{io}"
        );
        wait_for(SHARED, "0");
    }
}

/// TO SEE THIS RED: keep the answer of the shared connection for the next LISTEN, or the listening.
#[test]
fn a_listen_that_the_server_skips_is_not_executed_later_either() {
    let prepare = |text: &str| Script::new().parse("l", text).sync();
    // The Bind fails, because the statement has no parameter.
    let skipped = || Script::new().bind("l", &["1"]).execute().sync();
    let later = || Script::new().close_portal("").execute_of("", 2).sync();
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("listen a"), 1);
        client.send_script(&skipped());
        client.send_script(&later());
        received.extend((0..2).flat_map(|_| client.reply()));
        client.send_script(&Script::new().bind("l", &["1"]).flush());
        received.push(client.receive_message());
        received.extend(client.exchange(&Script::new().execute().sync(), 1));
        received.extend(client.exchange(&later(), 1));
        received.extend(client.query("notify a, 'unwanted'"));
        received.extend(client.query("select 1"));
        received
    });
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut client = bed.client();
        client.exchange(&prepare("listen a"), 1);
        client.run("listen b");
        client.exchange(&skipped(), 1);
        client.run("notify a, 'unwanted'; notify b, 'wanted'");
        assert_eq!(client.receive_message(), "A b wanted", "{io}");
        client.exchange(&prepare("listen b").sync(), 2);
        // The client has listened to it before.
        client.exchange(&skipped(), 1);
        client.run("notify b, 'still'");
        assert_eq!(client.receive_message(), "A b still", "{io}");
    }
}
