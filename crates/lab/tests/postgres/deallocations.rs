//! Tests of DEALLOCATE of statements prepared by the protocol, at any place of a conversation.

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{ONE, Setup, same_as_direct};

/// Requests that deallocate `s`, with the number of their ReadyForQuery
/// messages.
fn ways() -> Vec<(Script, usize)> {
    let dealloc = "deallocate s";
    let run = |script: Script| script.parse("", dealloc).bind("", &[]).execute();
    vec![
        (Script::new().query(dealloc), 1),
        (Script::new().parse("", "select 1").query(dealloc).sync(), 2),
        (
            Script::new()
                .bind("s", &[])
                .query(dealloc)
                .query("select 2")
                .sync(),
            3,
        ),
        (run(Script::new()).sync(), 1),
        (run(Script::new().bind("s", &[]).execute()).sync(), 1),
        // Skipped after an error.
        (Script::new().bind("none", &[]).query(dealloc).sync(), 1),
        (run(Script::new().bind("none", &[])).sync(), 1),
        // After a Close that the server skips.
        (
            Script::new()
                .parse("bad", "selekt")
                .close("s")
                .sync()
                .query(dealloc),
            2,
        ),
        (
            run(Script::new().parse("bad", "selekt").close("s").sync()).sync(),
            2,
        ),
        // Refused in a failed transaction.
        (
            Script::new()
                .query("begin; selekt")
                .query(dealloc)
                .query("rollback"),
            3,
        ),
        (
            Script::new()
                .query("begin")
                .query("selekt")
                .query(dealloc)
                .query("rollback"),
            4,
        ),
        (
            run(Script::new().query("begin").query("selekt"))
                .sync()
                .query("rollback"),
            4,
        ),
        // Not undone by a rollback.
        (
            Script::new()
                .query("begin")
                .query(dealloc)
                .query("rollback"),
            3,
        ),
    ]
}

/// Does so by portals that are executed twice, in a later batch, or after the name was closed.
fn ways_by_portals() -> Vec<(Script, usize)> {
    let run = |script: Script| script.parse("", "deallocate s").bind("", &[]).execute();
    vec![
        (run(Script::new()).execute().sync(), 1),
        (
            Script::new()
                .query("begin")
                .parse("d", "deallocate s")
                .bind_to("p", "d", &[])
                .sync()
                .execute_of("p", 0)
                .sync()
                .query("select 2")
                .execute_of("p", 0)
                .sync()
                .query("rollback"),
            6,
        ),
        (
            Script::new()
                .parse("d", "deallocate s")
                .bind("d", &[])
                .close("s")
                .execute()
                .sync(),
            1,
        ),
        (
            Script::new()
                .parse("", "deallocate s")
                .bind("", &["1"])
                .execute()
                .sync(),
            1,
        ),
    ]
}

/// TO SEE THIS RED: send a DEALLOCATE within a batch as it is.
#[test]
fn a_deallocation_has_its_effect_where_the_server_executes_it_and_only_there() {
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for is_given in [false, true] {
            for (script, replies) in ways().into_iter().chain(ways_by_portals()) {
                let mut client = Client::connect(address);
                client.exchange(&prepare("s", "select 's'"), 1);
                if is_given {
                    client.query("execute s");
                }
                received.extend(client.exchange(&script, replies));
                received.extend(client.exchange(&execute("s", &[]), 1));
                received.extend(client.query("execute s"));
                received.extend(client.exchange(&prepare("s", "select 'again'"), 1));
                received.extend(client.exchange(&execute("s", &[]), 1));
                received.extend(client.query("deallocate s"));
                received.extend(client.query("execute s"));
            }
        }
        received
    });
}

/// The Query ends the implicit transaction of the messages before it.
#[test]
fn a_deallocation_within_a_batch_commits_what_precedes_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        client.run("create temp table before_it (a int)");
        client.exchange(&prepare("s", "select 's'"), 1);
        let script = Script::new()
            .parse("", "insert into before_it values (1)")
            .bind("", &[])
            .execute()
            .query("deallocate s")
            .bind("none", &[])
            .sync();
        let mut received = client.exchange(&script, 2);
        received.push(client.value("select count(*) from before_it"));
        received
    });
}

/// TO SEE THIS RED: answer for a portal although it was closed.
#[test]
fn a_deallocation_by_a_portal_that_was_closed_is_refused() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&Script::new().parse("s", "select 1").sync(), 1);
        for portal in ["", "p"] {
            let script = Script::new()
                .parse("d", "deallocate s")
                .bind_to(portal, "d", &[])
                .close_portal(portal)
                .execute_of(portal, 0)
                .sync();
            received.extend(client.exchange(&script, 1));
            let closed = Script::new().close("d").bind("s", &[]).execute().sync();
            received.extend(client.exchange(&closed, 1));
        }
        received
    });
}

/// The statement is prepared again while the server's reports about RESET ALL are on their way.
///
/// TO SEE THIS RED: analyze no text while the settings are unknown.
#[test]
fn a_deallocation_of_all_after_a_reset_in_its_batch_takes_the_names_away() {
    let few = Setup {
        pool: "size = 1\nstatements_max = 2",
        ..Setup::default()
    };
    same_as_direct(few, |address| {
        let mut client = Client::connect(address);
        client.exchange(&prepare("all", "deallocate all"), 1);
        client.exchange(&prepare("s", "select 's'"), 1);
        client.exchange(&prepare("reset", "reset all"), 1);
        let batch = Script::new().bind("reset", &[]).execute();
        let batch = batch.bind("all", &[]).execute().sync();
        let mut received = client.exchange(&batch, 1);
        received.extend(client.exchange(&execute("s", &[]), 1));
        received.extend(client.exchange(&prepare("s", "select 'new'"), 1));
        received
    });
}
