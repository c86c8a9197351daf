//! Tests of SQL that names prepared statements of the protocol, at each place of a conversation.

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{ONE, TestBed, same_as_direct};
use crate::harness::DRIVERS;

const TEXTS: [&str; 24] = [
    "execute s",
    "select 1; execute s",
    "execute s; execute s",
    "deallocate s",
    "deallocate prepare s",
    "select 1; deallocate s",
    "deallocate s; select 1",
    "deallocate s; deallocate s",
    "deallocate s; selekt",
    "deallocate s; select 1/0",
    "deallocate s; execute s",
    "execute s; deallocate s",
    "begin; deallocate s; rollback",
    "deallocate s; prepare s as select 'sql'",
    "deallocate s; prepare s as select 'sql'; execute s",
    "prepare s as select 'sql'",
    "select 1; prepare s as select 'sql'",
    "deallocate all",
    "select 1; deallocate all",
    "deallocate all; execute s",
    "deallocate all; prepare s as select 'sql'",
    "discard all",
    "explain (costs off) execute s",
    "create temp table of_s as execute s",
];

/// Ways to run a text.
fn ways(text: &str) -> Vec<(&'static str, Script)> {
    let run = |script: Script| script.parse("", text).bind("", &[]).execute();
    let s = || Script::new().parse("s", "select 's'");
    vec![
        ("query", prepare("s", "select 's'").query(text)),
        ("batch", run(prepare("s", "select 's'")).sync()),
        ("its batch", run(s()).sync()),
        ("query in its batch", s().query(text).sync()),
        ("after its use", run(s().bind("s", &[]).execute()).sync()),
        (
            "query after its use",
            s().bind("s", &[]).execute().query(text).sync(),
        ),
        ("after its close", run(s().close("s")).sync()),
        ("query after its close", s().close("s").query(text).sync()),
        ("twice", run(run(s())).sync()),
        ("before its use", run(s()).bind("s", &[]).execute().sync()),
        (
            "query before its use",
            s().query(text).bind("s", &[]).execute().sync(),
        ),
        (
            "before its parse",
            run(prepare("s", "select 's'"))
                .parse("s", "select 'other'")
                .sync(),
        ),
        (
            "after an error",
            run(prepare("s", "select 's'").bind("none", &[])).sync(),
        ),
        (
            "query after an error",
            prepare("s", "select 's'")
                .bind("none", &[])
                .query(text)
                .sync(),
        ),
        (
            "in a failed transaction",
            prepare("s", "select 's'")
                .query("begin; selekt")
                .query("begin")
                .query("selekt")
                .query(text)
                .query("rollback"),
        ),
        (
            "in a transaction",
            run(prepare("s", "select 's'").query("begin"))
                .sync()
                .query("rollback"),
        ),
    ]
}

/// TO SEE THIS RED: name nothing in a batch, or only for EXECUTE.
#[test]
fn sql_that_names_a_statement_of_the_protocol_runs_as_at_the_server() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        for text in TEXTS {
            for (way, script) in ways(text) {
                received.push(format!("{text}, {way}"));
                received.extend(converse(&mut client, &script));
                received.extend(client.exchange(&execute("s", &[]), 1));
                received.extend(client.query("execute s"));
                received.extend(client.exchange(&prepare("s", "select 'again'"), 1));
                received.extend(client.exchange(&execute("s", &[]), 1));
                received.extend(client.query("deallocate s"));
                received.extend(client.query("execute s"));
                client.run("discard all");
            }
        }
        received
    });
}

/// The error comes with the name, before the replies to the client's Parse and Bind.
///
/// TO SEE THIS RED: let no Sync follow the error.
#[test]
fn a_statement_that_can_no_longer_be_named_fails_as_at_the_server() {
    let run = |script: Script| script.parse("", "execute s").bind("", &[]).execute();
    let scripts = [
        run(Script::new()),
        run(Script::new().parse("", "select 1").bind("", &[]).execute()),
        Script::new().parse("", "select 1").query("execute s"),
        Script::new()
            .parse("", "insert into kept values (1)")
            .bind("", &[])
            .execute()
            .query("execute s")
            .parse("", "select 'after'")
            .bind("", &[])
            .execute()
            .query("select 'last'"),
    ];
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        client.run("drop table if exists kept; create table kept (a int)");
        let mut received = Vec::new();
        for script in &scripts {
            client.run("drop table if exists gone; create table gone (a int)");
            client.exchange(&prepare("s", "select * from gone"), 1);
            client.run("drop table gone");
            received.extend(converse(&mut client, &script.clone().sync()));
            received.retain(|line| line != "1" && line != "2");
            received.push(client.value("select count(*) from kept"));
            client.run("discard all");
        }
        client.run("drop table kept");
        received
    });
}

/// The server connection loses the name when another client gets it.
///
/// TO SEE THIS RED: name no statement at a Bind.
#[test]
fn a_prepared_execute_finds_its_statement_on_any_connection() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.exchange(&prepare("e", "execute s"), 1);
        client.exchange(&prepare("s", "select 's'"), 1);
        for _ in 0..2 {
            let received = client.exchange(&execute("e", &[]), 1);
            assert_eq!(received, ["2", "D s", "C SELECT 1", "Z Idle"], "{io}");
            other.run("select 1");
        }
    }
}

/// Sends a script, and returns all messages up to the reply to a final query.
fn converse(client: &mut Client, script: &Script) -> Vec<String> {
    client.send_script(script);
    client.send_script(
        &Script::new()
            .sync()
            .query("rollback")
            .query("select 'mark'"),
    );
    let mut received = Vec::new();
    loop {
        let line = client.receive_message();
        let is_last = line == "D mark" || line == "end";
        received.push(line);
        if is_last {
            received.extend(client.reply());
            return received;
        }
    }
}
