//! Tests of procedures that commit: on some servers this ends the transaction of a batch, so that
//! earlier statements are kept even if a later one fails.

use super::client::Client;
use super::script::Script;
use super::stage::{Setup, admin, same_as_direct};

const MADE: &str = "
    create or replace procedure commits() language plpgsql as $$ begin commit; end $$;
    create or replace procedure commits_and_fails() language plpgsql as $$
      begin commit; raise 'no'; end $$;
    create or replace procedure rolls_back() language plpgsql as $$ begin rollback; end $$;
    create or replace procedure sets_and_fails() language plpgsql as $$
      begin perform set_config('work_mem', '123MB', false); commit; raise 'no'; end $$;";

/// A pinned client leaves one connection to the other client.
const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 1,
};

/// Creates a role that clients may set; returns the statement that does.
fn worn(name: &str) -> String {
    admin().run(&format!("create role {name}; grant {name} to sbtest"));
    format!("set role {name}")
}

/// Returns one batch, with a separate portal for each text.
fn batch(texts: &[&str]) -> Script {
    let mut script = Script::new();
    for (number, text) in texts.iter().enumerate() {
        let portal = number.to_string();
        script = script.parse("", text).bind_to(&portal, "", &[]);
        script = script.execute_of(&portal, 0);
    }
    script.sync()
}

/// TO SEE THIS RED: treat no state as uncertain after a procedure.
#[test]
fn what_a_procedure_commits_of_a_batch_that_fails_is_its_client_s_alone() {
    admin().query(MADE);
    let wear = worn("worn_in_batches");
    let set = "set work_mem = '123MB'";
    for texts in [
        &["select 1", set, "call commits()", "select 1 / 0"][..],
        &[
            "set work_mem = '1MB'",
            set,
            "call commits()",
            "select 1 / 0",
        ],
        &[set, "do $$ begin commit; end $$", "select 1 / 0"],
        &[set, "call commits_and_fails()"],
        &[set, "call commits()", "rollback"],
        &["call sets_and_fails()"],
        &[&wear, "call commits()", "select 1 / 0"],
        &["call commits()", set, "select 1 / 0"],
    ] {
        same_as_direct(TWO, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            let mut received = client.exchange(&batch(texts), 1);
            for text in ["show work_mem", "select current_user"] {
                received.extend([other.value(text), client.value(text)]);
            }
            received
        });
    }
}

/// TO SEE THIS RED: treat only failed statements as uncertain.
#[test]
fn what_a_procedure_takes_back_of_a_batch_is_not_taken_for_done() {
    admin().query(MADE);
    same_as_direct(TWO, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        other.run("set work_mem = '7MB'");
        client.run("set work_mem = '7MB'");
        client.run("set work_mem = '9MB'");
        let mut received =
            client.exchange(&batch(&["set work_mem = '7MB'", "call rolls_back()"]), 1);
        received.push(other.value("show work_mem"));
        received.push(client.value("show work_mem"));
        client.run("begin; listen taken_back; commit");
        received.extend(client.exchange(&batch(&["unlisten *", "call rolls_back()"]), 1));
        received.push(other.value("select count(*) from pg_listening_channels()"));
        received.push(client.value("select count(*) from pg_listening_channels()"));
        received
    });
}

#[test]
fn what_discard_all_takes_away_in_a_batch_that_fails_is_not_there_for_others() {
    let wear = worn("worn_and_discarded");
    for behind in ["select 1 / 0", "rollback"] {
        same_as_direct(TWO, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            client.run(&wear);
            other.run(&wear);
            let mut received = client.exchange(&batch(&["discard all", behind]), 1);
            received.push(other.value("select current_user"));
            received.push(client.value("select current_user"));
            received
        });
    }
}
