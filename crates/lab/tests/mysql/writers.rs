//! A Galera cluster all of whose nodes take writes: each session has one of them for its home, and
//! meets there what it wrote, also after it has moved.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{ClusterKind, Scene};

use super::causal::{BIG, PORT, leave_transactions, port};
use super::client::Client;
use super::handover::count;
use super::split::{Stage, prepare};
use crate::rig::{DRIVERS, engine, loopback, service};

/// `further` lines of `[service.split]`.
fn stage(io: &str, further: &str) -> Stage {
    let scene = Scene::start(ClusterKind::Galera).unwrap();
    prepare(&scene);
    let split = format!("[service.split]\nwriters = \"all\"\n{further}");
    let stage = Stage::before(scene, loopback(), &engine(io), &split);
    stage.wait("what functions do", || !is_bound(&stage));
    stage
}

/// A client that came before functions were known is bound by calling one.
fn is_bound(stage: &Stage) -> bool {
    let mut client = stage.client();
    client.run(PORT);
    let told = stage.balancer.command(&["clients"]).unwrap();
    String::from_utf8_lossy(&told.stdout).contains("unknown")
}

/// How many of the clients are at home where.
fn homes(clients: &mut [Client]) -> BTreeMap<String, usize> {
    let mut homes = BTreeMap::new();
    for client in clients {
        *homes.entry(client.value(PORT)).or_default() += 1;
    }
    homes
}

fn counts(homes: &BTreeMap<String, usize>) -> Vec<usize> {
    homes.values().copied().collect()
}

#[test]
fn sessions_write_at_all_nodes_and_each_reads_what_it_wrote_on_both_drivers() {
    for io in DRIVERS {
        let stage = stage(io, "");
        let mut clients: Vec<Client> = (0..12).map(|_| stage.client()).collect();
        let at: Vec<String> = clients.iter_mut().map(|one| one.value(PORT)).collect();
        for round in 1..=20 {
            for (id, client) in clients.iter_mut().enumerate() {
                client.run(&format!("update counters set v = {round} where id = {id}"));
                let row = client.value(&format!("select v, here() from counters where id = {id}"));
                assert_eq!(row, format!("{round}|{}", at[id]), "session {id}");
            }
        }
        assert_eq!(counts(&homes(&mut clients)), [4, 4, 4]);
        let changed = stage.scene.servers.iter().map(|server| {
            let sql = "select variable_value from information_schema.global_status \
                       where variable_name = 'com_update'";
            server.sql(sql).unwrap().trim().parse::<u64>().unwrap()
        });
        assert!(changed.min().unwrap() >= 80, "each node has run updates");
    }
}

/// With reads split as well, a session reads at all nodes, and waits there for what it wrote.
#[test]
fn reads_are_spread_over_the_nodes_and_see_what_their_session_wrote() {
    let stage = stage("auto", "reads = true\ngalera_wait = true");
    let mut elsewhere = 0;
    for id in 0..3 {
        let mut client = stage.client();
        let home = client.value("/* evenkeel: primary */ select here()");
        for round in 1..=60 {
            client.run(&format!("update counters set v = {round} where id = {id}"));
            let row = client.value(&format!("select v, here() from counters where id = {id}"));
            let (seen, there) = row.split_once('|').unwrap();
            assert_eq!(seen, round.to_string(), "at {there}, home {home}");
            elsewhere += usize::from(there != home);
        }
    }
    assert!(elsewhere > 30, "{elsewhere}");
}

#[test]
fn a_session_that_moves_waits_for_what_it_wrote_before() {
    for further in ["", "reads = true", "reads = true\ngalera_wait = true"] {
        let stage = stage("auto", further);
        stage.client().run(BIG);
        stage.scene.wait_caught_up().unwrap();
        leave_transactions(&stage, "begin");
        let mut client = stage.client();
        let home = client.value("/* evenkeel: primary */ select here()");
        let (old, others): (Vec<_>, Vec<_>) = stage
            .scene
            .servers
            .iter()
            .partition(|one| port(one) == home);
        others.iter().for_each(|node| node.cpu_share(5).unwrap());
        client.run("update big set v = 7");
        old[0].sql("set global wsrep_desync = on").unwrap();
        let moved = || {
            let mut other = stage.client();
            other.value("/* evenkeel: primary */ select here()") != home
        };
        stage.wait("a node that takes nothing new", moved);
        let applied: Vec<String> = others
            .iter()
            .map(|node| node.sql("select min(v) from sbtest.big").unwrap())
            .collect();
        let row = client.value("select v, here() from big where id = 30000");
        let (seen, there) = row.split_once('|').unwrap();
        assert_eq!(seen, "7", "at {there}: {further}");
        let row = client.value("/* evenkeel: primary */ select v, here() from big where id = 1");
        assert!(row.starts_with("7|") && !row.ends_with(&home), "{row}");
        assert!(applied.iter().any(|v| v.trim() == "0"), "nothing was shown");
    }
}

#[test]
fn the_sessions_of_a_node_that_dies_go_on_elsewhere_and_come_back_with_it() {
    let stage = stage("auto", "");
    let mut clients: Vec<Client> = (0..12).map(|_| stage.client()).collect();
    assert_eq!(counts(&homes(&mut clients)), [4, 4, 4]);
    for (id, client) in clients.iter_mut().enumerate() {
        client.run(&format!("update counters set v = {id} where id = {id}"));
    }
    let dying = &stage.scene.servers[1];
    dying.kill().unwrap();
    let begun = Instant::now();
    for (id, client) in clients.iter_mut().enumerate() {
        let seen = client.value(&format!("select v from counters where id = {id}"));
        assert_eq!(seen, id.to_string());
        client.run(&format!("update counters set v = v + 100 where id = {id}"));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let there = homes(&mut clients);
    assert!(!there.contains_key(&port(dying)), "{there:?}");
    assert_eq!(counts(&there), [6, 6]);
    dying.start().unwrap();
    stage.scene.wait_whole().unwrap();
    stage.wait("a share for the node that is back", || {
        counts(&homes(&mut clients)) == [4, 4, 4]
    });
    for (id, client) in clients.iter_mut().enumerate() {
        let seen = client.value(&format!("select v from counters where id = {id}"));
        assert_eq!(seen, (100 + id).to_string());
    }
}

/// A node is set aside by its operator, drained by ours, and named the primary, and nobody hears of
/// it.
#[test]
fn nobody_hears_of_a_node_that_takes_nothing_new_for_a_while() {
    for io in DRIVERS {
        let stage = stage(io, "");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let count = |id| (id, count(&stage, id, &is_over));
            let counting = (0..12).map(|id| scope.spawn(move || count(id)));
            let counting: Vec<_> = counting.collect();
            for change in 0..9 {
                let server = &stage.scene.servers[change % 3];
                let (first, then) = match change / 3 {
                    0 => ("desync", "resync"),
                    1 => ("drain", "undrain"),
                    _ => ("primary", ""),
                };
                for word in [first, then] {
                    match word {
                        "" => {}
                        "desync" => drop(server.sql("set global wsrep_desync = on").unwrap()),
                        "resync" => drop(server.sql("set global wsrep_desync = off").unwrap()),
                        word => {
                            let told = stage.balancer.command(&[word, &server.name]).unwrap();
                            assert!(told.status.success(), "{told:?}");
                        }
                    }
                    thread::sleep(Duration::from_millis(400));
                }
            }
            is_over.store(true, Relaxed);
            let mut direct = Client::connect(stage.scene.servers[0].address);
            direct.run("set session wsrep_sync_wait = 1");
            for done in counting {
                let (id, (rounds, longest)) = done.join().unwrap();
                let there = direct.value(&format!("select v from counters where id = {id}"));
                assert_eq!(there, rounds.to_string(), "counter {id}");
                assert!(longest < Duration::from_secs(1), "{longest:?}");
            }
        });
    }
}

#[test]
fn one_of_two_that_write_the_same_row_is_told_so_and_goes_on() {
    let stage = stage("auto", "");
    let (mut one, mut other) = (stage.client(), stage.client());
    assert_ne!(one.value(PORT), other.value(PORT), "two homes");
    for client in [&mut one, &mut other] {
        client.run("begin");
        client.run("update counters set v = v + 1 where id = 5");
    }
    one.run("commit");
    let told = other.refusal("commit");
    assert!(told.starts_with("1213"), "{told}");
    other.run("update counters set v = v + 1 where id = 6");
    assert_eq!(other.value("select v from counters where id = 6"), "1");
    assert_eq!(one.value("select v from counters where id = 5"), "1");
}

#[test]
fn a_reload_changes_who_writes_and_sessions_go_on_with_what_they_wrote() {
    let stage = stage("auto", "");
    let mut clients: Vec<Client> = (0..6).map(|_| stage.client()).collect();
    assert_eq!(counts(&homes(&mut clients)), [2, 2, 2]);
    let all = stage.balancer.config();
    let one = all.replace("writers = \"all\"", "writers = \"one\"");
    let mut wrote = 0;
    for config in [&one, &all, &one, &all] {
        for (id, client) in clients.iter_mut().enumerate() {
            client.run(&format!("update counters set v = v + 1 where id = {id}"));
        }
        wrote += 1;
        stage.balancer.reload(config).unwrap();
        for (id, client) in clients.iter_mut().enumerate() {
            let seen = client.value(&format!("select v from counters where id = {id}"));
            assert_eq!(seen, wrote.to_string(), "session {id}");
        }
        let there = counts(&homes(&mut clients));
        let is_one = config == &one;
        assert_eq!(there, if is_one { vec![6] } else { vec![2, 2, 2] });
    }
}

#[test]
fn explain_and_status_say_who_writes() {
    let stage = stage("auto", "");
    let told = stage
        .balancer
        .command(&["explain", "delete from t"])
        .unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    for server in &stage.scene.servers {
        assert!(told.contains(&server.name), "{told}");
    }
    assert!(told.contains("the session's home"), "{told}");
    let mut clients: Vec<Client> = (0..3).map(|_| stage.client()).collect();
    assert_eq!(counts(&homes(&mut clients)), [1, 1, 1]);
    let status = stage.balancer.status().unwrap();
    assert_eq!(
        status["clusters"][0]["writers"].as_array().unwrap().len(),
        3
    );
    let service = service(&status, "db");
    assert_eq!(service["database"]["problems"], serde_json::json!([]));
    for server in service["servers"].as_array().unwrap() {
        assert_eq!(server["role"]["role"], "writer");
        assert_eq!(server["at_home"], 1);
    }
}

#[test]
fn servers_that_cannot_write_beside_each_other_do_not_and_the_status_says_so() {
    let scene = Scene::start(ClusterKind::Mariadb).unwrap();
    prepare(&scene);
    let split = "[service.split]\nwriters = \"all\"";
    let stage = Stage::before(scene, loopback(), &engine("auto"), split);
    let mut clients: Vec<Client> = (0..6).map(|_| stage.client()).collect();
    let there = homes(&mut clients);
    assert_eq!(there, BTreeMap::from([(stage.port_of_primary(), 6)]));
    let status = stage.balancer.status().unwrap();
    let problems = service(&status, "db")["database"]["problems"].to_string();
    assert!(problems.contains("has no effect"), "{problems}");
}
