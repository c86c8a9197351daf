//! Tests of the names that programs give themselves, as an operator sees them.

use std::process::Command;

use serde_json::Value;

use super::stage::{Setup, TestBed};
use crate::harness::{done, wait_until};

/// TO SEE THIS RED: ignore the attributes of the login.
#[test]
fn a_client_is_listed_with_its_connection_attribute() {
    let bed = TestBed::set_up("auto", Setup::default());
    let mut client = Command::new("mariadb")
        .args([
            "--no-defaults",
            "--protocol=tcp",
            "-h127.0.0.1",
            "--skip-ssl",
        ])
        .arg(format!("-P{}", bed.address.port()))
        .args(["-usbtest", "-psbtest", "-e", "select sleep(60)"])
        .spawn()
        .unwrap();
    let has = |arguments: &[&str]| {
        let command = [&["clients", "pool", "--json"], arguments].concat();
        let listed: Value = serde_json::from_str(&done(&bed.balancer, &command)).unwrap();
        !listed["clients"].as_array().unwrap().is_empty()
    };
    // The name in Debian's packages of versions 10.11 and 11.
    let named = || has(&["--application", "mysql"]) || has(&["--application", "mariadb"]);
    wait_until(&bed.balancer, "a client with a name", named);
    assert!(!has(&["--application", "other"]));
    client.kill().unwrap();
    client.wait().unwrap();
}
