//! Tests a primary that is shut down during a write.

use evenkeel_lab::{Balancer, MysqlOptions, eventually, rootfs};

use super::client::{Client, Login};
use super::stage::{MYSQL_ACCOUNTS, Setup, config, own_lab};
use crate::harness::{LIMIT, loopback};

/// MySQL returns 1053 during a statement, too, and MyISAM rolls nothing back.
///
/// TO SEE THIS RED: treat it as proof that nothing was executed.
#[test]
fn a_write_that_a_shutdown_ends_in_the_middle_is_not_run_again() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let lab = own_lab("mysql-shutdown");
    let options = MysqlOptions {
        replicas: 1,
        ..MysqlOptions::default()
    };
    let cluster = lab.mysql(options).unwrap();
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    primary.sql(MYSQL_ACCOUNTS).unwrap();
    let address = loopback();
    let known = format!("{}\" }}]", primary.address);
    let both = format!(
        "{}\" }}, {{ name = \"replica\", address = \"{}\" }}]",
        primary.address, replica.address
    );
    let config = config(primary, address, "auto", Setup::default()).replace(&known, &both);
    let balancer = Balancer::start(&config).unwrap();
    let first = || Ok(Client::log_in(address, &Login::default()).ok());
    let client = eventually(LIMIT, "a first session", first);
    let mut client = client.unwrap_or_else(|error| panic!("{error}: {}", balancer.log()));
    client.run("create table slow (id int primary key, x int not null) engine = myisam");
    client.run("insert into slow values (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)");
    cluster.wait_caught_up().unwrap();
    client.query_later("update slow set x = x + 1 where sleep(0.3) = 0");
    // It changes some of the rows. No other client can read the table meanwhile.
    let running = "select count(*) from performance_schema.events_statements_current \
                   where sql_text like 'update slow%' and timer_wait > 1e12";
    eventually(LIMIT, "some changed rows", || {
        Ok((primary.sql(running)? == "1").then_some(()))
    })
    .unwrap();
    primary.stop().unwrap();
    let reply = client.reply();
    assert!(reply[0].starts_with("error 1053 "), "{reply:?}");
    // A retry would find the rows that the statement has already changed.
    let done = "select count(*) from sbtest.slow where x = 1";
    assert_ne!(replica.sql(done).unwrap(), "0");
}
