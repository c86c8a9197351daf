//! Tests the parsing of recorded replies of MySQL-family servers.

use evenkeel_policy::cluster::{
    Gtids,
    report::{GaleraState, MemberState, Receiver, ReplicaThreads},
};

use super::*;
use crate::row::tests::row;

/// Parses one row from "name=value" lines; a value of NULL is NULL.
fn lines(text: &str) -> Row {
    let cells: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().split_once('='))
        .map(|(name, value)| (name, (value != "NULL").then_some(value)))
        .collect();
    row(&cells)
}

/// Puts lines before others: the first of each name counts.
fn with(changed: &str, lines_before: &str) -> Row {
    lines(&format!("{changed}\n{lines_before}"))
}

const MARIADB: &str = "server_identity=23914\nread_only=1\nbinlog_state=0-23913-7,0-23914-9\n\
    slave_pos=0-23913-8\ncurrent_pos=1-5-3\nlog_bin=1";

const MARIADB_CHANNEL: &str = "Connection_name=\nMaster_Host=127.0.0.1\nMaster_Port=23913\n\
    Slave_IO_Running=Yes\nSlave_SQL_Running=Yes\nSeconds_Behind_Master=0\nLast_IO_Error=\n\
    Last_SQL_Error=";

const MYSQL: &str = "server_identity=d266aa5d-e52a-11f1-8904-02fc00000001\nread_only=1\n\
    executed=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:1-5:7\ngroup_name=NULL\nsuper_read_only=1";

const MYSQL_CHANNEL: &str = "Channel_Name=\nSource_Host=db1\nSource_Port=3306\n\
    Replica_IO_Running=Yes\nReplica_SQL_Running=Yes\nSeconds_Behind_Source=3\nLast_IO_Error=\n\
    Last_SQL_Error=";

fn threads(facts: &Row, channels: &[Row]) -> Option<ReplicaThreads> {
    replication::read(facts, channels).unwrap().replica
}

#[test]
fn a_mariadb_server_has_what_it_wrote_and_what_it_applied() {
    let read = replication::read(&lines(MARIADB), &[]).unwrap();
    assert_eq!(read.server_identity, "23914");
    assert!(read.read_only);
    assert_eq!(
        read.executed,
        Gtids::mariadb([(0, 23913, 8), (0, 23914, 9)]).with_applied([(0, 23913, 8)])
    );
    assert_eq!(
        read.visible,
        Gtids::mariadb([(0, 23913, 7)]).with_applied([(0, 23913, 8)]),
        "what the log has beyond what is applied may not be in the tables yet"
    );
    assert_eq!(read.replica, None);
    let without_log = replication::read(&with("log_bin=0", MARIADB), &[]).unwrap();
    assert!(without_log.executed.contains(&Gtids::mariadb([(1, 5, 3)])));
}

#[test]
fn a_mysql_server_has_its_executed_set_and_two_kinds_of_read_only() {
    let read = replication::read(&with("read_only=0", MYSQL), &[]).unwrap();
    assert!(read.read_only, "super_read_only alone");
    let uuid = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee";
    assert_eq!(
        read.executed,
        Gtids::mysql([(uuid, "", 1, 5), (uuid, "", 7, 7)])
    );
    assert_eq!(read.visible, read.executed);
    let writable = with("read_only=0\nsuper_read_only=0", MYSQL);
    assert!(!replication::read(&writable, &[]).unwrap().read_only);
}

#[test]
fn malformed_gtids_are_nonsense_and_not_an_empty_set() {
    for facts in [with("slave_pos=0-1", MARIADB), with("executed=x", MYSQL)] {
        let reported = replication::read(&facts, &[]).unwrap_err().to_string();
        assert!(reported.contains("malformed GTIDs"), "{reported}");
    }
}

#[test]
fn a_replicas_threads_are_read_in_both_vocabularies() {
    let mariadb = threads(&lines(MARIADB), &[lines(MARIADB_CHANNEL)]).unwrap();
    let expect = ReplicaThreads {
        source: "127.0.0.1:23913".to_owned(),
        receiver: Receiver::Connected,
        applier_runs: true,
        lag_ms: Some(0),
        error: String::new(),
    };
    assert_eq!(mariadb, expect);
    let mysql = threads(&lines(MYSQL), &[lines(MYSQL_CHANNEL)]).unwrap();
    assert_eq!(
        (mysql.source.as_str(), mysql.lag_ms),
        ("db1:3306", Some(3000))
    );
}

#[test]
fn a_lag_of_null_is_unknown_and_a_lost_source_is_not_a_stopped_thread() {
    let changed = "Slave_IO_Running=Connecting\nSeconds_Behind_Master=NULL\nLast_IO_Error=refused";
    let read = threads(&lines(MARIADB), &[with(changed, MARIADB_CHANNEL)]).unwrap();
    assert_eq!((read.receiver, read.lag_ms), (Receiver::Connecting, None));
    assert_eq!(read.error, "refused");
    let stopped = with("Slave_IO_Running=No\nSlave_SQL_Running=No", MARIADB_CHANNEL);
    let read = threads(&lines(MARIADB), &[stopped]).unwrap();
    assert_eq!(
        (read.receiver, read.applier_runs),
        (Receiver::Stopped, false)
    );
}

#[test]
fn the_worst_of_several_channels_speaks_for_the_server() {
    let channel = |host: &str, changed: &str| {
        with(&format!("Master_Host={host}\n{changed}"), MARIADB_CHANNEL)
    };
    let in_order = [
        channel("fine", ""),
        channel("slow", "Seconds_Behind_Master=9"),
        channel("unknown", "Seconds_Behind_Master=NULL"),
        channel("away", "Slave_IO_Running=Connecting"),
        channel("deaf", "Slave_IO_Running=No"),
        channel("broken", "Slave_SQL_Running=No"),
    ];
    for worst in 0..in_order.len() {
        let mut channels = in_order[..=worst].to_vec();
        let expect = threads(&lines(MARIADB), &channels[worst..]).unwrap();
        assert_eq!(threads(&lines(MARIADB), &channels), Some(expect.clone()));
        channels.reverse();
        assert_eq!(threads(&lines(MARIADB), &channels), Some(expect));
    }
}

#[test]
fn a_channel_without_a_source_or_of_a_group_makes_no_replica() {
    let none = with("Source_Host=", MYSQL_CHANNEL);
    let group = with("Channel_Name=group_replication_applier", MYSQL_CHANNEL);
    assert_eq!(threads(&lines(MYSQL), &[none, group]), None);
}

#[test]
fn the_workers_microseconds_count_within_what_the_seconds_allow() {
    for (applying_us, expect_ms) in [
        ("NULL", 3000),
        ("2900123", 2900),
        ("0", 2001),
        ("-5000000", 2001),
        ("99000000", 3999),
    ] {
        let facts = with(&format!("applying_us={applying_us}"), MYSQL);
        let read = threads(&facts, &[lines(MYSQL_CHANNEL)]).unwrap();
        assert_eq!(read.lag_ms, Some(expect_ms), "{applying_us}");
    }
    let unknown = with("Seconds_Behind_Source=NULL", MYSQL_CHANNEL);
    let read = threads(&with("applying_us=5", MYSQL), &[unknown]).unwrap();
    assert_eq!(read.lag_ms, None);
}

const GALERA: &str = "server_identity=7\nread_only=0\nwsrep_on=1\n\
    wsrep_provider=/usr/lib/galera/libgalera_smm.so\n\
    wsrep_desync=0\nwsrep_reject_queries=NONE";

const GALERA_STATUS: &str = "wsrep_cluster_state_uuid=bd0b172a-e527-11f1-b902-aa2c679c480e\n\
    wsrep_cluster_status=Primary\nwsrep_local_state=4\nwsrep_ready=ON\nwsrep_local_recv_queue=5\n\
    wsrep_provider_name=Galera\nwsrep_gcomm_uuid=bd0a2f11-e527-11f1-9f4b-17a9f3a2d0c1";

#[test]
fn a_galera_node_is_read() {
    let (facts, status) = (lines(GALERA), lines(GALERA_STATUS));
    assert_eq!(galera::is_node(&facts, &status), Ok(true));
    let read = galera::read(&facts, &status).unwrap();
    assert!(read.in_primary_component && read.ready && !read.set_aside && !read.read_only);
    assert_eq!((read.state, read.receive_queue), (GaleraState::Synced, 5));
    let changed = "wsrep_cluster_status=Disconnected\nwsrep_local_state=0\nwsrep_ready=OFF";
    let read = galera::read(&facts, &with(changed, GALERA_STATUS)).unwrap();
    assert!(!read.in_primary_component && !read.ready);
    assert_eq!(read.state, GaleraState::Joining);
}

#[test]
fn a_galera_node_is_who_its_library_says_or_else_who_the_server_says() {
    let pool_user = |status: &Row| {
        galera::read(&lines(GALERA), status)
            .unwrap()
            .server_identity
    };
    assert_eq!(
        pool_user(&lines(GALERA_STATUS)),
        "bd0a2f11-e527-11f1-9f4b-17a9f3a2d0c1"
    );
    assert_eq!(pool_user(&with("wsrep_gcomm_uuid=", GALERA_STATUS)), "7");
}

#[test]
fn a_galera_node_that_an_operator_took_aside_says_so() {
    for changed in [
        "wsrep_desync=1",
        "wsrep_reject_queries=ALL",
        "pxc_maint_mode=MAINTENANCE",
        "wsrep_on=0",
    ] {
        let facts = with(changed, GALERA);
        let status = lines(GALERA_STATUS);
        assert_eq!(galera::is_node(&facts, &status), Ok(true), "{changed}");
        assert!(
            galera::read(&facts, &status).unwrap().set_aside,
            "{changed}"
        );
    }
    let aside = with("pxc_maint_mode=DISABLED", GALERA);
    assert!(
        !galera::read(&aside, &lines(GALERA_STATUS))
            .unwrap()
            .set_aside
    );
}

#[test]
fn a_server_that_only_could_be_a_galera_node_is_none() {
    let dialect = |has: &str| Dialect::new(&lines(has)).unwrap();
    let wsrep = dialect("version=10.11.19-MariaDB\ngtid_binlog_state=\nwsrep_on=OFF");
    assert_eq!(
        wsrep.may_be_galera(&with("wsrep_provider=none", GALERA)),
        Ok(false)
    );
    assert_eq!(wsrep.may_be_galera(&lines(GALERA)), Ok(true));
    assert_eq!(
        dialect("version=9.7.4").may_be_galera(&lines(MYSQL)),
        Ok(false)
    );
    let off = with("wsrep_on=0", GALERA);
    assert_eq!(
        galera::is_node(&off, &lines("wsrep_provider_name=")),
        Ok(false)
    );
}

const MEMBER: &str = "group_name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee";

const VIEW: &str = "state=ONLINE\nrole=PRIMARY\nview_id=17952095631563150:3\napplier_queue=0\n\
    members=3\nmembers_reachable=2\nprimaries=1\napplying_us=NULL";

#[test]
fn a_member_of_a_group_is_read() {
    let facts = with(MEMBER, MYSQL);
    assert_eq!(group::is_member(&facts), Ok(true));
    let read = group::read(&facts, &lines(VIEW)).unwrap();
    assert_eq!(read.state, MemberState::Online);
    assert!(read.is_primary && read.read_only);
    assert_eq!((read.members, read.members_reachable), (3, 2));
    assert_eq!(read.primaries, 1);
    assert_eq!(
        (read.incarnation.as_str(), read.view),
        ("17952095631563150", 3)
    );
    assert_eq!(read.lag_ms, Some(0));
}

#[test]
fn a_member_whose_group_does_not_run_is_offline_and_not_alone() {
    let changed = "state=NULL\nrole=NULL\nview_id=NULL\napplier_queue=NULL\nmembers=0";
    let read = group::read(&with(MEMBER, MYSQL), &with(changed, VIEW)).unwrap();
    assert_eq!((read.state, read.is_primary), (MemberState::Offline, false));
    assert_eq!(group::is_member(&lines(MYSQL)), Ok(false));
    assert_eq!(group::is_member(&with("group_name=", MYSQL)), Ok(false));
    assert_eq!(group::is_member(&lines(MARIADB)), Ok(false));
}

#[test]
fn a_member_with_a_queue_of_which_nothing_is_being_applied_has_an_unknown_lag() {
    let facts = with(MEMBER, MYSQL);
    let lag = |changed: &str| group::read(&facts, &with(changed, VIEW)).unwrap().lag_ms;
    assert_eq!(lag("applier_queue=4"), None);
    assert_eq!(lag("applier_queue=4\napplying_us=1500900"), Some(1500));
    assert_eq!(lag("applying_us=-20"), Some(0));
}
