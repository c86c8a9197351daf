//! Tests of the names that programs give themselves, as an operator sees them.

use serde_json::Value;

use super::client::Client;
use super::stage::{Setup, TestBed};
use crate::harness::{DRIVERS, done};

/// Returns the applications of the listed clients.
fn listed(bed: &TestBed, arguments: &[&str]) -> Vec<String> {
    let command = [&["clients", "pool", "--json"], arguments].concat();
    let listed: Value = serde_json::from_str(&done(&bed.balancer, &command)).unwrap();
    let clients = listed["clients"].as_array().unwrap().iter();
    let names = clients.map(|one| one["application"].as_str().unwrap().to_owned());
    names.collect()
}

/// TO SEE THIS RED: show the name of the login only.
#[test]
fn clients_are_listed_by_the_names_of_their_programs() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let _web = Client::with(bed.address, &[("application_name", "web")]);
        let mut batch = Client::with(bed.address, &[("application_name", "web")]);
        let mut other = bed.client();
        assert_eq!(listed(&bed, &[]), ["web", "web", ""], "{io}");
        batch.run("set application_name = 'batch'");
        other.run("begin; set application_name = 'never'; rollback");
        assert_eq!(listed(&bed, &[]), ["web", "batch", ""], "{io}");
        assert_eq!(listed(&bed, &["--application", "batch"]), ["batch"], "{io}");
        assert!(listed(&bed, &["--application", "none"]).is_empty(), "{io}");
        let shown = done(&bed.balancer, &["clients", "pool"]);
        assert!(
            shown.contains("APPLICATION") && shown.contains(" batch "),
            "{shown}"
        );
    }
}
