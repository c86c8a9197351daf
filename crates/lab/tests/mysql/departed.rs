//! Tests a service that is removed from the configuration while its last sessions continue.

use evenkeel_lab::Server;

use super::client::Client;
use super::split::TestBed;
use crate::harness::cluster::service_toml;
use crate::harness::{DRIVERS, loopback};

impl TestBed {
    /// Gives the same servers another name and address.
    fn rename_service(&self) {
        let servers = &self.scenario.servers;
        let renamed = service_toml("renamed", self.scenario.kind, loopback(), servers, "");
        let config = self.head.clone() + &renamed;
        self.balancer.reload(&config).unwrap();
    }
}

/// Makes the server accept writes beside the primary that it followed.
fn part(replica: &Server) {
    let alone = "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0";
    replica.sql(alone).unwrap();
}

/// A former primary may live, and accept all statements that it receives.
#[test]
fn who_is_left_of_a_service_writes_no_more_once_another_server_takes_the_writes() {
    for io in DRIVERS {
        let bed = TestBed::of_mariadb(io, "[service.failover]\nwait_ms = 300");
        let (former, next) = (bed.primary(), bed.replicas().remove(0));
        let (mut idle, mut busy) = (bed.client(), bed.client());
        idle.run("update counters set v = 6 where id = 1");
        busy.run("begin");
        busy.run("update counters set v = 6 where id = 2");
        bed.rename_service();
        idle.run("update counters set v = 7 where id = 1");
        bed.scenario.wait_caught_up().unwrap();
        part(&next);
        bed.balancer.command(&["primary", &next.name]).unwrap();
        bed.wait_primary(&next);
        let reply = idle.refusal("update counters set v = 8 where id = 1");
        assert!(reply.contains("no primary available"), "{io}: {reply}");
        let reply = busy.refusal("commit");
        assert!(reply.starts_with("1213"), "{io}: {reply}");
        let mut direct = Client::connect(former.address);
        let seen = direct.value("select group_concat(v order by id) from counters where id < 3");
        assert_eq!(seen, "0,7,0", "{io}");
    }
}
