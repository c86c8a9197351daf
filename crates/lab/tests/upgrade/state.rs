//! Tests of state that outlives an upgrade, and of changes that a new config makes with one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use evenkeel_lab::balancer::find_binary;
use evenkeel_lab::new_connections::greet;
use evenkeel_lab::{Balancer, Greeting, Lab, MariadbOptions, NewConnections, Service, eventually};
use serde_json::Value;

use super::{
    Kind, Scripted, connect, echo_behind, engine, first_service, held, is_alive, on_both_drivers,
    peer, until, until_alone, until_service,
};
use crate::peer::{descriptors, name_of, settled_descriptors, try_connect};

on_both_drivers! {
    what_operators_and_probes_have_found_outlives_an_upgrade
    listeners_come_and_go_with_the_new_config
    the_old_process_ends_with_code_0_once_its_last_session_has
    descriptors_do_not_pile_up_over_upgrades
}

fn command(balancer: &Balancer, arguments: &[&str]) {
    let output = balancer.command(arguments).unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn what_operators_and_probes_have_found_outlives_an_upgrade(io: &str) {
    let servers = ["one", "two", "six"].map(Scripted::named);
    let dead = peer::own_address(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let mut addresses: Vec<&str> = servers.iter().map(Scripted::address).collect();
    addresses.push(&dead);
    let health = "[service.health]\nprobe = \"tcp\"\ninterval_ms = 60000\n";
    let service = peer::service(&listen, &addresses, &format!("retries = 0\n{health}"));
    let balancer = Balancer::start(&format!("{}{service}", engine(io, 60_000))).unwrap();
    until_service(&balancer, "the first probes", |s| {
        s["servers"][0]["state"] == "up" && s["servers"][3]["state"] == "down"
    });
    command(&balancer, &["drain", addresses[0], "--limit-ms", "600000"]);
    command(&balancer, &["weight", addresses[1], "0"]);
    for _ in 0..4 {
        assert_eq!(name_of(&connect(&listen)), "six");
    }
    until_service(&balancer, "a minute's first points", |s| {
        s["history"]
            .as_array()
            .is_some_and(|points| points.len() > 1)
    });
    let before = first_service(&balancer);
    for _ in 0..2 {
        balancer.upgrade(&[]).unwrap();
        let after = first_service(&balancer);
        let same = |key: &str| assert_eq!(after["servers"][0][key], before["servers"][0][key]);
        ["state", "weight", "config_override"]
            .iter()
            .for_each(|key| same(key));
        assert_eq!(
            after["servers"][1]["config_override"],
            "weight 0 set by operator, 1 in the file"
        );
        let down = &after["servers"][3];
        assert_eq!(
            (&down["state"], &down["reason"]),
            (
                &before["servers"][3]["state"],
                &before["servers"][3]["reason"]
            )
        );
        let since = |s: &Value| s["servers"][3]["since_unix_ms"].as_i64().unwrap();
        assert!((since(&after) - since(&before)).abs() < 500, "{after:#}");
        assert_eq!(after["sessions"]["total"], before["sessions"]["total"]);
        assert_eq!(after["bytes"], before["bytes"]);
        let points = |s: &Value| s["history"].as_array().unwrap().len();
        assert!(points(&after) >= points(&before));
        until_alone(&balancer);
    }
    // A server that is known to be down is not tried again: without retries its client would be
    // lost.
    for _ in 0..8 {
        assert_eq!(name_of(&connect(&listen)), "six");
    }
    until_service(&balancer, "the totals", |s| s["sessions"]["total"] == 12);
    command(&balancer, &["undrain", addresses[0]]);
    until_alone(&balancer);
}

fn listeners_come_and_go_with_the_new_config(io: &str) {
    let server = Scripted::echo(Kind::V4);
    let [stays, goes, comes] = [Kind::V4, Kind::V4, Kind::V4].map(peer::own_address);
    let unix = peer::own_address(Kind::Unix);
    let file = unix.strip_prefix("unix:").unwrap();
    let of = |name: &str, listen: &str| peer::named_service(name, listen, &[server.address()], "");
    let config = |io: &str, second: &str| {
        let stays = of("stays", &stays).replacen(
            &format!("{stays:?}"),
            &format!("[{stays:?}, {unix:?}]"),
            1,
        );
        format!("{}{stays}{second}", engine(io, 60_000))
    };
    let balancer = Balancer::start(&config(io, &of("goes", &goes))).unwrap();
    let clients: Vec<_> = [&stays, &goes, &unix]
        .iter()
        .flat_map(|listen| held(listen, 1))
        .collect();
    // The driver may change with an upgrade, too.
    let other = if io == "epoll" { "auto" } else { "epoll" };
    balancer
        .write_config(&config(other, &of("comes", &comes)))
        .unwrap();
    balancer.upgrade(&[]).unwrap();
    drop([held(&stays, 1), held(&comes, 1), held(&unix, 1)]);
    until("the end of a listener", || try_connect(&goes).is_err());
    assert!(clients.iter().all(is_alive));
    assert_eq!(
        balancer.status().unwrap()["engine"]["io"] == "epoll",
        other == "epoll"
    );
    drop(clients);
    until_alone(&balancer);
    // The old process has removed neither socket file.
    assert!(Path::new(file).exists() && balancer.socket().exists());
    drop([held(&stays, 1), held(&comes, 1), held(&unix, 1)]);
    balancer.stop().unwrap();
    assert!(!Path::new(file).exists() && !balancer.socket().exists());
}

fn the_old_process_ends_with_code_0_once_its_last_session_has(io: &str) {
    let work_dir = tempfile::tempdir().unwrap();
    let (server, listen) = (Scripted::echo(Kind::V4), peer::own_address(Kind::V4));
    let socket = work_dir.path().join("socket").display().to_string();
    let admin = format!("[admin]\nlisten = \"off\"\nsocket = {socket:?}\n");
    let file = work_dir.path().join("evenkeel.toml");
    let service = peer::service(&listen, &[server.address()], "");
    std::fs::write(&file, format!("{}{admin}{service}", engine(io, 60_000))).unwrap();
    let evenkeel = || Command::new(find_binary().unwrap());
    let mut old = evenkeel()
        .args(["run", "-c"])
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("a start", || try_connect(&listen).is_ok());
    let client = held(&listen, 1);
    let output = evenkeel()
        .args(["upgrade", "--socket", &socket])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains(&format!("; pid {} drains", old.id())),
        "{printed}"
    );
    assert_eq!(old.try_wait().unwrap(), None, "it has a session");
    assert!(client.iter().all(is_alive));
    drop(client);
    let code = eventually(peer::LIMIT, "the end", || Ok(old.try_wait()?)).unwrap();
    assert_eq!(code.code(), Some(0));
    drop(held(&listen, 1));
    let new = printed.split(' ').nth(1).unwrap();
    assert!(Command::new("kill").arg(new).status().unwrap().success());
    until("the end of the new one", || try_connect(&listen).is_err());
}

fn descriptors_do_not_pile_up_over_upgrades(io: &str) {
    let (_server, listen, balancer) = echo_behind(io, "");
    let client = held(&listen, 1);
    let first = balancer.pid();
    // The open descriptors of an old process must not reach the new one, sessions above all.
    balancer.upgrade(&[]).unwrap();
    until("the old one as it drains", || {
        balancer.pids() == [first, balancer.pid()]
    });
    let after_one = settled_descriptors(balancer.pid());
    drop(client);
    until_alone(&balancer);
    for _ in 0..3 {
        let client = held(&listen, 1);
        balancer.upgrade(&[]).unwrap();
        drop(client);
        until_alone(&balancer);
    }
    until("no more descriptors than after the first", || {
        descriptors(balancer.pid()) <= after_one
    });
}

/// TO SEE THIS RED: let the new process serve before it has queried which server is the primary.
#[test]
fn a_service_that_follows_the_primary_knows_it_when_the_new_process_begins() {
    let lab = Lab::new("upgrade-roles").unwrap();
    let options = MariadbOptions {
        replicas: 1,
        ..MariadbOptions::default()
    };
    let cluster = lab.mariadb(options).unwrap();
    let listen = peer::own_address(Kind::V4).parse().unwrap();
    let mut service = Service::new("writes", listen, "mysql", &cluster.servers());
    service.extra.push("role = \"primary\"".to_owned());
    let balancer =
        Balancer::start(&format!("{}{}", engine("auto", 20_000), service.toml())).unwrap();
    until("a primary", || {
        greet(listen, Greeting::Mysql, peer::LIMIT).is_ok()
    });
    let newcomers = NewConnections::start(
        listen,
        Greeting::Mysql,
        Duration::from_millis(3),
        peer::LIMIT,
    );
    for _ in 0..4 {
        balancer.upgrade(&[]).unwrap();
        let attempts = newcomers.so_far().attempts;
        until("more newcomers", || {
            newcomers.so_far().attempts > attempts + 20
        });
        until_alone(&balancer);
    }
    let report = newcomers.finish();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
}
