//! Tests of SQL that refers to session objects: statements prepared by the protocol, cursors.

use super::client::Client;
use super::script::{Script, prepare};
use super::stage::{ONE, same_as_direct};

fn run(text: &str) -> Script {
    Script::new().parse("", text).bind("", &[]).execute().sync()
}

/// TO SEE THIS RED: wait for no name.
#[test]
fn a_statement_of_the_protocol_is_executed_by_sql_however_far_ahead_its_client_is() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        // All in one write.
        client.send_script(&prepare("a", "select 'a'"));
        client.send_script(&prepare("b", "select 'b'"));
        for script in [
            Script::new().query("execute a; execute b"),
            Script::new().query("select 1").query("EXECUTE a"),
        ] {
            client.send_script(&script);
        }
        let mut received: Vec<String> = (0..5).flat_map(|_| client.reply()).collect();
        client.send_script(&prepare("c", "select 'c'"));
        client.send_script(&run("execute c"));
        client.send_script(&prepare("named", "execute a"));
        client.send_script(&Script::new().bind("named", &[]).execute().sync());
        received.extend((0..4).flat_map(|_| client.reply()));
        received.extend(client.exchange(&Script::new().close("c").sync(), 1));
        received.extend(client.exchange(&run("execute c"), 1));
        received
    });
}

/// TO SEE THIS RED: share a text that begins with FETCH.
#[test]
fn what_a_name_of_the_session_s_gives_is_described_to_each_as_its_own() {
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for columns in ["1 as number", "'x'::text as word, now() as at"] {
            let mut client = Client::connect(address);
            client.run("begin");
            client.run(&format!("declare c cursor for select {columns}"));
            let fetch = " /* of mine */ fetch all from c";
            let script = Script::new().parse("f", fetch).describe("f").sync();
            received.extend(client.exchange(&script, 1));
            client.run("commit");
            let script = Script::new()
                .parse("s", &format!("select {columns}"))
                .sync();
            received.extend(client.exchange(&script, 1));
            let script = Script::new().parse("e", "execute s").describe("e").sync();
            received.extend(client.exchange(&script, 1));
        }
        received
    });
}

#[test]
fn what_cannot_be_given_its_name_can_be_once_it_is_possible_again() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        client.run("drop table if exists given");
        client.run("create table given (id int)");
        let mut received = client.exchange(&prepare("s", "select * from given"), 1);
        client.run("drop table given");
        client.query("execute s");
        client.run("create table given (id int)");
        received.extend(client.query("execute s"));
        received.extend(client.query("deallocate s"));
        received.extend(client.query("execute s"));
        client.run("drop table given");
        received
    });
}

/// TO SEE THIS RED: let a Close that an error skips remove the name for SQL.
#[test]
fn a_close_that_is_passed_over_leaves_what_sql_was_given() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("s", "select 1"), 1);
        received.extend(client.query("execute s"));
        let passed_over = Script::new().bind("nosuch", &[]).close("s").sync();
        received.extend(client.exchange(&passed_over, 1));
        received.extend(client.query("execute s"));
        received.extend(client.exchange(&Script::new().close("s").sync(), 1));
        received.extend(client.exchange(&prepare("s", "select 2"), 1));
        received.extend(client.query("execute s"));
        received
    });
}
