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
        client.tell(&prepare("a", "select 'a'"));
        client.tell(&prepare("b", "select 'b'"));
        for script in [
            Script::new().query("execute a; execute b"),
            Script::new().query("select 1").query("EXECUTE a"),
        ] {
            client.tell(&script);
        }
        let mut heard: Vec<String> = (0..5).flat_map(|_| client.reply()).collect();
        client.tell(&prepare("c", "select 'c'"));
        client.tell(&run("execute c"));
        client.tell(&prepare("named", "execute a"));
        client.tell(&Script::new().bind("named", &[]).execute().sync());
        heard.extend((0..4).flat_map(|_| client.reply()));
        heard.extend(client.ask(&Script::new().close("c").sync(), 1));
        heard.extend(client.ask(&run("execute c"), 1));
        heard
    });
}

/// TO SEE THIS RED: share a text that begins with FETCH.
#[test]
fn what_a_name_of_the_session_s_gives_is_described_to_each_as_its_own() {
    same_as_direct(ONE, |address| {
        let mut heard = Vec::new();
        for columns in ["1 as number", "'x'::text as word, now() as at"] {
            let mut client = Client::connect(address);
            client.run("begin");
            client.run(&format!("declare c cursor for select {columns}"));
            let fetch = " /* of mine */ fetch all from c";
            let script = Script::new().parse("f", fetch).describe("f").sync();
            heard.extend(client.ask(&script, 1));
            client.run("commit");
            let script = Script::new()
                .parse("s", &format!("select {columns}"))
                .sync();
            heard.extend(client.ask(&script, 1));
            let script = Script::new().parse("e", "execute s").describe("e").sync();
            heard.extend(client.ask(&script, 1));
        }
        heard
    });
}

#[test]
fn what_cannot_be_given_its_name_can_be_once_it_is_possible_again() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        client.run("drop table if exists given");
        client.run("create table given (id int)");
        let mut heard = client.ask(&prepare("s", "select * from given"), 1);
        client.run("drop table given");
        client.query("execute s");
        client.run("create table given (id int)");
        heard.extend(client.query("execute s"));
        heard.extend(client.query("deallocate s"));
        heard.extend(client.query("execute s"));
        client.run("drop table given");
        heard
    });
}

/// TO SEE THIS RED: let a Close that an error skips remove the name for SQL.
#[test]
fn a_close_that_is_passed_over_leaves_what_sql_was_given() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut heard = client.ask(&prepare("s", "select 1"), 1);
        heard.extend(client.query("execute s"));
        let passed_over = Script::new().bind("nosuch", &[]).close("s").sync();
        heard.extend(client.ask(&passed_over, 1));
        heard.extend(client.query("execute s"));
        heard.extend(client.ask(&Script::new().close("s").sync(), 1));
        heard.extend(client.ask(&prepare("s", "select 2"), 1));
        heard.extend(client.query("execute s"));
        heard
    });
}
