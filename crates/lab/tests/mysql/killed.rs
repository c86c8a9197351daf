//! Tests a server that ends connections while reads continue.

use evenkeel_lab::{Server, rootfs};

use super::client::Client;
use super::stage::{Setup, TestBed, start_mysql, start_own};
use crate::harness::DRIVERS;
use crate::harness::storm::{Storm, storm};

const READING: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "[service.split]\nreads = true",
    workers: 2,
};

/// Sets a variable and reads, and returns wrong answers. Every session has its own variable, so its
/// value is restored on the connection before each read.
fn read_on(bed: &TestBed, number: usize, storm: &Storm) -> Option<Vec<String>> {
    let mut client = bed.client();
    client.prepare("prepared", "select 'again'");
    let set = format!("set @mine = {number}");
    let row = format!("row {number}");
    while storm.goes_on(number) {
        let answer = client.query(&set);
        let reply = client.query("select @mine");
        let again = client.execute("prepared", &[]);
        let is_row = |reply: &[String], row: &str| reply.len() == 3 && reply[1] == row;
        if !answer[0].starts_with("ok") || !is_row(&reply, &row) || !is_row(&again, "row again") {
            return Some([answer, reply, again].concat());
        }
    }
    None
}

/// Kills all connections of the same user.
fn kill_all(own: &mut Client) {
    let listed = "select id from information_schema.processlist where id <> connection_id()";
    let ids = own.query(listed);
    for id in ids.iter().filter_map(|line| line.strip_prefix("row ")) {
        // The connection may already have ended.
        own.query(&format!("kill {id}"));
    }
}

fn reads_fail_for_nobody(server: &Server) {
    let mut own = Client::connect(server.address);
    for io in DRIVERS {
        let bed = TestBed::before(server, io, READING);
        let read = |number, storm: &Storm| read_on(&bed, number, storm);
        let wrong = storm(read, || kill_all(&mut own));
        assert!(wrong.is_empty(), "{io}: {wrong:?}");
    }
}

/// TO SEE THIS RED: do not repeat settings.
#[test]
fn reads_fail_for_nobody_while_the_server_ends_connections_at_any_moment() {
    let (_lab, server) = start_own();
    reads_fail_for_nobody(&server);
}

#[test]
fn nor_while_mysql_does() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-killed");
    reads_fail_for_nobody(&server);
}
