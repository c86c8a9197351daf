//! Tests of two servers that claim to be the primary: the right one is used, or none, and the
//! message gives the reason.

use evenkeel_lab::scenario::ServiceSpec;
use evenkeel_lab::{Balancer, ClusterKind, Lab, PostgresOptions, RingOptions, Server};

use crate::harness::{done, loopback, wait_until};
use crate::test_bed::TestBed;

#[test]
fn an_old_primary_of_postgres_that_comes_back_is_fenced_by_its_timeline() {
    let bed = TestBed::set_up(ClusterKind::Postgres).unwrap();
    let writer = bed.writer();
    bed.wait_writes(&writer);
    let (old, new) = die_and_return(&bed);
    bed.wait_role(
        &old,
        "unusable",
        "timeline 1 is older than the cluster's timeline 2",
    );
    bed.wait_writes(&writer);
    assert_eq!(bed.primary(), Some(new.name.clone()));
    bed.wait_problem("rebuild it as a replica (pg_rewind or pg_basebackup)");
    bed.scenario.lab.rejoin(&old).unwrap();
    bed.wait_whole();
    let seen = writer.finish().verify(&new).unwrap();
    let mut writers = seen.writers.clone();
    writers.retain(|port| *port != new.address.port());
    assert!(seen.doubled.is_empty() && writers.len() <= 1, "{seen:?}");
}

#[test]
fn an_old_primary_of_mariadb_is_refused_and_after_it_diverged_nobody_writes_until_one_is_named() {
    let bed = TestBed::set_up(ClusterKind::Mariadb).unwrap();
    bed.server(0).sql("CREATE TABLE sbtest.t (id INT)").unwrap();
    for replica in &bed.scenario.servers[1..] {
        replica
            .wait_for(bed.server(0), crate::harness::LIMIT)
            .unwrap();
    }
    bed.server(0).kill().unwrap();
    let change = bed.scenario.lab.fail_over(bed.server(0)).unwrap();
    let new = bed.scenario.named(&change.primary).unwrap().clone();
    new.sql("INSERT INTO sbtest.t VALUES (1)").unwrap();
    bed.wait_primary(&new);
    let old = bed.server(0);
    old.start().unwrap();
    bed.wait_role(old, "unusable", "claims to be the primary, but lacks");
    assert_eq!(bed.primary(), Some(new.name.clone()));

    old.sql("INSERT INTO sbtest.t VALUES (2)").unwrap();
    bed.wait("no primary", || bed.primary().is_none());
    let position = new.sql("SELECT @@gtid_binlog_state").unwrap();
    let last = position.rsplit(',').next().unwrap();
    bed.wait_problem(last);
    bed.wait_problem("no primary. Set read_only");
    assert!(bed.balancer.log().contains("evenkeel primary SERVER"));
    let refused = std::net::TcpStream::connect(bed.writes);
    assert!(refused.is_err() || is_closed(refused.unwrap()));

    let printed = done(&bed.balancer, &["primary", &new.name]);
    assert!(printed.contains("is the primary"), "{printed}");
    bed.wait_primary(&new);
    assert_eq!(bed.cluster()["operator_override"], new.name.as_str());
    bed.scenario.lab.rejoin(old).unwrap();
    done(&bed.balancer, &["primary", &new.name, "--clear"]);
    bed.wait_whole();
    assert_eq!(bed.primary(), Some(new.name));
}

#[test]
fn a_server_of_another_postgres_cluster_is_refused_with_both_identities() {
    let lab = Lab::new("roles-clone").unwrap();
    let ours = lab.postgres(PostgresOptions {
        replicas: 1,
        ..Default::default()
    });
    let mut servers = ours.unwrap().servers();
    let stranger = lab.postgres(PostgresOptions::default()).unwrap().primary;
    servers.push(stranger.clone());
    let balancer = balance("postgres", &servers);
    wait_until(&balancer, "a refusal", || {
        let status = balancer.status().unwrap();
        let problems = status["clusters"][0]["problems"].to_string();
        problems.contains("belongs to another cluster: it reports PostgreSQL system identifier")
            && !status["clusters"][0]["primary"].is_null()
    });
    let status = balancer.status().unwrap();
    assert_eq!(status["clusters"][0]["primary"], servers[0].name.as_str());
    let listed = status["services"][0]["servers"].as_array().unwrap();
    assert_eq!(listed[2]["role"]["role"], "unusable", "{listed:#?}");
}

#[test]
fn in_a_ring_nobody_writes_until_one_is_named() {
    let lab = Lab::new("roles-ring").unwrap();
    let ring = lab.ring(RingOptions::default()).unwrap();
    let balancer = balance("mysql", &ring.nodes);
    let primary = || balancer.status().unwrap()["clusters"][0]["primary"].clone();
    let name = ring.nodes[1].name.as_str();
    wait_until(&balancer, "a ring that is told", || {
        let status = balancer.status().unwrap();
        let problems = status["clusters"][0]["problems"].to_string();
        problems.contains("ring or multi-primary replication")
    });
    assert!(primary().is_null());
    done(&balancer, &["primary", name]);
    wait_until(&balancer, "the named one", || primary() == name);
    done(&balancer, &["primary", name, "--clear"]);
    wait_until(&balancer, "what the servers say", || {
        primary() == name || primary().is_null()
    });
    done(&balancer, &["primary", name]);
    wait_until(&balancer, "the named one again", || primary() == name);
    ring.nodes[1].kill().unwrap();
    wait_until(&balancer, "nobody", || primary().is_null());
    let log = balancer.log();
    assert!(
        log.contains("the operator's override ended: server is down"),
        "{log}"
    );
}

/// Kills the primary, promotes another server, and starts the old one unchanged.
fn die_and_return(bed: &TestBed) -> (Server, Server) {
    let old = bed.server(0).clone();
    old.kill().unwrap();
    let change = bed.scenario.lab.fail_over(&old).unwrap();
    let new = bed.scenario.named(&change.primary).unwrap().clone();
    bed.wait_primary(&new);
    old.start().unwrap();
    (old, new)
}

fn balance(probe: &str, servers: &[Server]) -> Balancer {
    let wanted = ServiceSpec {
        name: "writes",
        listen: loopback(),
        role: "primary",
        further: "",
    };
    Balancer::start(&wanted.toml(probe, servers)).unwrap()
}

/// Returns whether the balancer closes the connection, as it does without a suitable server.
fn is_closed(mut stream: std::net::TcpStream) -> bool {
    use std::io::Read;
    stream
        .set_read_timeout(Some(crate::harness::LIMIT))
        .unwrap();
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}
