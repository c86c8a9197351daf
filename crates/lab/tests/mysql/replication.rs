//! Tests of the binary log, as replicas read it.

use std::net::SocketAddr;

use evenkeel_lab::{MariadbOptions, eventually};
use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::frontend::Code;

use super::client::{Client, Login};
use super::stage::{ONE, Setup, TestBed, start_own};
use crate::harness::{DRIVERS, LIMIT};

const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    ..ONE
};

#[test]
fn a_replica_follows_its_primary_through_a_pool() {
    for io in DRIVERS {
        let (lab, server) = start_own();
        let bed = TestBed::before(&server, io, TWO);
        let replica = lab.mariadb(MariadbOptions::default()).unwrap().primary;
        let position = server.sql("show master status").unwrap();
        let mut words = position.split_whitespace();
        let (file, at) = (words.next().unwrap(), words.next().unwrap());
        // Replicas from 11.4 on require TLS, which is not offered here.
        replica
            .sql(&format!(
                "reset master; change master to master_host = '127.0.0.1', master_port = {}, \
                 master_user = 'replica', master_password = 'replica', \
                 master_ssl = 0, master_log_file = '{file}', master_log_pos = {at}, \
                 master_use_gtid = no; start slave",
                bed.address.port()
            ))
            .unwrap();
        let mut client = bed.client();
        client.run("create table followed (a int)");
        for round in 1..=3 {
            client.run(&format!("insert into followed values ({round})"));
            let followed = eventually(LIMIT, "the row at the replica", || {
                let count = replica.sql("select count(*) from sbtest.followed");
                Ok(count.ok().filter(|count| *count == round.to_string()))
            });
            followed.unwrap_or_else(|error| {
                let state = replica.sql("show slave status\\G").unwrap_or_default();
                panic!("{io}: {error}: {state}\n{}", bed.balancer.log())
            });
        }
    }
}

/// Returns the number of events in a log, and the packet at their end. The client reads only
/// existing events (BINLOG_DUMP_NON_BLOCK), without registering as a replica.
fn read_log(address: SocketAddr, file: &str) -> (usize, u8) {
    let login = Login {
        user: "replica",
        password: "replica",
        schema: None,
        ..Login::default()
    };
    let mut client = Client::with(address, &login);
    client.run("set @master_binlog_checksum = 'NONE'");
    let mut body = 4_u32.to_le_bytes().to_vec();
    body.extend_from_slice(&1_u16.to_le_bytes());
    body.extend_from_slice(&77_u32.to_le_bytes());
    body.extend_from_slice(file.as_bytes());
    let mut out = Vec::new();
    build::command(&mut out, Code::BinlogDump, &body);
    client.send_packets(&out);
    let mut count = 0;
    loop {
        match client.packet().expect("an event").first() {
            Some(0) => count += 1,
            end => return (count, *end.unwrap()),
        }
    }
}

/// TO SEE THIS RED: treat the EOF after the last event as an OK.
#[test]
fn a_log_is_read_to_its_end_as_at_the_server() {
    for io in DRIVERS {
        let (_lab, server) = start_own();
        let bed = TestBed::before(&server, io, TWO);
        let mut client = bed.client();
        client.run("create table logged (a int)");
        let position = server.sql("show master status").unwrap();
        let file = position.split_whitespace().next().unwrap();
        let direct = read_log(server.address, file);
        assert_eq!(direct.1, 0xfe, "{io}");
        assert_eq!(read_log(bed.address, file), direct, "{io}");
        assert_eq!(client.value("select count(*) from logged"), "0", "{io}");
    }
}
