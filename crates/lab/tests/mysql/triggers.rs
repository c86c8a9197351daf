//! Tests that state left by a trigger stays with its client; the status warns if the account may
//! not see triggers.

use evenkeel_lab::{Server, rootfs};
use serde_json::Value;

use super::client::{Client, Login};
use super::stage::{Setup, TestBed, config, shared, sql, start_mysql, start_own};
use crate::harness::{DRIVERS, wait_until};

/// Triggers, the second of which is recognized by its text only: no tracker reports it.
const TRIGGERS: [&str; 5] = [
    "drop table if exists by_set, by_into",
    "create table by_set (a int)",
    "create table by_into (a int)",
    "create trigger by_set_now before insert on by_set for each row set @left = new.a",
    "create trigger by_into_now before insert on by_into for each row select new.a into @left",
];

const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 2,
};

/// Starts a pool that queries as the account with that name, whose password equals its name.
fn start_bed(server: &Server, io: &str, account: &str) -> TestBed {
    let own = "user = \"evenkeel\"\npassword = \"evenkeel\"";
    let other = format!("user = {account:?}\npassword = {account:?}");
    TestBed::start(
        |address| config(server, address, io, TWO).replace(own, &other),
        |bed| Client::log_in(bed.address, &Login::default()).map(|_| ()),
    )
}

fn problems(bed: &TestBed) -> Value {
    bed.status()["database"]["problems"].clone()
}

/// Creates triggers as the superuser: with a binary log no other account may.
fn make_triggers(server: &Server) {
    server
        .sql("set global log_bin_trust_function_creators = 1")
        .unwrap();
    let mut direct = Client::connect(server.address);
    TRIGGERS.iter().for_each(|text| direct.run(text));
}

#[test]
fn what_a_trigger_assigns_stays_with_its_client() {
    let server = shared();
    make_triggers(server);
    for io in DRIVERS {
        // Applies to the first client too: triggers are read before it connects.
        is_its_client_s(&TestBed::set_up(io, TWO), io);
    }
}

/// The server shows a view's definition to accounts that may read it; otherwise the whole view
/// pins.
///
/// TO SEE THIS RED: search for a view's own triggers, which it cannot have.
#[test]
fn what_a_trigger_of_a_view_s_table_assigns_stays_with_its_client() {
    let (_lab, server) = start_own();
    make_triggers(&server);
    let mut direct = Client::connect(server.address);
    for text in [
        "create view through as select a from by_into",
        "create view through_both as select a from through",
    ] {
        direct.run(text);
    }
    server
        .sql("grant select on sbtest.* to evenkeel@'127.0.0.1'")
        .unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, TWO);
        for view in ["through", "through_both"] {
            is_its_client_s_alone(&bed, io, view);
        }
    }
}

/// TO SEE THIS RED: ignore defaults of columns.
#[test]
fn the_value_of_a_sequence_that_a_default_took_is_its_client_s() {
    sql("grant references on * to evenkeel@'127.0.0.1'");
    let mut direct = Client::connect(shared().address);
    for text in [
        "create or replace sequence by_default_s",
        "create or replace table by_default (a int, n bigint default nextval(by_default_s))",
    ] {
        direct.run(text);
    }
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("insert into by_default (a) values (1)");
        let last = "select lastval(by_default_s)";
        assert_eq!(other.value(last), "NULL", "{io}");
        assert_ne!(client.value(last), "NULL", "{io}");
    }
}

fn is_its_client_s(bed: &TestBed, io: &str) {
    for table in ["by_set", "by_into"] {
        is_its_client_s_alone(bed, io, table);
    }
}

fn is_its_client_s_alone(bed: &TestBed, io: &str, table: &str) {
    let (mut client, mut other) = (bed.client(), bed.client());
    client.run(&format!("insert into {table} values (7)"));
    for _ in 0..3 {
        assert_eq!(other.value("select @left"), "NULL", "{io} {table}");
        assert_eq!(client.value("select @left"), "7", "{io} {table}");
    }
    client.reset();
}

/// Creates an account that sees everything but triggers, and one that also sees these.
const ACCOUNTS: &str = "\
    CREATE USER blind@'127.0.0.1' IDENTIFIED BY 'blind';\
    GRANT REPLICATION CLIENT, SHOW VIEW ON *.* TO blind@'127.0.0.1';\
    GRANT SELECT ON mysql.* TO blind@'127.0.0.1';\
    GRANT TRIGGER ON `sb_est`.* TO blind@'127.0.0.1';";

fn an_account_is_told(server: &Server, io: &str) {
    let table = "create table if not exists other.of_triggers (a int)";
    server.sql(table).unwrap();
    let bed = start_bed(server, io, "blind");
    let complaint = |bed: &TestBed| {
        let problems = problems(bed);
        let reply = problems[0].as_str().map(str::to_owned);
        reply.filter(|reply| reply.contains("cannot see triggers"))
    };
    wait_until(&bed.balancer, "a complaint", || complaint(&bed).is_some());
    let reply = complaint(&bed).unwrap();
    assert!(reply.contains("GRANT TRIGGER ON *.*"), "{io}: {reply}");
    assert!(
        reply.contains("'other'") && !reply.contains("sbtest"),
        "{io}: {reply}"
    );
    assert!(bed.balancer.log().contains(&reply), "{io}: {reply}");
    server
        .sql("grant trigger on other.* to blind@'127.0.0.1'")
        .unwrap();
    // A change of the catalog triggers a check soon.
    wait_until(&bed.balancer, "no complaint", || {
        let mut client = bed.client();
        client.run("create or replace view seen as select 1");
        complaint(&bed).is_none()
    });
    server
        .sql("revoke trigger on other.* from blind@'127.0.0.1'")
        .unwrap();
}

#[test]
fn an_account_that_may_not_see_triggers_is_told_and_what_to_grant() {
    // The status names the schemas of the whole server.
    let (_lab, server) = start_own();
    let accounts = format!("{ACCOUNTS} GRANT SLAVE MONITOR ON *.* TO blind@'127.0.0.1'");
    server.sql(&accounts).unwrap();
    for io in DRIVERS {
        an_account_is_told(&server, io);
        let bed = TestBed::before(&server, io, TWO);
        assert_eq!(problems(&bed), Value::Array(Vec::new()), "{io}");
    }
}

#[test]
fn mysql_tells_of_triggers_as_mariadb_does() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-triggers");
    let server = &server;
    let more = "GRANT SHOW_ROUTINE ON *.* TO blind@'127.0.0.1';\
                GRANT SELECT ON performance_schema.* TO blind@'127.0.0.1'";
    server.sql(&format!("{ACCOUNTS} {more}")).unwrap();
    an_account_is_told(server, "auto");
    make_triggers(server);
    let bed = TestBed::before(server, "auto", TWO);
    is_its_client_s(&bed, "auto");
    assert_eq!(problems(&bed), Value::Array(Vec::new()));
}

/// TO SEE THIS RED: warn about every schema, or about a server without tables.
#[test]
fn schemas_without_tables_give_no_warning() {
    const SPLIT: Setup<'_> = Setup {
        tables: "[service.split]\nreads = true",
        ..TWO
    };
    let (_lab, server) = start_own();
    let accounts = format!("{ACCOUNTS} GRANT SLAVE MONITOR ON *.* TO blind@'127.0.0.1'");
    server.sql(&accounts).unwrap();
    let own = "user = \"evenkeel\"\npassword = \"evenkeel\"";
    for io in DRIVERS {
        server.sql("create database bare").unwrap();
        let bed = TestBed::start(
            |address| {
                let blind = "user = \"blind\"\npassword = \"blind\"";
                config(&server, address, io, SPLIT).replace(own, blind)
            },
            |bed| Client::log_in(bed.address, &Login::default()).map(|_| ()),
        );
        let mut client = bed.client();
        client.run("create table first_table (a int)");
        client.run("drop table first_table");
        client.run("create or replace view seen as select 1");
        client.run("drop view seen");
        server.sql("create table bare.t (a int)").unwrap();
        wait_until(
            &bed.balancer,
            "a complaint of a schema that has a table",
            || {
                client.run("create or replace view seen as select 1");
                problems(&bed).to_string().contains("'bare'")
            },
        );
        let log = bed.balancer.log();
        let warned = log
            .lines()
            .filter(|line| line.contains("sees no") || line.contains("cannot see"));
        assert_eq!(warned.count(), 1, "{io}: {log}");
        server.sql("drop database bare").unwrap();
    }
}
