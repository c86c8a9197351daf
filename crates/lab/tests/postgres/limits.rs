//! Tests of time and number limits: the right error, without effect on other clients.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{eventually, procfs};

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{KIND, Setup, TestBed, own_database, shared};
use crate::harness::{DRIVERS, LIMIT, pool};

#[test]
fn a_query_that_takes_too_long_is_cancelled() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            service: "query_timeout_ms = 600",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        assert_eq!(
            client.query("select pg_sleep(30)"),
            ["T pg_sleep", "E 57014", "Z Idle"]
        );
        // A wait is no query.
        client.run("begin");
        assert!(client.is_silent_for(Duration::from_millis(1_500)));
        assert_eq!(client.value("select 'in time'"), "in time");
        client.run("commit");
        for _ in 0..8 {
            client.run("select pg_sleep(0.2)");
        }
        let mut script = Script::new();
        for _ in 0..8 {
            script = script
                .parse("", "select pg_sleep(0.2)")
                .bind("", &[])
                .execute()
                .sync();
        }
        let reply = client.exchange(&script, 8);
        assert!(
            !reply.iter().any(|line| line.starts_with('E')),
            "{io}: {reply:?}"
        );
    }
}

#[test]
fn what_is_quick_is_not_ended_for_the_time_of_what_was_before() {
    for io in DRIVERS {
        for service in [
            "query_timeout_ms = 250",
            "transaction_timeout_ms = 250",
            "idle_in_transaction_timeout_ms = 250",
        ] {
            let setup = Setup {
                pool: "size = 1",
                service,
                ..Setup::default()
            };
            let bed = TestBed::set_up(io, setup);
            let mut client = bed.client();
            for _ in 0..12 {
                client.run("begin; select pg_sleep(0.03)");
                thread::sleep(Duration::from_millis(30));
                client.run("commit");
                client.run("select pg_sleep(0.03)");
            }
        }
    }
}

#[test]
fn a_transaction_that_lasts_too_long_is_ended() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            service: "transaction_timeout_ms = 700",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        client.run("begin");
        assert_eq!(client.reply(), ["E 25P04", "end"], "{io}");
        let mut client = bed.client();
        client.run_later("select pg_sleep(30)");
        let reply = client.reply();
        assert_eq!(reply[reply.len() - 2..], ["E 25P04", "end"], "{io}");
        // Many short ones are no long one; nor is a client that waits long between them.
        let mut client = bed.client();
        for _ in 0..10 {
            client.run("begin; select pg_sleep(0.1)");
            client.run("commit");
        }
        assert!(client.is_silent_for(Duration::from_millis(1_500)));
        client.run("begin; listen something; commit");
        assert!(client.is_silent_for(Duration::from_millis(1_500)));
        client.run("select 1");
    }
}

#[test]
fn a_client_that_says_nothing_in_a_transaction_is_ended() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            service: "idle_in_transaction_timeout_ms = 700",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        client.run("begin");
        let began = Instant::now();
        assert_eq!(client.reply(), ["E 25P03", "end"], "{io}");
        assert!(began.elapsed() > Duration::from_millis(500));
        let mut next = bed.client();
        next.run("begin; select pg_sleep(1.5)");
        next.run("select pg_sleep(1.5)");
        next.run("commit");
        // Failed transactions are open, too.
        let _ = next.query("begin; select 1/0");
        assert_eq!(next.reply(), ["E 25P03", "end"], "{io}");
        assert_eq!(bed.client().value("select 'free'"), "free");
    }
}

#[test]
fn who_does_not_log_in_is_sent_away() {
    for io in DRIVERS {
        let setup = Setup {
            service: "login_timeout_ms = 500",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut silent = Client::reach(bed.address);
        assert_eq!(silent.reply(), ["E 08P01", "end"], "{io}");
        let mut slow = Client::reach(bed.address);
        slow.send_script(&Script::startup(&Login::default()));
        assert_eq!(slow.reply(), ["R", "E 08P01", "end"], "{io}");
        let mut half = Client::reach(bed.address);
        half.send_script(&Script(vec![0, 0]));
        assert_eq!(half.reply(), ["E 08P01", "end"], "{io}");
    }
}

/// TO SEE THIS RED: let all clients begin immediately.
#[test]
fn strangers_who_say_nothing_keep_others_out_for_as_long_as_a_login_may_take() {
    for io in DRIVERS {
        let setup = Setup {
            service: "login_timeout_ms = 2000\nlogins_per_address = 2",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut inside = bed.client();
        let mut strangers = [(); 2].map(|()| Client::reach(bed.address));
        // Workers accept them one after another.
        thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        let mut late = Client::reach(bed.address);
        late.send_script(&Script::startup(&Login::default()));
        assert!(late.is_silent_for(Duration::from_millis(500)), "{io}");
        assert_eq!(inside.value("select 'at work'"), "at work");
        assert_eq!(strangers[0].reply(), ["E 08P01", "end"], "{io}");
        assert_eq!(strangers[1].reply(), ["E 08P01", "end"], "{io}");
        assert!(began.elapsed() > Duration::from_millis(1_200), "{io}");
        assert_eq!(bed.client().value("select 'in'"), "in", "{io}");
    }
}

#[test]
fn who_finds_no_place_to_log_in_is_told_so() {
    for io in DRIVERS {
        let limit =
            |login_timeout_ms| format!("login_timeout_ms = {login_timeout_ms}\nlogins_at_once = 1");
        let (longer, shorter) = (limit(4_000), limit(500));
        let setup = |service| Setup {
            service,
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup(&longer));
        let reload = |service| {
            let config = pool::config(KIND, shared(), bed.address, io, setup(service));
            bed.balancer.reload(&config).unwrap();
        };
        let mut holder = Client::reach(bed.address);
        holder.send_script(&Script::startup(&Login::default()));
        assert_eq!(holder.receive_message(), "R", "{io}");
        // The holder's time is longer than that of the others, so none of them gets its place.
        reload(&shorter);
        let others: Vec<_> = (0..5).map(|_| Client::reach(bed.address)).collect();
        for mut other in others {
            assert_eq!(other.reply(), ["E 53300", "end"], "{io}");
        }
        assert_eq!(holder.reply(), ["E 08P01", "end"], "{io}");
        reload(&longer);
        assert_eq!(bed.client().value("select 'in'"), "in", "{io}");
    }
}

#[test]
fn who_waits_too_long_for_a_connection_is_told_and_goes_on() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1\nwait_ms = 500",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let (mut holder, mut waiter) = (bed.client(), bed.client());
        waiter.exchange(&Script::new().parse("s", "select 's'").sync(), 1);
        holder.run("begin");
        assert_eq!(waiter.query("select 1"), ["E 53300", "Z Idle"], "{io}");
        let batch = Script::new()
            .parse("t", "select 't'")
            .bind("t", &[])
            .execute()
            .sync();
        assert_eq!(waiter.exchange(&batch, 1), ["E 53300", "Z Idle"], "{io}");
        let two = Script::new().query("select 1").query("select 2");
        assert_eq!(
            waiter.exchange(&two, 2),
            ["E 53300", "Z Idle", "E 53300", "Z Idle"]
        );
        // Half a batch: the rest of it is skipped.
        waiter.send_script(&Script::new().bind("s", &[]).flush());
        assert_eq!(waiter.receive_message(), "E 53300");
        let rest = Script::new().execute().parse("u", "select 'u'").sync();
        assert_eq!(waiter.exchange(&rest, 1), ["Z Idle"]);
        holder.run("commit");
        let run = |name: &str| Script::new().bind(name, &[]).execute().sync();
        assert_eq!(
            waiter.exchange(&run("s"), 1),
            ["2", "D s", "C SELECT 1", "Z Idle"]
        );
        assert_eq!(waiter.exchange(&run("t"), 1), ["E 26000", "Z Idle"]);
        assert_eq!(waiter.exchange(&run("u"), 1), ["E 26000", "Z Idle"]);
    }
}

#[test]
fn the_rest_of_a_long_query_that_was_refused_is_no_part_of_the_next_one() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1\nwait_ms = 300",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let (mut holder, mut waiter) = (bed.client(), bed.client());
        let long = "x".repeat(1024 * 1024 + 2_000);
        let script = Script::new()
            .query(&format!("select '{long}'"))
            .query("select 'next'");
        let (begins, rest) = script.0.split_at(1024 * 1024 + 1_000);
        holder.run("begin");
        waiter.send_script(&Script(begins.to_vec()));
        assert_eq!(waiter.reply(), ["E 53300", "Z Idle"], "{io}");
        holder.run("commit");
        waiter.send_script(&Script(rest.to_vec()));
        assert_eq!(
            waiter.reply()[1..],
            ["D next", "C SELECT 1", "Z Idle"],
            "{io}"
        );
    }
}

#[test]
fn pools_keep_to_their_sizes_and_say_which_was_in_the_way() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 3\nwait_ms = 1500\nuser_size = 2\nqueue_length = 1",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let (mut third, mut fourth) = (bed.client(), bed.client());
        let named = [("application_name", "holder")];
        let mut holders = [(); 2].map(|()| Client::with(bed.address, &named));
        for holder in &mut holders {
            holder.run("begin");
        }
        assert_eq!(third.refusal("select 1"), "53300", "{io}");
        third.run_later("select 1");
        let began = Instant::now();
        assert_eq!(fourth.refusal("select 1"), "53300", "{io}");
        assert!(
            began.elapsed() < Duration::from_millis(1_000),
            "queue full (queue.length)"
        );
        assert_eq!(third.reply(), ["E 53300", "Z Idle"]);
        // A known user can log in on any worker, even without a free connection.
        for _ in 0..6 {
            drop(bed.client());
        }
        // Another user has a free slot.
        let login = Login {
            user: "postgres",
            password: "postgres",
            ..Login::default()
        };
        let mut admin =
            Client::log_in(bed.address, &login).unwrap_or_else(|answer| panic!("{answer}"));
        let used = "select count(*) from pg_stat_activity where application_name = 'holder' \
                    and datname = current_database()";
        assert_eq!(admin.value(used), "2");
    }
}

#[test]
fn all_clients_of_both_workers_come_to_their_turn() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 2",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let clients: Vec<Client> = (0..24).map(|_| bed.client()).collect();
        let until = Instant::now() + Duration::from_secs(3);
        let clients: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                std::thread::spawn(move || {
                    let (mut count, mut longest) = (0_u32, Duration::ZERO);
                    while Instant::now() < until {
                        let began = Instant::now();
                        client.run("select pg_sleep(0.002)");
                        longest = longest.max(began.elapsed());
                        count += 1;
                    }
                    (count, longest)
                })
            })
            .collect();
        let done: Vec<_> = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect();
        let least = done.iter().map(|(count, _)| *count).min().unwrap();
        let most = done.iter().map(|(count, _)| *count).max().unwrap();
        assert!(least * 2 >= most, "{io}: from {least} to {most}: {done:?}");
    }
}

#[test]
fn idle_clients_are_sent_away_only_where_that_is_wanted() {
    for io in DRIVERS {
        let setup = Setup {
            service: "idle_timeout_ms = 700",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        assert_eq!(client.reply(), ["E 57P05", "end"], "{io}");
    }
}

#[test]
fn idle_and_old_connections_are_closed_and_a_few_kept_warm() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 5\nmin_idle = 1\nidle_ms = 500",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut clients: Vec<Client> = (0..4)
            .map(|_| Client::with(bed.address, &[("application_name", "counted")]))
            .collect();
        for client in &mut clients {
            client.run("begin");
        }
        let mut admin = super::stage::admin();
        let count = "select count(*) from pg_stat_activity where application_name = 'counted' \
                     and usename = 'sbtest' and datname = current_database()";
        assert_eq!(admin.value(count), "4");
        for client in &mut clients {
            client.run("commit");
        }
        // Two workers may close the last two of the clients' connections, after which a new one is
        // opened, which has no name.
        let count = "select count(*) from pg_stat_activity where usename = 'sbtest' \
                     and datname = current_database()";
        let waited = eventually(LIMIT, "one that is kept", || {
            Ok((admin.value(count) == "1").then_some(()))
        });
        waited.unwrap_or_else(|error| panic!("{error}: {:#}", bed.status()));
    }
}

#[test]
fn connections_of_a_database_are_limited_and_other_databases_have_theirs() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 3\nwait_ms = 500\ndatabase_size = 1\n\
                   [service.pool.databases.postgres]\nsize = 2",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let log_in = |database| {
            let login = Login {
                database,
                ..Login::default()
            };
            Client::log_in(bed.address, &login).unwrap_or_else(|answer| panic!("{answer}"))
        };
        for (database, places) in [(own_database(), 1), ("postgres", 2)] {
            let mut holders: Vec<_> = (0..places).map(|_| log_in(database)).collect();
            let mut other = log_in(database);
            for holder in &mut holders {
                holder.run("begin");
            }
            assert_eq!(other.refusal("select 1"), "53300", "{io} {database}");
            holders[0].run("commit");
            assert_eq!(other.value("select 'in'"), "in", "{io} {database}");
        }
    }
}

#[test]
fn a_connection_is_replaced_when_it_is_old_and_its_client_goes_on() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1\nlifetime_ms = 1000",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        client.run("set application_name to 'stays'");
        let (first, began) = (client.backend(), Instant::now());
        let waited = eventually(LIMIT, "another connection", || {
            Ok((client.backend() != first).then_some(()))
        });
        waited.unwrap();
        let took = began.elapsed();
        assert!(took > Duration::from_millis(500), "{io}: {took:?}");
        assert_eq!(client.value("show application_name"), "stays", "{io}");
    }
}

/// TO SEE THIS RED: analyze messages after an error.
#[test]
fn what_comes_behind_an_error_without_a_sync_is_not_remembered() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut client = bed.client();
        client.send_script(&Script::new().parse("", "no sql").flush());
        assert!(client.receive_message().starts_with("E "), "{io}");
        let memory_kb = || procfs::memory_kb(&bed.balancer.pids());
        let before_kb = memory_kb();
        for round in 0..40 {
            let mut script = Script::new();
            for number in 0..5_000 {
                script = script.query(&format!("set a.b = '{round} {number}'; set a.c = ''"));
            }
            client.send_script(&script);
        }
        assert_eq!(
            client.exchange(&Script::new().sync(), 1),
            ["Z Idle"],
            "{io}"
        );
        let grown_kb = memory_kb().saturating_sub(before_kb);
        assert!(grown_kb < 16 * 1024, "{io}: {grown_kb} kB");
        assert_eq!(client.value("select 'on'"), "on", "{io}");
    }
}

/// Maximum memory of an idle client that has logged in, in bytes.
const IDLE_BYTES_MAX: u64 = 5_000;

#[test]
fn an_idle_client_takes_little_memory() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let each_bytes = bed.bytes_per_client(|| {
            let mut client = bed.client();
            assert_eq!(client.value("select 'in'"), "in");
            client
        });
        println!("{io}: {each_bytes} bytes per idle client");
        assert!(each_bytes <= IDLE_BYTES_MAX, "{io}: {each_bytes} bytes");
    }
}
