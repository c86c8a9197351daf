//! Procedures that commit: not all servers take a batch for one transaction there, and then what
//! came before is kept, whatever comes behind.

use super::client::Client;
use super::script::Script;
use super::stage::{Setup, admin, same_as_direct};

const MADE: &str = "
    create or replace procedure commits() language plpgsql as $$ begin commit; end $$;
    create or replace procedure commits_and_fails() language plpgsql as $$
      begin commit; raise 'no'; end $$;
    create or replace procedure sets_and_fails() language plpgsql as $$
      begin perform set_config('work_mem', '123MB', false); commit; raise 'no'; end $$;";

/// Who is bound leaves one to the other.
const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 1,
};

/// As one batch, each in a portal of its own.
fn batch(texts: &[&str]) -> Script {
    let mut script = Script::new();
    for (number, text) in texts.iter().enumerate() {
        let portal = number.to_string();
        script = script.parse("", text).bind_to(&portal, "", &[]);
        script = script.execute_of(&portal, 0);
    }
    script.sync()
}

/// TO SEE THIS RED: let nothing be in doubt behind a procedure.
#[test]
fn what_a_procedure_commits_of_a_batch_that_fails_is_its_client_s_alone() {
    admin().query(MADE);
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
        &["call sets_and_fails()"],
        &["set role pg_monitor", "call commits()", "select 1 / 0"],
        &["call commits()", set, "select 1 / 0"],
    ] {
        same_as_direct(TWO, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            let mut heard = client.ask(&batch(texts), 1);
            for text in ["show work_mem", "select current_user"] {
                heard.extend([other.value(text), client.value(text)]);
            }
            heard
        });
    }
}
