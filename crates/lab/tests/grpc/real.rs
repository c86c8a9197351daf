//! Tests with real servers and clients of gRPC: grpc-go, and grpcio for Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use evenkeel_lab::free_port;

use crate::frames::data;
use crate::go::{self, Server, client, run};
use crate::peer::{self, Kind, until, until_service};
use crate::{Bed, on_both_drivers, service};

on_both_drivers! {
    grpc_go_is_served
    grpc_python_is_served
    node_is_a_server
    streams_live_through_drains_and_reloads
    an_upgrade_cuts_no_stream
    the_health_service_is_asked
    errors_reach_clients_of_grpc
}

fn grpc_go_is_served(io: &str) {
    let Some(server) = Server::start() else {
        return;
    };
    let bed = Bed::new(io, &[&server.address], "");
    assert_eq!(client(&["client", &bed.listen]), "done\n");
}

/// Returns the command of a Python that has grpcio. `None`: there is none, and no way to it.
fn python() -> Option<Command> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let python = PYTHON.get_or_init(find_python).as_ref()?;
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc/python.py"));
    Some(command)
}

fn find_python() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpc-python");
    let python = directory.join("bin/python3");
    let mut probe = Command::new(&python);
    probe.args(["-c", "import grpc"]).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        return Some(python);
    }
    let script = format!(
        "python3 -m venv {0} && {0}/bin/python3 -m pip install --quiet grpcio",
        directory.display()
    );
    let made = Command::new("sh").args(["-c", &script]).output().unwrap();
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr).into_owned();
        println!("skipped: grpcio cannot be installed: {why}");
        return None;
    }
    Some(python)
}

/// The client and the server are of Python, or one of them of Go.
fn grpc_python_is_served(io: &str) {
    let Some(mut command) = python() else { return };
    let address = format!("127.0.0.1:{}", free_port());
    let server = Server::spawn(command.args(["serve", &address]), address.clone());
    let bed = Bed::new(io, &[&server.address], "");
    let printed = run(python().unwrap().args(["client", &bed.listen]));
    assert_eq!(printed, "done\n");
    let Some(server) = Server::start() else {
        return;
    };
    let bed = Bed::new(io, &[&server.address], "");
    let printed = run(python().unwrap().args(["client", &bed.listen]));
    assert_eq!(printed, "done\n");
}

fn node_is_a_server(io: &str) {
    if Command::new("node").arg("--version").output().is_err() {
        println!("skipped: node is not installed");
        return;
    }
    let port = free_port().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc/server.mjs");
    let address = format!("127.0.0.1:{port}");
    let server = Server::spawn(Command::new("node").arg(script).arg(&port), address);
    let bed = Bed::new(io, &[&server.address], "");
    let mut client = bed.client();
    for number in 0..200 {
        let body = number.to_string().repeat(number);
        let stream = client.open("POST", "/", &[]);
        client.send(data(stream, &body, true));
        let response = client.response(stream);
        assert_eq!((response.status(), response.text()), (200, body));
        assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    }
    let streams: Vec<u32> = (0..100).map(|_| client.open("PUT", "/", &[])).collect();
    let part = "x".repeat(4_000);
    for part in [data(0, &part, false), data(0, &part, true)] {
        for stream in &streams {
            let mut part = part.clone();
            part[5..9].copy_from_slice(&stream.to_be_bytes());
            client.send(part);
        }
    }
    for stream in streams {
        let response = client.response(stream);
        assert_eq!(response.body.len(), 8_000, "{response:?}");
        assert_eq!(response.field("x-method").as_deref(), Some("PUT"));
    }
    let response = client.ask("GET", "/hints", &[]);
    assert_eq!(response.interim.len(), 1, "{response:?}");
}

/// Runs the act while streams are open, and asserts that none is cut.
#[track_caller]
fn streams_during(listen: &str, act: impl FnOnce()) {
    let mut command = Command::new(go::program().unwrap());
    command.args(["stream", listen, "4", "50"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    act();
    let output = process.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("cut 0 of 50"), "{output:?}");
    assert_eq!(printed.matches("open\n").count(), 50, "{printed}");
}

fn streams_live_through_drains_and_reloads(io: &str) {
    let [Some(first), Some(second)] = [Server::start(), Server::start()] else {
        return;
    };
    let both = [&*first.address, &*second.address];
    let bed = Bed::new(io, &both, "");
    let config = |servers: &[&str], more: &str| {
        let engine = format!("[engine]\nio = {io:?}\nworkers = 2\n");
        format!("{engine}{}", service(&bed.listen, servers, more))
    };
    streams_during(&bed.listen, || {
        let drained = bed.balancer.command(&["drain", &first.address]).unwrap();
        assert!(drained.status.success(), "{drained:?}");
        std::thread::sleep(Duration::from_millis(300));
        let undrained = bed.balancer.command(&["undrain", &first.address]);
        assert!(undrained.unwrap().status.success());
        bed.balancer.reload(&config(&both[1..], "")).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        bed.balancer
            .reload(&config(&both, "fields_max = 200\n"))
            .unwrap();
    });
}

fn an_upgrade_cuts_no_stream(io: &str) {
    let Some(server) = Server::start() else {
        return;
    };
    let listen = peer::own_address(Kind::V4);
    let engine = format!("[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 60000\n");
    let services = service(&listen, &[&server.address], "");
    let balancer = evenkeel_lab::Balancer::start(&format!("{engine}{services}")).unwrap();
    streams_during(&listen, || {
        balancer.upgrade(&[]).unwrap();
    });
}

fn the_health_service_is_asked(io: &str) {
    let Some(mut server) = Server::start() else {
        return;
    };
    let health = |service: &str| {
        format!(
            "[service.health]\nprobe = \"grpc\"\ninterval_ms = 100\nfall = 1\nrise = 1\n\
             grpc_service = {service:?}\n"
        )
    };
    for (service, why) in [
        ("good", None),
        (
            "bad",
            Some("service \"bad\" does not serve (serving status 2)"),
        ),
        (
            "none",
            Some("the health service does not know service \"none\""),
        ),
    ] {
        let bed = Bed::new(io, &[&server.address], &health(service));
        let state = if why.is_some() { "down" } else { "up" };
        until_service(&bed.balancer, state, |service| {
            let server = &service["servers"][0];
            let is_as_expected =
                why.is_none_or(|why| server.to_string().contains(&why.replace('"', "\\\"")));
            server["state"] == state && is_as_expected
        });
    }
    let bed = Bed::new(io, &[&server.address], &health("good"));
    until_service(&bed.balancer, "up", |service| {
        service["servers"][0]["state"] == "up"
    });
    server.stop();
    until_service(&bed.balancer, "down", |service| {
        service["servers"][0]["state"] == "down"
    });
}

fn errors_reach_clients_of_grpc(io: &str) {
    if go::program().is_none() {
        return;
    }
    let address = format!("127.0.0.1:{}", free_port());
    let bed = Bed::new(io, &[&address], "");
    let printed = client(&["status", &bed.listen, "Unary"]);
    assert_eq!(printed, "Unavailable: no server could be reached\n");
    let server = Server::start().unwrap();
    let route =
        "[[service.route]]\npath = \"/evenkeel.Echo/Fail\"\nallow_from = [\"10.0.0.0/8\"]\n";
    let bed = Bed::new(io, &[&server.address], route);
    let printed = client(&["status", &bed.listen, "Fail"]);
    assert_eq!(printed, "PermissionDenied: the address is not permitted\n");
    let bed = Bed::new(
        io,
        &[&server.address],
        "[service.times]\nfirst_byte_ms = 500\n",
    );
    let printed = client(&["status", &bed.listen, "Wait"]);
    assert!(
        printed.starts_with("Unavailable: the server does not respond"),
        "{printed}"
    );
    until("the cancel", || bed.balancer.is_running());
}
