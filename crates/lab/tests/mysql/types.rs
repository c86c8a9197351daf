//! Tests that the parameter types of one client do not affect another's.

use evenkeel_lab::{Server, rootfs};
use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login, USUAL};
use super::stage::{ONE, TestBed, start_mysql};
use crate::harness::DRIVERS;

const DOUBLE: u8 = 5;
const LONGLONG: u8 = 8;
const VAR_STRING: u8 = 253;

/// Flag: the number of parameters, including query attributes, is present.
const COUNTED: u8 = 8;

/// Encodes one execution with `count` parameters, none of them NULL, followed by `rest`.
fn counted(count: u8, rest: &[u8]) -> Vec<u8> {
    let mut parameters = vec![1, 0, 0, 0, count, 0];
    parameters.extend_from_slice(rest);
    parameters
}

/// TO SEE THIS RED: keep the types of all parameters of an execution.
#[test]
fn the_type_of_a_query_attribute_is_no_later_execution_s() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-attribute-types");
    let login = Login {
        capabilities: USUAL.with(Capabilities::QUERY_ATTRIBUTES),
        ..Login::default()
    };
    let mut direct = Client::connect(server.address);
    direct.run("create table attributed (a varchar(20))");
    for io in DRIVERS {
        direct.run("delete from attributed");
        let bed = TestBed::before(&server, io, ONE);
        let log_in = || {
            let mut client = Client::with(bed.address, &login);
            assert!(client.agreed.has(Capabilities::QUERY_ATTRIBUTES));
            client.prepare("add", "insert into attributed values (?)");
            client
        };
        let (mut one, mut other) = (log_in(), log_in());
        let types = [1, LONGLONG, 0, 0, VAR_STRING, 0, 1, b'n'];
        let values = [11, 0, 0, 0, 0, 0, 0, 0, 3, b'a', b'b', b'c'];
        let both = counted(2, &[types.as_slice(), &values].concat());
        let text = counted(1, &[1, VAR_STRING, 0, 0, 2, b'2', b'2']);
        let again = counted(1, &[0, 33, 0, 0, 0, 0, 0, 0, 0]);
        let mut received = one.execute_as("add", COUNTED, &both);
        received.extend(other.execute_as("add", COUNTED, &text));
        received.extend(one.execute_as("add", COUNTED, &again));
        let is_fine = |line: &String| line.starts_with("ok rows=1 ");
        assert!(received.iter().all(is_fine), "{io}: {received:?}");
        let all = "select group_concat(a order by a) from attributed";
        assert_eq!(direct.value(all), "11,22,33", "{io}");
    }
}

/// MySQL compares an integer as a DOUBLE after a DOUBLE was passed; MariaDB decides each time.
///
/// TO SEE THIS RED: execute the server's statement, whichever client has executed it before.
#[test]
fn an_integer_is_compared_as_one_whatever_another_client_has_given() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-inferred");
    let mut direct = Client::connect(server.address);
    direct.run("create table neighbours (id bigint)");
    let prepares = || counter(&server, "Com_stmt_prepare");
    for io in DRIVERS {
        direct.run("delete from neighbours");
        direct.run("insert into neighbours values (9007199254740992), (9007199254740993), (5)");
        let bed = TestBed::before(&server, io, ONE);
        let log_in = || {
            let mut client = bed.client();
            client.prepare("remove", "delete from neighbours where id in (?, 1)");
            client
        };
        let (mut one, mut other, mut third) = (log_in(), log_in(), log_in());
        let remove = |client: &mut Client, kind, value: [u8; 8]| {
            let parameters = [&[1, 0, 0, 0, 0, 1, kind, 0], value.as_slice()].concat();
            client.execute_as("remove", 0, &parameters).concat()
        };
        let number = 9_007_199_254_740_993_i64.to_le_bytes();
        let received = remove(&mut one, DOUBLE, 5_f64.to_le_bytes());
        assert!(received.starts_with("ok rows=1 "), "{io}: {received}");
        let received = remove(&mut other, LONGLONG, number);
        assert!(received.starts_with("ok rows=1 "), "{io}: {received}");
        // Equal types cost nothing more.
        let before = prepares();
        for client in [&mut third, &mut other] {
            let received = remove(client, LONGLONG, number);
            assert!(received.starts_with("ok rows=0 "), "{io}: {received}");
        }
        assert_eq!(prepares(), before, "{io}");
    }
}

fn counter(server: &Server, of: &str) -> String {
    let status = format!("show global status like '{of}'");
    server.sql(&status).unwrap()
}
