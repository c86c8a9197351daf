//! Tests of operators' commands and of the status page.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use evenkeel_lab::{Balancer, ClusterKind, Scenario};

use crate::harness::{End, end_of, loopback, open, service, wait_state, wait_until};
use crate::test_bed::{TestBed, assert_all_read};

#[test]
fn sessions_on_an_old_primary_are_cut_or_left_as_configured_and_the_story_is_told() {
    let bed = TestBed::set_up(ClusterKind::Mariadb).unwrap();
    let patient = loopback();
    let further = bed.scenario.service(
        "patient",
        patient,
        "primary",
        "on_primary_change = \"leave\"",
    );
    let config = bed.scenario.config(bed.writes, bed.reads) + &further;
    bed.balancer.reload(&config).unwrap();
    bed.wait_whole();
    let mut hasty = open(&bed.balancer, "writes", bed.writes);
    let mut left = open(&bed.balancer, "patient", patient);
    for stream in [&mut hasty, &mut left] {
        // The server's greeting is read first, so that only the end remains.
        let mut greeting = [0; 512];
        let _ = stream.read(&mut greeting).unwrap();
    }
    let last = bed.story().len();
    let new = bed.server(1);
    bed.scenario.lab.promote(new).unwrap();
    bed.wait_primary(new);
    assert_eq!(end_of(&mut hasty, Duration::from_secs(5)), End::Reset);
    assert_eq!(end_of(&mut left, Duration::from_millis(200)), End::Open);
    bed.wait_whole();

    let (old, new) = (&bed.server(0).name, &new.name);
    let story = bed.story().split_off(last).join("\n");
    let reply = [
        format!("{new} is the primary"),
        format!("{old} is a replica"),
        format!("{old} receives clients again"),
    ];
    for step in reply {
        assert!(story.contains(&step), "{step:?} is not in\n{story}");
    }
    let status = bed.balancer.status().unwrap();
    let [of_writes, of_reads] = ["writes", "reads"].map(|name| {
        let servers = service(&status, name)["servers"].clone();
        let servers = servers.as_array().unwrap().clone();
        servers
            .into_iter()
            .map(|server| server["role"]["role"].clone())
            .collect::<Vec<_>>()
    });
    assert_eq!(of_writes, of_reads, "all services say the same of a server");
    let admin = bed.balancer.admin_port().unwrap();
    let metrics = get(admin, "/metrics");
    let has_primary = metrics
        .lines()
        .find(|line| line.starts_with("evenkeel_cluster_has_primary{"));
    assert!(
        has_primary.is_some_and(|line| line.ends_with(" 1.0")),
        "{has_primary:?}"
    );
    let roles = metrics.lines().filter(|line| {
        line.starts_with("evenkeel_server_role{")
            && line.contains("role=\"primary\"")
            && line.ends_with(" 1.0")
    });
    assert_eq!(roles.count(), 3, "one for each service:\n{metrics}");
    let page = get(admin, "/");
    assert!(
        page.contains("timeline") || page.contains("Timeline"),
        "the page tells the story"
    );
}

#[test]
fn a_monitor_that_lacks_a_right_is_told_with_the_grant_and_others_are_not_concerned() {
    let bed = TestBed::set_up(ClusterKind::Mariadb).unwrap();
    let reader = bed.reader();
    let poor = bed.server(1);
    let account = "monitor@127.0.0.1";
    poor.sql(&format!(
        "SET SESSION sql_log_bin=0; \
         REVOKE REPLICATION CLIENT, SLAVE MONITOR ON *.* FROM {account}; KILL USER {account}"
    ))
    .unwrap();
    bed.wait_role(poor, "unusable", "GRANT SLAVE MONITOR ON *.* TO 'monitor'");
    bed.wait_not_read_by(&reader, poor);
    bed.wait_read_by(&reader, bed.server(2));
    assert_eq!(bed.primary().as_deref(), Some(bed.server(0).name.as_str()));
    poor.sql(&format!(
        "SET SESSION sql_log_bin=0; GRANT REPLICATION CLIENT, SLAVE MONITOR ON *.* TO {account}; \
         KILL USER {account}"
    ))
    .unwrap();
    bed.wait_read_by(&reader, poor);
    bed.wait_whole();
    assert_all_read(reader);
}

#[test]
fn a_reload_adds_and_removes_members_of_a_cluster() {
    let bed = TestBed::set_up(ClusterKind::Postgres).unwrap();
    let reader = bed.reader();
    let all = bed.scenario.config(bed.writes, bed.reads);
    let third = bed.server(2);
    let is_of_third = |line: &&str| line.contains(&format!("{:?}", third.name));
    let lines = all.lines().filter(|line| !is_of_third(line));
    let two: String = lines.map(|line| format!("{line}\n")).collect();
    bed.balancer.reload(&two).unwrap();
    bed.wait_not_read_by(&reader, third);
    let reads = service(&bed.balancer.status().unwrap(), "reads");
    let listed = reads["servers"].as_array().unwrap();
    assert!(
        listed
            .iter()
            .all(|one| one["name"] != third.name.as_str() || one["state"] == "removed"),
        "{reads:#}"
    );
    assert_eq!(bed.primary().as_deref(), Some(bed.server(0).name.as_str()));
    bed.balancer.reload(&all).unwrap();
    bed.wait_read_by(&reader, third);
    bed.wait_whole();
    assert_all_read(reader);
}

#[test]
fn a_cluster_formed_while_a_member_is_down_has_a_primary_and_keeps_it_over_an_upgrade() {
    let scenario = Scenario::start(ClusterKind::Mariadb).unwrap();
    let writes = loopback();
    let with_role = scenario.service("writes", writes, "primary", "");
    let without = with_role.replace("role = \"primary\"\n", "");
    let balancer = Balancer::start(&without).unwrap();
    let dead = &scenario.servers[2];
    dead.kill().unwrap();
    wait_state(&balancer, &format!("writes/{}", dead.name), "down");
    balancer.reload(&with_role).unwrap();
    let primary = || balancer.status().unwrap()["clusters"][0]["primary"].clone();
    wait_until(&balancer, "a primary", || {
        primary() == scenario.servers[0].name.as_str()
    });
    balancer.upgrade(&[]).unwrap();
    wait_until(&balancer, "it again", || {
        primary() == scenario.servers[0].name.as_str()
    });
}

/// Requests a page as a browser on this machine does.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}
