//! Tests of servers that end connections, die, restart and refuse; clients see one proper error, or
//! nothing.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::eventually;

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{Setup, TestBed, shared, start_own};
use crate::harness::{DRIVERS, LIMIT};

const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 2,
};

fn end_all(name: &str) {
    let mut admin = super::stage::admin();
    admin.run(&format!(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
         where application_name = '{name}' and datname = current_database() \
         and pid <> pg_backend_pid()"
    ));
}

fn named(bed: &TestBed, name: &str) -> Client {
    Client::with(bed.address, &[("application_name", name)])
}

#[test]
fn an_idle_connection_that_the_server_ends_is_noticed_by_nobody() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut client = named(&bed, "idle ends");
        client.exchange(&Script::new().parse("s", "select 's'").sync(), 1);
        for _ in 0..10 {
            client.run("select 1");
            end_all("idle ends");
            let run = Script::new().bind("s", &[]).execute().sync();
            assert_eq!(
                client.exchange(&run, 1),
                ["2", "D s", "C SELECT 1", "Z Idle"],
                "{io}"
            );
            end_all("idle ends");
            assert_eq!(client.value("select 'still'"), "still", "{io}");
        }
    }
}

#[test]
fn a_connection_that_ends_in_a_query_or_a_transaction_gives_one_error() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut client = named(&bed, "in query");
        client.run("create temp table bound (a int)");
        client.run_later("select pg_sleep(60)");
        wait_active("in query");
        end_all("in query");
        let reply = client.reply();
        let errors = reply.iter().filter(|line| line.starts_with('E')).count();
        assert_eq!(errors, 1, "{io}: {reply:?}");
        assert!(reply.contains(&"E 57P01".to_owned()), "{io}: {reply:?}");
        let mut client = named(&bed, "in transaction");
        client.run("begin; select 1");
        end_all("in transaction");
        let reply = client.query("select 2");
        assert_eq!(reply, ["E 57P01", "end"], "{io}");
        let mut client = bed.client();
        assert_eq!(client.value("select 'next'"), "next");
    }
}

fn wait_active(name: &str) {
    let mut admin = super::stage::admin();
    let active = format!(
        "select count(*) from pg_stat_activity where state = 'active' \
         and application_name = '{name}' and datname = current_database()"
    );
    let waited = eventually(LIMIT, "a query that runs", || {
        Ok((admin.value(&active) == "1").then_some(()))
    });
    waited.unwrap();
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_used_again() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, TWO);
        let mut idle = bed.client();
        idle.exchange(&Script::new().parse("s", "select 's'").sync(), 1);
        idle.run("set work_mem to '3MB'");
        let mut busy = bed.client();
        busy.run("begin; select 1");
        let mut running = bed.client();
        running.run_later("select pg_sleep(60)");
        assert!(running.is_silent_for(std::time::Duration::from_millis(300)));
        server.kill().unwrap();
        let reply = running.reply();
        let errors = reply.iter().filter(|line| line.starts_with('E')).count();
        assert_eq!(errors, 1, "{io}: {reply:?}");
        assert_eq!(busy.query("select 2"), ["E 57P01", "end"], "{io}");
        server.start().unwrap();
        let waited = eventually(LIMIT, "a server that is back", || {
            Ok(idle
                .query("select 'back'")
                .contains(&"D back".to_owned())
                .then_some(()))
        });
        waited.unwrap_or_else(|error| panic!("{error}: {}", bed.balancer.log()));
        let run = Script::new().bind("s", &[]).execute().sync();
        assert_eq!(
            idle.exchange(&run, 1),
            ["2", "D s", "C SELECT 1", "Z Idle"],
            "{io}"
        );
        assert_eq!(idle.value("show work_mem"), "3MB");
    }
}

#[test]
fn work_and_logins_wait_while_a_server_restarts() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let setup = Setup {
            tables: "[service.failover]\nwait_ms = 20000",
            ..TWO
        };
        let bed = TestBed::before(&server, io, setup);
        let mut client = bed.client();
        client.run("select 1");
        server.stop().unwrap();
        client.run_later("select 'waited'");
        let waited = eventually(LIMIT, "a server that is known to be away", || {
            Ok((bed.status()["state"] != "up").then_some(()))
        });
        waited.unwrap();
        let (address, login) = (bed.address, Login::default());
        let newcomer = thread::spawn(move || {
            let entered = Client::log_in(address, &login);
            entered.map(|mut client| client.value("select 'let in'"))
        });
        assert!(client.is_silent_for(Duration::from_millis(700)), "{io}");
        assert!(!newcomer.is_finished(), "{io}: {}", bed.balancer.log());
        server.start().unwrap();
        let reply = client.reply();
        assert_eq!(
            reply[1],
            "D waited",
            "{io}: {reply:?} {}",
            bed.balancer.log()
        );
        assert_eq!(newcomer.join().unwrap().unwrap(), "let in", "{io}");
    }
}

#[test]
fn a_server_without_room_is_asked_again_until_it_has_some() {
    for io in DRIVERS {
        let mut admin = super::stage::admin();
        let _ = admin.query("create role narrow login password 'narrow' connection limit 1");
        let bed = TestBed::set_up(
            io,
            Setup {
                pool: "size = 3\nwait_ms = 8000",
                ..TWO
            },
        );
        let login = Login {
            user: "narrow",
            password: "narrow",
            database: "postgres",
            ..Login::default()
        };
        let log_in =
            || Client::log_in(bed.address, &login).unwrap_or_else(|answer| panic!("{answer}"));
        let (mut first, mut second) = (log_in(), log_in());
        first.run("begin");
        second.run_later("select 'at last'");
        assert!(
            second.is_silent_for(std::time::Duration::from_millis(700)),
            "{io}"
        );
        first.run("commit");
        assert_eq!(second.reply()[1], "D at last", "{io}");
        let _ = shared();
    }
}

/// Limit of a probe in the next test. The test is invalid if the server answers no client for that
/// time, as it is then practically dead. One of the clients therefore queries it directly, and
/// continues if the others are blocked.
const PROBE_LIMIT_MS: u64 = 500;

#[test]
fn a_server_that_is_too_busy_for_probes_keeps_its_clients() {
    for io in DRIVERS {
        let outcome = (0..3).find_map(|_| keeps_clients_of_a_busy_server(io));
        println!("{io}: {outcome:?}");
    }
}

/// Returns the reason of a failure; `None` if other work kept the machine busy, and the test is
/// invalid.
fn keeps_clients_of_a_busy_server(io: &str) -> Option<&'static str> {
    let (_lab, server) = start_own();
    let health = format!(
        "[service.health]\nprobe = \"postgres\"\ninterval_ms = 500\ntimeout_ms = {PROBE_LIMIT_MS}\n"
    );
    let setup = Setup {
        pool: "size = 20",
        tables: &health,
        ..TWO
    };
    let bed = TestBed::before(&server, io, setup);
    let mut clients: Vec<Client> = (0..20).map(|_| bed.client()).collect();
    // Each has its own connection: opening twenty would take all of the server's time.
    clients.iter_mut().for_each(|client| client.run("begin"));
    clients.iter_mut().for_each(|client| client.run("commit"));
    // The first probe meets a server and a machine that have just started.
    let before = bed.balancer.log().len();
    if let Err(why) = server.cpu_share(5) {
        println!("skipped: {why:#}");
        return Some("skipped");
    }
    let started = Instant::now();
    let until = started + Duration::from_secs(6);
    let direct = Client::connect(server.address);
    let direct = thread::spawn(move || asks_until(until, direct));
    let asking = clients
        .into_iter()
        .map(|client| thread::spawn(move || asks_until(until, client)));
    let asking: Vec<_> = asking.collect();
    let answers: Vec<_> = asking.into_iter().map(|one| one.join().unwrap()).collect();
    let (mut times, _) = direct.join().unwrap();
    times.extend(answers.iter().flat_map(|(times, _)| times));
    times.push(started);
    times.sort();
    let mut silences = times.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = Duration::from_millis(PROBE_LIMIT_MS);
    if silences.any(|silence| silence > longest) {
        return None;
    }
    let log = bed.balancer.log();
    assert!(!log[before..].contains("is down"), "{io}: {log}");
    let answer: Vec<_> = answers
        .into_iter()
        .filter_map(|(_, answer)| answer)
        .collect();
    assert!(answer.is_empty(), "{io}: {answer:?}: {log}");
    Some("kept")
}

/// Returns the times of the answers, and a wrong answer if there was one.
fn asks_until(until: Instant, mut client: Client) -> (Vec<Instant>, Option<Vec<String>>) {
    let mut times = Vec::new();
    while Instant::now() < until {
        let answer = client.query("select count(*) from generate_series(1, 5000)");
        if answer.get(1).map(String::as_str) != Some("D 5000") {
            return (times, Some(answer));
        }
        times.push(Instant::now());
    }
    (times, None)
}

#[test]
fn a_client_whose_statements_were_being_taken_away_goes_on_behind_a_server_that_died() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, TWO);
        let mut client = bed.client();
        client.run_later("select pg_sleep(60); deallocate all");
        assert!(client.is_silent_for(Duration::from_millis(300)));
        server.kill().unwrap();
        assert_eq!(client.reply(), ["E 08007", "Z Idle"], "{io}");
        server.start().unwrap();
        let back = eventually(LIMIT, "a server that is back", || {
            let received = client.query("select 'back'");
            Ok(received.contains(&"D back".to_owned()).then_some(()))
        });
        back.unwrap_or_else(|error| panic!("{io}: {error}: {}", bed.balancer.log()));
    }
}

#[test]
fn a_name_whose_parse_was_lost_with_its_server_can_be_given_again() {
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, TWO);
        let mut client = bed.client();
        client.run("create table if not exists lost (a int)");
        let text = "insert into lost values (1)";
        let prepare = Script::new().parse("s", text).describe("s").sync();
        // Queries of Evenkeel's own after the statement are complete.
        std::thread::sleep(Duration::from_millis(200));
        server.freeze().unwrap();
        client.send_script(&prepare);
        assert!(client.is_silent_for(Duration::from_millis(300)));
        server.kill().unwrap();
        assert_eq!(client.reply(), ["E 08007", "Z Idle"], "{io}");
        server.start().unwrap();
        let mut received = Vec::new();
        let prepared = eventually(LIMIT, "a statement of that name", || {
            received = client.exchange(&prepare, 1);
            Ok((received == ["1", "t", "n", "Z Idle"]).then_some(()))
        });
        prepared.unwrap_or_else(|error| panic!("{io}: {error}: {received:?}"));
        let run = Script::new().bind("s", &[]).execute().sync();
        assert_eq!(
            client.exchange(&run, 1),
            ["2", "C INSERT 0 1", "Z Idle"],
            "{io}"
        );
    }
}

#[test]
fn a_client_that_is_gone_without_a_word_is_given_up_after_the_user_timeout() {
    let setup = Setup {
        tables: "[service.keepalive]\nuser_timeout_ms = 1000",
        ..TWO
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        client.run("begin");
        client.run_later("select pg_sleep(0.5), repeat('x', 100000)");
        client.cut_off();
        let waited = eventually(LIMIT, "its end", || {
            Ok((bed.status()["errors"]["reset_by_client"] == 1).then_some(()))
        });
        waited.unwrap_or_else(|error| panic!("{io}: {error}: {}", bed.status()));
    }
}

#[test]
fn peers_are_asked_whether_they_live_also_after_a_reload_that_says_so() {
    let (_lab, server) = start_own();
    let bed = TestBed::before(&server, DRIVERS[0], TWO);
    let soon = bed.balancer.config() + "[service.keepalive]\nidle_ms = 7000\n";
    bed.balancer.reload(&soon).unwrap();
    let mut client = bed.client();
    client.run("create temp table bound (a int)");
    for wanted in [
        format!("sport = :{}", bed.address.port()),
        format!("dport = :{}", server.address.port()),
    ] {
        // Until a peer has acknowledged everything, another timer is active.
        let waited = eventually(Duration::from_secs(10), &wanted, || {
            Ok(sockets(&wanted).lines().any(is_asked_soon).then_some(()))
        });
        waited.unwrap_or_else(|error| panic!("{error}: {}", sockets(&wanted)));
    }
}

/// Returns TCP connections with their timers.
fn sockets(wanted: &str) -> String {
    let output = std::process::Command::new("ss")
        .args(["-tnoH", "state", "established", wanted])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Parses the timer: `ss` writes less than ten seconds as 6.999ms.
fn is_asked_soon(line: &str) -> bool {
    let timer = line.split_once("timer:(keepalive,");
    timer.is_some_and(|(_, left)| left.contains("ms,"))
}
