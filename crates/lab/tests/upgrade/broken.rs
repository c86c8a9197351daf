//! Tests of new processes that do not start, hang, or reject their config: the old process
//! continues.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_lab::Balancer;

use super::{Kind, echo_behind, engine, held, is_alive, on_both_drivers, peer, until_alone};

on_both_drivers! {
    a_program_that_cannot_take_over_leaves_the_old_process_in_charge
    a_config_that_cannot_be_served_leaves_the_old_process_in_charge
}

/// Returns the error of a failed `evenkeel upgrade`.
fn refused(balancer: &Balancer, arguments: &[&str]) -> String {
    let pid = balancer.pid();
    let Err(error) = balancer.upgrade(arguments) else {
        panic!("{arguments:?} took over");
    };
    assert_eq!(balancer.pids(), [pid], "the old process alone");
    let error = format!("{error:#}");
    assert!(
        error.contains(&format!("process {pid} continues to serve")),
        "{error}"
    );
    error
}

fn script(directory: &Path, text: &str) -> String {
    let path = directory.join("script");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    path.display().to_string()
}

fn a_program_that_cannot_take_over_leaves_the_old_process_in_charge(io: &str) {
    let work_dir = tempfile::tempdir().unwrap();
    let (_server, listen, balancer) = echo_behind(io, "max_connections = 3\n");
    let client = held(&listen, 1);
    let error = refused(&balancer, &["--binary", "/bin/false"]);
    assert!(
        error.contains("/bin/false exited before it took over (exit status: 1)"),
        "{error}"
    );
    let talks = script(
        work_dir.path(),
        "#!/bin/sh\necho I am no balancer >&2\nexit 3\n",
    );
    let error = refused(&balancer, &["--binary", &talks]);
    assert!(
        error.contains("exit status: 3") && error.contains("I am no balancer"),
        "{error}"
    );
    assert!(balancer.log().contains("I am no balancer"));
    let hangs = script(work_dir.path(), "#!/bin/sh\nexec sleep 600\n");
    let since = Instant::now();
    let error = refused(&balancer, &["--binary", &hangs, "--limit-ms", "500"]);
    assert!(
        error.contains("within 500 ms and was terminated"),
        "{error}"
    );
    assert!(since.elapsed() < Duration::from_secs(10));
    let garbage = script(
        work_dir.path(),
        "#!/bin/sh\nprintf '\\0\\0\\0\\2{}' >&0\nexec sleep 600\n",
    );
    let error = refused(&balancer, &["--binary", &garbage]);
    assert!(error.contains("did not take over"), "{error}");
    fs::set_permissions(&hangs, Permissions::from_mode(0o600)).unwrap();
    let error = refused(&balancer, &["--binary", &hangs]);
    assert!(
        error.contains("cannot start") && error.contains("ermission"),
        "{error}"
    );
    let error = refused(&balancer, &["--binary", "/nowhere/evenkeel"]);
    assert!(error.contains("/nowhere/evenkeel"), "{error}");
    // Nothing of it is left: the full capacity is free, and the next working process takes over.
    assert!(client.iter().all(is_alive));
    drop(held(&listen, 2));
    balancer.upgrade(&[]).unwrap();
    assert!(client.iter().all(is_alive));
    drop(client);
    until_alone(&balancer);
    drop(held(&listen, 3));
}

fn a_config_that_cannot_be_served_leaves_the_old_process_in_charge(io: &str) {
    let (server, listen, balancer) = echo_behind(io, "");
    let client = held(&listen, 1);
    let other = peer::Listening::new(Kind::V4);
    let good = peer::service(&listen, &[server.address()], "");
    let typing_error = good.replace("servers", "srevers");
    balancer.write_config(&typing_error).unwrap();
    let error = refused(&balancer, &[]);
    assert!(
        error.contains("srevers") && error.contains("servers"),
        "{error}"
    );
    let occupied = peer::named_service("t", &other.address, &[server.address()], "");
    balancer.write_config(&format!("{good}{occupied}")).unwrap();
    let error = refused(&balancer, &[]);
    assert!(
        error.contains(&other.address) && error.contains("in use"),
        "{error}"
    );
    // The new process had the sockets already, and must not have shut them down.
    drop(held(&listen, 2));
    balancer
        .write_config(&format!("{}{good}", engine(io, 60_000)))
        .unwrap();
    balancer.upgrade(&[]).unwrap();
    assert!(client.iter().all(is_alive));
    drop(held(&listen, 1));
}
