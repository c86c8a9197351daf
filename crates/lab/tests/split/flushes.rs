//! Tests of batches whose clients need replies before the Sync: where they run, and where later
//! messages run.

use std::time::Duration;

use crate::client::Client;
use crate::harness::DRIVERS;
use crate::script::Script;
use crate::stage::{TestBed, WHERE};

const INSERT: &str = "INSERT INTO flushed VALUES (1)";

fn start_bed(io: &str) -> (TestBed, String) {
    let bed = TestBed::set_up(io, "primary_reads = false\nconsistency = \"eventual\"");
    bed.direct().run("CREATE TABLE flushed (a int)");
    bed.scenario.wait_caught_up().unwrap();
    bed.wait_split(&bed.client());
    let primary = format!("D {}", bed.port_of_primary());
    (bed, primary)
}

fn run(text: &str) -> Script {
    Script::new().parse("", text).bind("", &[]).execute()
}

fn prepare(name: &str, text: &str) -> Script {
    Script::new().parse(name, text).describe(name).flush()
}

fn execute(name: &str) -> Script {
    Script::new().bind(name, &[]).execute().sync()
}

fn joined<const N: usize>(scripts: [Script; N]) -> Script {
    Script(scripts.map(|one| one.0).concat())
}

fn receive_replies(client: &mut Client, messages: usize) -> Vec<String> {
    (0..messages).map(|_| client.receive_message()).collect()
}

#[test]
fn a_write_behind_a_flush_runs_on_the_primary_with_what_is_before_it() {
    for io in DRIVERS {
        let (bed, primary) = start_bed(io);
        let mut client = Client::connect(bed.listen);
        let read = || run(WHERE).flush();
        let slow = || run("SELECT pg_sleep(0.3)");
        let all = joined([read(), slow(), run(INSERT).sync()]);
        let reply = client.exchange(&all, 1);
        assert_eq!(reply[2], primary, "{io}: {reply:?}");
        assert_eq!(reply[reply.len() - 2..], ["C INSERT 0 1", "Z Idle"], "{io}");
        client.send_script(&read());
        let received = receive_replies(&mut client, 4);
        assert_eq!(received[2], primary, "{io}: {received:?}");
        let reply = client.exchange(&run(INSERT).sync(), 1);
        assert_eq!(reply, ["1", "2", "C INSERT 0 1", "Z Idle"], "{io}");
        // A batch that has ended with its Sync is a read like any other.
        let reply = client.exchange(&joined([read(), Script::new().sync()]), 1);
        assert_ne!(reply[2], primary, "{io}: {reply:?}");
    }
}

#[test]
fn a_write_behind_a_flush_that_has_no_answer_yet_takes_its_batch_to_the_primary() {
    for io in DRIVERS {
        let (bed, primary) = start_bed(io);
        let mut client = Client::connect(bed.listen);
        let slow = "/* evenkeel: replica */ SELECT inet_server_port(), pg_sleep(0.5)";
        client.send_script(&run(slow).flush());
        assert!(client.is_silent_for(Duration::from_millis(100)), "{io}");
        // A replica would accept the lock, but no other session checks for it there.
        let lock = "SELECT inet_server_port(), pg_advisory_xact_lock(5)";
        let reply = client.exchange(&run(lock).sync(), 1);
        let rows: Vec<_> = reply.iter().filter(|line| line.starts_with('D')).collect();
        assert_eq!(rows, [&format!("{primary}|"); 2], "{io}: {reply:?}");
    }
}

#[test]
fn what_is_only_prepared_is_read_on_a_replica_and_written_on_the_primary() {
    for io in DRIVERS {
        let (bed, primary) = start_bed(io);
        let mut client = Client::connect(bed.listen);
        client.send_script(&prepare("r", WHERE));
        assert_eq!(receive_replies(&mut client, 3)[..2], ["1", "t"], "{io}");
        let reply = client.exchange(&execute("r"), 1);
        assert_ne!(reply[1], primary, "{io}: {reply:?}");
        client.send_script(&prepare("s", "SELECT inet_server_port() + 0"));
        assert_eq!(receive_replies(&mut client, 3)[..2], ["1", "t"], "{io}");
        client.send_script(&prepare("w", INSERT));
        assert_eq!(receive_replies(&mut client, 3), ["1", "t", "n"], "{io}");
        let reply = client.exchange(&execute("w"), 1);
        assert_eq!(reply, ["2", "C INSERT 0 1", "Z Idle"], "{io}");
        let reply = client.exchange(&execute("s"), 1);
        assert_eq!(reply[2..], ["C SELECT 1", "Z Idle"], "{io}");
    }
}

#[test]
fn a_write_behind_an_open_cursor_of_a_replica_is_refused_there() {
    for io in DRIVERS {
        let (bed, primary) = start_bed(io);
        let mut client = Client::connect(bed.listen);
        let open = || {
            let cursor = Script::new().parse("", "SELECT inet_server_port() FROM pg_class");
            cursor.bind("", &[]).describe_portal("").flush()
        };
        client.send_script(&open());
        assert_eq!(receive_replies(&mut client, 2), ["1", "2"], "{io}");
        client.send_script(&Script::new().execute_of("", 1).flush());
        let received = receive_replies(&mut client, 3);
        assert_ne!(received[1], primary, "{io}: {received:?}");
        for (write, answer) in [
            (run(INSERT).sync(), "E 22P02"),
            (Script::new().query("SELECT pg_advisory_lock(5)"), "E 42501"),
        ] {
            let reply = client.exchange(&write, 1);
            assert_eq!(reply, [answer, "Z Idle"], "{io}");
            client.send_script(&open());
            receive_replies(&mut client, 3);
        }
        assert_eq!(
            client.exchange(&Script::new().sync(), 1),
            ["Z Idle"],
            "{io}"
        );
        let reply = client.exchange(&run(INSERT).sync(), 1);
        assert_eq!(reply, ["1", "2", "C INSERT 0 1", "Z Idle"], "{io}");
    }
}

#[test]
fn what_a_replica_refuses_before_its_sync_runs_on_the_primary_at_once() {
    for io in DRIVERS {
        let (bed, primary) = start_bed(io);
        let maker = bed.client();
        maker.run(
            "CREATE SEQUENCE sly_numbers; CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql \
             STABLE AS $$ BEGIN PERFORM nextval('sly_numbers'); RETURN inet_server_port(); END $$",
        );
        maker.run("CREATE FUNCTION known() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'");
        bed.scenario.wait_caught_up().unwrap();
        // A function that has not been read from the catalog yet pins its caller.
        bed.wait("functions that are known", || {
            let port = bed.client().port("SELECT inet_server_port(), known()");
            port != bed.port_of_primary()
        });
        let mut client = Client::connect(bed.listen);
        let read = run("/* evenkeel: replica */ SELECT sly()").flush();
        client.send_script(&read);
        let received = receive_replies(&mut client, 4);
        assert_eq!(received[2], primary, "{io}: {received:?}");
        assert_eq!(
            client.exchange(&Script::new().sync(), 1),
            ["Z Idle"],
            "{io}"
        );
    }
}

#[test]
fn what_is_answered_in_a_replica_s_stead_or_not_at_all_keeps_nobody_waiting() {
    for io in DRIVERS {
        let (bed, primary) = start_bed(io);
        let mut client = Client::connect(bed.listen);
        client.run("BEGIN READ ONLY");
        let prepared = Script::new().parse("p", WHERE).bind("p", &[]).execute();
        let received = client.exchange(&prepared.sync(), 1);
        assert_ne!(received[2], primary, "{io}: {received:?}");
        client.run("DEALLOCATE p");
        assert_eq!(client.value("SELECT 'on'"), "on", "{io}");
        client.send_script(&Script::new().bind("nothing", &[]).flush());
        assert_eq!(client.receive_message(), "E 26000", "{io}");
        client.send_script(&Script::new().query("SELECT 'passed over'"));
        let received = client.exchange(&Script::new().sync(), 1);
        assert_eq!(received, ["Z Failed"], "{io}");
        client.run("ROLLBACK");
    }
}
