//! Tests of batches whose clients need replies before the Sync: where they run, and where later
//! messages run.

use std::time::Duration;

use crate::client::Client;
use crate::harness::DRIVERS;
use crate::script::Script;
use crate::stage::{TestBed, WHERE};

const INSERT: &str = "INSERT INTO flushed VALUES (1)";

fn stage(io: &str) -> (TestBed, String) {
    let stage = TestBed::set(io, "primary_reads = false\nconsistency = \"eventual\"");
    stage.direct().run("CREATE TABLE flushed (a int)");
    stage.scene.wait_caught_up().unwrap();
    stage.wait_split(&stage.client());
    let primary = format!("D {}", stage.port_of_primary());
    (stage, primary)
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

fn hear(client: &mut Client, messages: usize) -> Vec<String> {
    (0..messages).map(|_| client.hear()).collect()
}

#[test]
fn a_write_behind_a_flush_runs_on_the_primary_with_what_is_before_it() {
    for io in DRIVERS {
        let (stage, primary) = stage(io);
        let mut client = Client::connect(stage.listen);
        let read = || run(WHERE).flush();
        let slow = || run("SELECT pg_sleep(0.3)");
        let all = joined([read(), slow(), run(INSERT).sync()]);
        let reply = client.ask(&all, 1);
        assert_eq!(reply[2], primary, "{io}: {reply:?}");
        assert_eq!(reply[reply.len() - 2..], ["C INSERT 0 1", "Z Idle"], "{io}");
        client.tell(&read());
        let heard = hear(&mut client, 4);
        assert_eq!(heard[2], primary, "{io}: {heard:?}");
        let reply = client.ask(&run(INSERT).sync(), 1);
        assert_eq!(reply, ["1", "2", "C INSERT 0 1", "Z Idle"], "{io}");
        // A batch that has ended with its Sync is a read like any other.
        let reply = client.ask(&joined([read(), Script::new().sync()]), 1);
        assert_ne!(reply[2], primary, "{io}: {reply:?}");
    }
}

#[test]
fn a_write_behind_a_flush_that_has_no_answer_yet_takes_its_batch_to_the_primary() {
    for io in DRIVERS {
        let (stage, primary) = stage(io);
        let mut client = Client::connect(stage.listen);
        let slow = "/* evenkeel: replica */ SELECT inet_server_port(), pg_sleep(0.5)";
        client.tell(&run(slow).flush());
        assert!(client.is_silent_for(Duration::from_millis(100)), "{io}");
        // A replica would accept the lock, but no other session checks for it there.
        let lock = "SELECT inet_server_port(), pg_advisory_xact_lock(5)";
        let reply = client.ask(&run(lock).sync(), 1);
        let rows: Vec<_> = reply.iter().filter(|line| line.starts_with('D')).collect();
        assert_eq!(rows, [&format!("{primary}|"); 2], "{io}: {reply:?}");
    }
}

#[test]
fn what_is_only_prepared_is_read_on_a_replica_and_written_on_the_primary() {
    for io in DRIVERS {
        let (stage, primary) = stage(io);
        let mut client = Client::connect(stage.listen);
        client.tell(&prepare("r", WHERE));
        assert_eq!(hear(&mut client, 3)[..2], ["1", "t"], "{io}");
        let reply = client.ask(&execute("r"), 1);
        assert_ne!(reply[1], primary, "{io}: {reply:?}");
        client.tell(&prepare("s", "SELECT inet_server_port() + 0"));
        assert_eq!(hear(&mut client, 3)[..2], ["1", "t"], "{io}");
        client.tell(&prepare("w", INSERT));
        assert_eq!(hear(&mut client, 3), ["1", "t", "n"], "{io}");
        let reply = client.ask(&execute("w"), 1);
        assert_eq!(reply, ["2", "C INSERT 0 1", "Z Idle"], "{io}");
        let reply = client.ask(&execute("s"), 1);
        assert_eq!(reply[2..], ["C SELECT 1", "Z Idle"], "{io}");
    }
}

#[test]
fn a_write_behind_an_open_cursor_of_a_replica_is_refused_there() {
    for io in DRIVERS {
        let (stage, primary) = stage(io);
        let mut client = Client::connect(stage.listen);
        let open = || {
            let cursor = Script::new().parse("", "SELECT inet_server_port() FROM pg_class");
            cursor.bind("", &[]).describe_portal("").flush()
        };
        client.tell(&open());
        assert_eq!(hear(&mut client, 2), ["1", "2"], "{io}");
        client.tell(&Script::new().execute_of("", 1).flush());
        let heard = hear(&mut client, 3);
        assert_ne!(heard[1], primary, "{io}: {heard:?}");
        for (write, told) in [
            (run(INSERT).sync(), "E 22P02"),
            (Script::new().query("SELECT pg_advisory_lock(5)"), "E 42501"),
        ] {
            let reply = client.ask(&write, 1);
            assert_eq!(reply, [told, "Z Idle"], "{io}");
            client.tell(&open());
            hear(&mut client, 3);
        }
        assert_eq!(client.ask(&Script::new().sync(), 1), ["Z Idle"], "{io}");
        let reply = client.ask(&run(INSERT).sync(), 1);
        assert_eq!(reply, ["1", "2", "C INSERT 0 1", "Z Idle"], "{io}");
    }
}

#[test]
fn what_a_replica_refuses_before_its_sync_runs_on_the_primary_at_once() {
    for io in DRIVERS {
        let (stage, primary) = stage(io);
        let maker = stage.client();
        maker.run(
            "CREATE SEQUENCE sly_numbers; CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql \
             STABLE AS $$ BEGIN PERFORM nextval('sly_numbers'); RETURN inet_server_port(); END $$",
        );
        maker.run("CREATE FUNCTION known() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'");
        stage.scene.wait_caught_up().unwrap();
        // A function that has not been read from the catalog yet pins its caller.
        stage.wait("functions that are known", || {
            let port = stage.client().port("SELECT inet_server_port(), known()");
            port != stage.port_of_primary()
        });
        let mut client = Client::connect(stage.listen);
        let read = run("/* evenkeel: replica */ SELECT sly()").flush();
        client.tell(&read);
        let heard = hear(&mut client, 4);
        assert_eq!(heard[2], primary, "{io}: {heard:?}");
        assert_eq!(client.ask(&Script::new().sync(), 1), ["Z Idle"], "{io}");
    }
}

#[test]
fn what_is_answered_in_a_replica_s_stead_or_not_at_all_keeps_nobody_waiting() {
    for io in DRIVERS {
        let (stage, primary) = stage(io);
        let mut client = Client::connect(stage.listen);
        client.run("BEGIN READ ONLY");
        let prepared = Script::new().parse("p", WHERE).bind("p", &[]).execute();
        let heard = client.ask(&prepared.sync(), 1);
        assert_ne!(heard[2], primary, "{io}: {heard:?}");
        client.run("DEALLOCATE p");
        assert_eq!(client.value("SELECT 'on'"), "on", "{io}");
        client.tell(&Script::new().bind("nothing", &[]).flush());
        assert_eq!(client.hear(), "E 26000", "{io}");
        client.tell(&Script::new().query("SELECT 'passed over'"));
        let heard = client.ask(&Script::new().sync(), 1);
        assert_eq!(heard, ["Z Failed"], "{io}");
        client.run("ROLLBACK");
    }
}
