//! Tests of the cost of many clients: an exhausted pool delays no other pool, and no memory
//! remains.

use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Login};
use super::stage::{ONE, Setup, TestBed, config, own_schema, same_as_direct, shared, sql};
use crate::harness::{DRIVERS, loopback, wait_until};

/// Number of clients that wait for a pool of two.
const CROWD: usize = 40;

fn waiting(bed: &TestBed) -> u64 {
    let pools = bed.status()["database"]["pools"].clone();
    let pools = pools.as_array().into_iter().flatten();
    pools.filter_map(|pool| pool["waiting"].as_u64()).sum()
}

#[test]
fn a_pool_in_which_everybody_waits_holds_up_no_other_user_and_no_other_service() {
    sql("drop user if exists calm@'127.0.0.1'");
    sql("create user calm@'127.0.0.1' identified by 'calm'");
    sql("grant all on * to calm@'127.0.0.1'");
    let calm = Login {
        user: "calm",
        password: "calm",
        ..Login::default()
    };
    let setup = Setup {
        pool: "size = 2",
        ..ONE
    };
    for io in DRIVERS {
        let other = loopback();
        let both = |address| {
            let own = config(shared(), address, io, setup);
            let second = config(shared(), other, io, setup).replace("\"pool\"", "\"other\"");
            let (_, second) = second.split_once("\n\n").unwrap();
            format!("{own}\n{second}")
        };
        let bed = TestBed::start(both, |bed| {
            Client::log_in(bed.address, &Login::default()).map(|_| ())
        });
        let mut crowd: Vec<Client> = (0..CROWD).map(|_| bed.client()).collect();
        for one in &mut crowd {
            one.query_later("select sleep(0.15)");
        }
        wait_until(&bed.balancer, "a crowd", || waiting(&bed) > 25);
        let mut elsewhere = [
            Client::with(bed.address, &calm),
            Client::connect(other),
            Client::with(other, &calm),
        ];
        let mut took: Vec<Duration> = Vec::new();
        for round in 0..100 {
            let client = &mut elsewhere[round % 3];
            let started = Instant::now();
            assert_eq!(client.value("select 'calm'"), "calm", "{io}");
            took.push(started.elapsed());
        }
        assert!(waiting(&bed) > 0, "{io}: the crowd was gone before");
        took.sort();
        let slow = took[90];
        assert!(slow < Duration::from_millis(150), "{io}: {took:?}");
        for one in &mut crowd {
            let reply = one.reply();
            assert!(reply.contains(&"row 0".to_owned()), "{io}: {reply:?}");
        }
    }
}

/// Runs clients that allocate memory, and disconnect.
fn demand(bed: &TestBed, round: usize) {
    thread::scope(|scope| {
        for number in 0..12 {
            scope.spawn(move || {
                let mut client = bed.client();
                client.run("select repeat('x', 1000000)");
                for which in 0..40 {
                    let text = format!("select {which}, {number}, {round}");
                    client.prepare(&format!("s{which}"), &text);
                }
                client.execute("s7", &[]);
                let name = "y".repeat(3_000);
                client.run(&format!("set @a{number} = '{name}'"));
                client.run(&format!("select '{}'", "z".repeat(300_000)));
                client.abort(number % 2 == 0);
            });
        }
    });
}

#[test]
fn memory_does_not_grow_by_what_clients_did_that_are_gone() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let rounds = |from: usize, to: usize| {
            (from..to).for_each(|round| demand(&bed, round));
        };
        // By then the pool has its maximum of statements and buffers.
        rounds(0, 16);
        thread::sleep(Duration::from_millis(300));
        let early_kb = bed.balancer.memory_kb();
        rounds(16, 36);
        // The process returns memory a little later, on a busy machine much later.
        let what = format!("{io}: less than 4,000 kB more than {early_kb} kB");
        wait_until(&bed.balancer, &what, || {
            bed.balancer.memory_kb() < early_kb + 4_000
        });
    }
}

#[test]
fn a_client_that_does_not_read_its_answer_costs_little_memory() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        demand(&bed, 0);
        let before_kb = bed.balancer.memory_kb();
        let mut slow: Vec<Client> = (0..3).map(|_| bed.client()).collect();
        for client in &mut slow {
            // 100 MB, none of which is read.
            client.query_later("select repeat('x', 10000) from seq_1_to_10000");
        }
        // Time in which memory would grow.
        thread::sleep(Duration::from_secs(1));
        let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
        assert!(grown_kb < 3_000, "{io}: {grown_kb} kB for three answers");
        assert_eq!(bed.client().value("select 'free'"), "free", "{io}");
    }
}

#[test]
fn in_session_mode_a_client_keeps_its_connection_until_it_leaves() {
    let setup = Setup {
        pool: "size = 2\nmode = \"session\"\nwait_ms = 500",
        ..ONE
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, setup);
        let (mut first, mut second) = (bed.client(), bed.client());
        first.run("set @own = 1 + 1");
        let (here, there) = (first.backend(), second.backend());
        assert_ne!(here, there, "{io}");
        for _ in 0..3 {
            assert_eq!(
                (first.backend(), second.backend()),
                (here.clone(), there.clone())
            );
            assert_eq!(
                first.value("select @own, connection_id() > 0"),
                "2|1",
                "{io}"
            );
        }
        // There is no third connection, which is no reason to end any client.
        let mut third = bed.client();
        let reply = third.refusal("select 1");
        assert!(reply.contains("wait_ms"), "{io}: {reply}");
        first.quit();
        assert_eq!(third.value("select @own"), "NULL", "{io}");
        assert_eq!(second.backend(), there, "{io}");
    }
}

/// TO SEE THIS RED: restore settings only on another connection.
#[test]
fn in_session_mode_a_reset_goes_back_to_the_client_s_own_character_set() {
    let setup = Setup {
        pool: "size = 2\nmode = \"session\"",
        ..ONE
    };
    let shown = "select @@character_set_client, @@character_set_results, @@collation_connection";
    let latin1 = Login {
        collation: 8,
        ..Login::default()
    };
    same_as_direct(setup, |address| {
        let mut client = Client::with(address, &latin1);
        let mut received = client.all(&[shown, "set names utf8mb4", shown]);
        received.extend(client.reset());
        received.extend(client.all(&[shown]));
        received
    });
}

/// TO SEE THIS RED: leave the previous client's collation on the server connection.
#[test]
fn a_collation_that_a_login_names_by_its_number_is_that_of_its_client() {
    let shown = "select @@character_set_client, @@character_set_results, @@collation_connection";
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for collation in [8, 83, 45, 192, 33, 87, 28, 63, 224] {
            let login = Login {
                collation,
                ..Login::default()
            };
            let mut client = Client::with(address, &login);
            received.extend(client.all(&[shown]));
        }
        received
    });
}

/// Returns the connections of the pools' user at the server.
fn at_server() -> Vec<String> {
    let ids = sql("select id from information_schema.processlist where user = 'bare' order by id");
    ids.split_whitespace().map(str::to_owned).collect()
}

/// TO SEE THIS RED: take one idle connection after another, as long as there is one.
#[test]
fn a_client_in_no_schema_costs_its_user_no_more_than_one_idle_connection() {
    sql("drop user if exists bare@'127.0.0.1'");
    sql("create user bare@'127.0.0.1' identified by 'bare'");
    sql("grant all on * to bare@'127.0.0.1'");
    let usual = Login {
        user: "bare",
        password: "bare",
        ..Login::default()
    };
    let bare = Login {
        schema: None,
        ..usual
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut clients: Vec<Client> = (0..4).map(|_| Client::with(bed.address, &usual)).collect();
        clients.iter_mut().for_each(|client| client.run("begin"));
        clients.iter_mut().for_each(|client| client.run("commit"));
        let before = at_server();
        assert_eq!(before.len(), 4, "{io}");
        let mut client = Client::with(bed.address, &bare);
        assert_eq!(client.value("select database()"), "NULL", "{io}");
        let after = at_server();
        let left = before.iter().filter(|id| after.contains(id)).count();
        assert!(left >= 3, "{io}: {before:?}, then {after:?}");
        assert_eq!(clients[0].value("select database()"), own_schema(), "{io}");
        assert_eq!(client.value("select database()"), "NULL", "{io}");
    }
}
