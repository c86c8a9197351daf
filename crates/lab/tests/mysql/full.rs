//! A server that has no more connections to give is not dead: whoever needs one waits.

use super::client::{Client, Login};
use super::stage::{Setup, Stage, sql};
use crate::rig::DRIVERS;

#[test]
fn a_user_whose_connections_are_all_in_use_waits_for_one() {
    sql("drop user if exists few@'127.0.0.1'");
    sql("create user few@'127.0.0.1' identified by 'few' with max_user_connections 1");
    sql("grant all on sbtest.* to few@'127.0.0.1'");
    let login = Login {
        user: "few",
        password: "few",
        ..Login::default()
    };
    let setup = Setup {
        pool: "size = 4",
        ..Setup::default()
    };
    for io in DRIVERS {
        let stage = Stage::set(io, setup);
        let mut first = Client::with(stage.address, &login);
        first.run("begin");
        assert_eq!(first.value("select 'first'"), "first", "{io}");
        let mut second = Client::with(stage.address, &login);
        second.query_later("select 'second'");
        // The server has refused it by now; nobody else has lost anything.
        assert_eq!(first.value("select sleep(0.3)"), "0", "{io}");
        let status = stage.status();
        assert_eq!(stage.client().value("select 1"), "1", "{io}: {status}");
        first.run("commit");
        let heard = second.reply();
        let log = stage.balancer.log();
        assert!(
            heard.contains(&"row second".to_owned()),
            "{io}: {heard:?} {log}"
        );
    }
}
