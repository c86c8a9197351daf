//! Tests of clients that send Terminate while requests are pending: they receive the pending
//! replies, and no state is left.

use super::client::Client;
use super::script::Script;
use super::stage::{ONE, TestBed, same_as_direct};
use crate::harness::DRIVERS;

#[test]
fn who_leaves_without_the_end_of_its_batch_or_its_data_leaves_its_connection() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        bed.client()
            .run("drop table if exists copied; create table copied (a int)");
        let copy = "copy copied from stdin";
        for script in [
            Script::new()
                .parse("", "select 1")
                .bind("", &[])
                .execute()
                .terminate(),
            Script::new()
                .query("begin")
                .parse("", "select 1")
                .terminate(),
            Script::new().query(copy).copy_data(b"1\n").terminate(),
            Script::new()
                .query("select pg_sleep(0.1)")
                .query(copy)
                .terminate(),
        ] {
            let mut leaving = bed.client();
            leaving.send_script(&script);
            // There is only one server connection.
            assert_eq!(
                bed.client().value("select count(*) from copied"),
                "0",
                "{io}"
            );
        }
        let mut copying = bed.client();
        copying.run_later(copy);
        assert!(copying.receive_message().starts_with('G'), "{io}");
        copying.send_script(&Script::new().copy_data(b"1\n").terminate());
        assert_eq!(
            bed.client().value("select count(*) from copied"),
            "0",
            "{io}"
        );
    }
}

#[test]
fn what_was_asked_before_a_goodbye_is_answered() {
    same_as_direct(ONE, |address| {
        let asked = [
            Script::new().query("select 'last'"),
            Script::new()
                .query("select pg_sleep(0.1)")
                .query("select 'last'"),
            Script::new()
                .parse("", "select 'last'")
                .bind("", &[])
                .execute()
                .sync(),
        ];
        let answers = asked.map(|script| {
            let mut client = Client::connect(address);
            client.send_script(&script.terminate());
            let received = std::iter::repeat_with(|| client.receive_message());
            received
                .take_while(|line| line != "end")
                .collect::<Vec<_>>()
        });
        answers.concat()
    });
}
