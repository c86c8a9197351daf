//! Tests that clients that replicate receive the server's own replies, over a dedicated connection
//! to the primary.

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_lab::{Balancer, PostgresOptions, eventually};

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{
    ONE, Setup, TestBed, admin, same_as_at, same_as_direct, shared, start_cluster, start_own,
};
use crate::harness::certificates::write_private;
use crate::harness::{DRIVERS, LIMIT, loopback, wait_until};

/// Physical replication, `replication=true`: no database, no SQL.
const PHYSICAL: &[(&str, &str)] = &[
    ("replication", "true"),
    ("application_name", "walsender"),
    ("client_encoding", "LATIN1"),
    ("options", "-c work_mem=7MB"),
];

/// Logical replication, `replication=database`.
const LOGICAL: &[(&str, &str)] = &[
    ("replication", "database"),
    ("application_name", "walsender"),
];

fn login<'a>(settings: &'a [(&'a str, &'a str)]) -> Login<'a> {
    Login {
        user: "replica",
        password: "replica",
        database: "postgres",
        settings,
        ..Login::default()
    }
}

fn walsender(address: SocketAddr, settings: &[(&str, &str)]) -> Client {
    let entered = Client::log_in(address, &login(settings));
    entered.unwrap_or_else(|reply| panic!("the login is refused: {reply}"))
}

/// Removes what varies between runs: positions, and streamed data.
fn shape(received: Vec<String>) -> Vec<String> {
    let reply = received.into_iter().filter(|line| !line.starts_with('d'));
    let masked = reply.map(|line| match line.starts_with("D ") && line.contains('/') {
        true => "D a position".to_owned(),
        false => line,
    });
    masked.collect()
}

/// Returns the command that streams from the current position.
fn start(client: &mut Client) -> String {
    let row = client.value("IDENTIFY_SYSTEM");
    let columns: Vec<&str> = row.split('|').collect();
    format!("START_REPLICATION {} TIMELINE {}", columns[2], columns[1])
}

/// Starts streaming.
fn stream(client: &mut Client) {
    let start = start(client);
    client.run_later(&start);
    assert_eq!(client.receive_message(), "W");
}

fn wait_gone(process: &str) {
    let gone = format!("select count(*) from pg_stat_activity where pid = {process}");
    let mut admin = admin();
    let waited = eventually(LIMIT, "a server connection that closes", || {
        Ok((admin.value(&gone) == "0").then_some(()))
    });
    waited.unwrap();
}

#[test]
fn commands_of_a_walsender_are_answered_as_by_the_server() {
    same_as_direct(ONE, |address| {
        let mut client = walsender(address, PHYSICAL);
        let is_same = |line: &String| *line != "K";
        let mut received: Vec<String> = client.greeting.clone();
        received.retain(is_same);
        received.extend(
            client
                .reported
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        for text in [
            "IDENTIFY_SYSTEM",
            "SHOW application_name",
            "SHOW work_mem",
            "SHOW client_encoding",
            "SHOW nonsense",
            "SELECT 1",
            "SET work_mem = '1MB'",
            "what is this",
            "",
            "TIMELINE_HISTORY 1",
            "CREATE_REPLICATION_SLOT evenkeel_own TEMPORARY PHYSICAL RESERVE_WAL",
            "READ_REPLICATION_SLOT evenkeel_own",
            "DROP_REPLICATION_SLOT evenkeel_own",
            "DROP_REPLICATION_SLOT evenkeel_own",
            "START_REPLICATION 0/1000000 TIMELINE 9",
            "IDENTIFY_SYSTEM",
        ] {
            received.push(text.to_owned());
            received.extend(shape(client.query(text)));
        }
        let extended = Script::new().parse("", "SELECT 1").bind("", &[]).sync();
        received.extend(client.exchange(&extended, 1));
        let pipelined = Script::new()
            .query("IDENTIFY_SYSTEM")
            .query("SHOW work_mem");
        received.extend(shape(client.exchange(&pipelined, 2)));
        received
    });
}

const BACKUP: &str = "BASE_BACKUP (LABEL 'evenkeel', CHECKPOINT 'fast', WAIT 'false')";

#[test]
fn a_base_backup_is_many_results_and_one_answer() {
    // Each test has a database in the shared server.
    let (_lab, server) = start_own();
    same_as_at(&server, ONE, |address| {
        let mut client = walsender(address, PHYSICAL);
        let mut received = shape(client.query(BACKUP));
        received.extend(shape(client.query("SHOW work_mem")));
        received.extend(shape(
            client.query("BASE_BACKUP (LABEL 'evenkeel', NONSENSE)"),
        ));
        received
    });
}

#[test]
fn who_reads_slowly_is_waited_for() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let mut client = walsender(bed.address, PHYSICAL);
        let before_kb = bed.balancer.memory_kb();
        client.run_later(BACKUP);
        // Time in which memory would grow.
        std::thread::sleep(Duration::from_millis(1_500));
        let more_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
        // The size of the backup is more than 20 MB.
        assert!(more_kb < 8_000, "{io}: {more_kb} kB");
        assert_eq!(client.reply().last().unwrap(), "Z Idle", "{io}");
    }
}

#[test]
fn a_walsender_with_a_database_runs_sql_too() {
    same_as_direct(ONE, |address| {
        let mut client = walsender(address, LOGICAL);
        let mut received = Vec::new();
        for text in [
            "IDENTIFY_SYSTEM",
            "select pg_catalog.set_config('search_path', '', false)",
            "show search_path",
            "set work_mem = '3MB'; show work_mem",
            "begin read only isolation level repeatable read",
            "copy (select generate_series(1, 3)) to stdout",
            "select 1/0",
            "select 2",
            "rollback",
            "create temp table mine (a int)",
            "insert into mine select 1 from generate_series(1, 10)",
            "select count(*) from mine",
            "discard all",
            "show work_mem",
            "CREATE_REPLICATION_SLOT \"evenkeel_own\" LOGICAL pgoutput",
            "select current_database(), current_user",
        ] {
            received.push(text.to_owned());
            received.extend(shape(client.query(text)));
        }
        received
    });
}

#[test]
fn a_stream_ends_however_its_client_wants_it() {
    same_as_direct(ONE, |address| {
        let mut client = walsender(address, PHYSICAL);
        let mut received = Vec::new();
        for _ in 0..2 {
            stream(&mut client);
            client.send_script(&Script::new().copy_done());
            received.extend(shape(client.reply()));
        }
        let both = Script::new().query(&start(&mut client)).copy_done();
        received.extend(shape(client.exchange(&both, 1)));
        let behind = both.query("SHOW work_mem");
        received.extend(shape(client.exchange(&behind, 2)));
        stream(&mut client);
        client.cancel();
        received.extend(shape(client.reply()));
        // The client sent this before it noticed the end of the stream.
        let late = Script::new().copy_data(b"r").copy_done();
        client.send_script(&late);
        received.extend(shape(client.query("SHOW work_mem")));
        stream(&mut client);
        received.extend(shape(client.query("IDENTIFY_SYSTEM")));
        received
    });
}

#[test]
fn what_is_written_reaches_who_streams_wherever_messages_are_cut() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = walsender(bed.address, PHYSICAL);
        stream(&mut client);
        let mut writer = bed.client();
        for _ in 0..3 {
            writer.run("select pg_logical_emit_message(true, 'evenkeel', repeat('news', 100000))");
            // A status update that requests a reply, sent byte by byte.
            let mut status = vec![b'r'];
            status.extend_from_slice(&[0; 32]);
            status.push(1);
            for byte in Script::new().copy_data(&status).0 {
                client.send_script(&Script(vec![byte]));
            }
            let mut streamed = 0;
            while streamed < 400_000 {
                let line = client.receive_message();
                assert!(line.starts_with("d "), "{io}: {line}");
                streamed += line.len();
            }
        }
        client.send_script(&Script::new().copy_done());
        assert_eq!(client.reply().last().unwrap(), "Z Idle", "{io}");
    }
}

#[test]
fn its_connection_is_nobody_elses_and_closes_behind_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut normal = walsender(bed.address, &[("replication", "OFF")]);
        let of_normal = normal.backend();
        for with_reset in [true, false] {
            let mut first = walsender(bed.address, LOGICAL);
            let of_first = first.backend();
            first.run("set work_mem = '3MB'");
            let mut second = walsender(bed.address, LOGICAL);
            let of_second = second.backend();
            assert_ne!(of_first, of_second, "{io}");
            assert_eq!(normal.backend(), of_normal, "{io}");
            assert_eq!(normal.value("show application_name"), "", "{io}");
            first.abort(with_reset);
            wait_gone(&of_first);
            let mut third = walsender(bed.address, LOGICAL);
            assert!(![of_first, of_second, of_normal.clone()].contains(&third.backend()));
            assert_ne!(third.value("show work_mem"), "3MB");
            second.send_script(&Script::new().terminate());
            assert_eq!(second.receive_message(), "end");
            let another = walsender(bed.address, &[]);
            assert_eq!(another.reported["application_name"], "", "{io}");
        }
        assert_eq!(normal.backend(), of_normal, "{io}");
    }
}

#[test]
fn who_streams_and_leaves_leaves_no_walsender_behind() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for way in ["reset", "end", "terminate", "done and terminate"] {
            let name = format!("leaves by {way}");
            let settings = [
                ("replication", "true"),
                ("application_name", &name),
                // Otherwise, the server soon times out.
                ("options", "-c wal_sender_timeout=0"),
            ];
            let mut client = walsender(bed.address, &settings);
            stream(&mut client);
            let leave = Script::new().copy_data(b"");
            match way {
                "reset" => client.abort(true),
                "end" => client.abort(false),
                "terminate" => client.send_script(&leave.terminate()),
                _ => client.send_script(&leave.copy_done().terminate()),
            }
            let left = format!(
                "select count(*) from pg_stat_replication where application_name = '{name}'"
            );
            let mut admin = admin();
            let waited = eventually(LIMIT, "no walsender", || {
                Ok((admin.value(&left) == "0").then_some(()))
            });
            waited.unwrap_or_else(|error| panic!("{io}, {way}: {error}"));
        }
    }
}

#[test]
fn what_comes_too_late_for_its_login_is_closed() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let users = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("replica-users.toml");
        write_private(&users, "[users.replica]\npassword = \"replica\"\n");
        let tables = format!("[service.auth]\nusers_file = {users:?}\n");
        let setup = Setup {
            service: "login_timeout_ms = 1000",
            tables: &tables,
            ..ONE
        };
        let bed = TestBed::before(&server, io, setup);
        server.freeze().unwrap();
        let late = Client::log_in(bed.address, &login(PHYSICAL)).err();
        server.thaw().unwrap();
        assert_eq!(
            late.map(|reply| reply[..5].to_owned()).unwrap(),
            "08P01",
            "{io}"
        );
        let activity = "select count(*) from pg_stat_activity where backend_type = 'walsender'";
        // Long enough for the server to accept the login.
        std::thread::sleep(Duration::from_secs(1));
        let waited = eventually(LIMIT, "no walsender", || {
            Ok((server.sql(activity)? == "0").then_some(()))
        });
        waited.unwrap_or_else(|error| panic!("{io}: {error}"));
    }
}

#[test]
fn who_may_not_replicate_hears_it_from_the_server() {
    let may_not = Login {
        user: "sbtest",
        password: "sbtest",
        database: "sbtest",
        ..login(PHYSICAL)
    };
    let wrong = Login {
        password: "wrong",
        ..login(PHYSICAL)
    };
    let nowhere = Login {
        database: "nowhere",
        ..login(LOGICAL)
    };
    let unknown = Login {
        settings: &[("replication", "true"), ("nonsense", "on")],
        ..login(PHYSICAL)
    };
    let state = |address, login| {
        let refused = Client::log_in(address, login).err().unwrap();
        refused[..5].to_owned()
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for refused in [&may_not, &wrong, &nowhere, &unknown] {
            let direct = state(shared().address, refused);
            assert_eq!(state(bed.address, refused), direct, "{io}");
        }
        bed.client().run("select 1");
    }
}

#[test]
fn limits_of_connections_count_it() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 4\nservice_size = 2\nwait_ms = 1500",
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let mut normal = bed.client();
        normal.run("select 1");
        // The idle connection of the normal client is closed to free capacity.
        let replicas = [PHYSICAL, LOGICAL].map(|kind| walsender(bed.address, kind));
        let refused = Client::log_in(bed.address, &login(PHYSICAL)).err().unwrap();
        assert!(refused.starts_with("53300"), "{io}: {refused}");
        assert_eq!(normal.refusal("select 1"), "53300", "{io}");
        drop(replicas);
        let waited = eventually(LIMIT, "a place that is free", || {
            Ok((normal.query("select 1").len() == 4).then_some(()))
        });
        waited.unwrap();
    }
}

#[test]
fn limits_of_time_leave_a_stream_alone_and_end_who_says_nothing() {
    for io in DRIVERS {
        let setup = Setup {
            service: "query_timeout_ms = 500\ntransaction_timeout_ms = 500\n\
                      idle_in_transaction_timeout_ms = 500\nidle_timeout_ms = 1500",
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = walsender(bed.address, PHYSICAL);
        stream(&mut client);
        let mut slow = walsender(bed.address, LOGICAL);
        assert_eq!(slow.query("select pg_sleep(2)")[2], "C SELECT 1", "{io}");
        client.send_script(&Script::new().copy_done());
        assert_eq!(client.reply().last().unwrap(), "Z Idle", "{io}");
        slow.run("begin");
        std::thread::sleep(Duration::from_secs(2));
        slow.run("commit");
        assert_eq!(client.reply(), ["E 57P05", "end"], "{io}");
        assert_eq!(slow.reply(), ["E 57P05", "end"], "{io}");
    }
}

#[test]
fn the_status_shows_what_it_is() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = walsender(bed.address, PHYSICAL);
        stream(&mut client);
        wait_until(&bed.balancer, "a pin that is shown", || {
            let database = bed.status()["database"].clone();
            let pins = database["pins"].as_array().unwrap().clone();
            let is_it = |pin: &serde_json::Value| {
                pin["what"] == "replication connection" && pin["count"] == 1
            };
            let clients = database["clients"].as_array().unwrap().clone();
            let active = |one: &serde_json::Value| one["what"] == "active" && one["count"] == 1;
            pins.iter().any(is_it) && clients.iter().any(active)
        });
        client.send_script(&Script::new().copy_done());
        client.reply();
    }
}

#[test]
fn a_server_that_dies_ends_a_stream_with_one_error() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let mut client = walsender(bed.address, PHYSICAL);
        stream(&mut client);
        let mut resting = walsender(bed.address, LOGICAL);
        server.kill().unwrap();
        assert_eq!(shape(client.reply()), ["E 57P01", "end"], "{io}");
        assert_eq!(resting.reply(), ["E 57P01", "end"], "{io}");
        server.start().unwrap();
    }
}

#[test]
fn a_standby_finds_the_next_primary_where_the_last_one_was() {
    let options = PostgresOptions {
        replicas: 1,
        ..PostgresOptions::default()
    };
    let (lab, cluster) = start_cluster(options);
    let address = loopback();
    let servers: Vec<String> = cluster
        .servers()
        .iter()
        .map(|server| format!("\"{}\"", server.address))
        .collect();
    let config = format!(
        "[[service]]\nname = \"pool\"\nprotocol = \"postgres\"\nlisten = \"{address}\"\n\
         servers = [{}]\n[service.monitor]\nuser = \"postgres\"\npassword = \"postgres\"\n\
         [service.split]\nreads = true\n",
        servers.join(", ")
    );
    let balancer = Balancer::start(&config).unwrap();
    let log_in = || Client::log_in(address, &login(PHYSICAL)).ok();
    let first = eventually(LIMIT, "a first session", || Ok(log_in()));
    let mut client = first.unwrap();
    stream(&mut client);
    cluster.primary.kill().unwrap();
    assert_eq!(shape(client.reply()), ["E 57P01", "end"]);
    lab.fail_over(&cluster.primary).unwrap();
    let mut timeline = String::new();
    wait_until(&balancer, "the next primary", || {
        let row = log_in().map(|mut client| client.value("IDENTIFY_SYSTEM"));
        timeline = row.unwrap_or_default();
        timeline.split('|').nth(1) == Some("2")
    });
    let mut next = log_in().unwrap();
    stream(&mut next);
}
