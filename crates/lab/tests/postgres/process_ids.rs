//! Tests of process ids: a client has one, which its drivers, its SQL and other clients know.

use evenkeel_lab::eventually;

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{ONE, Setup, TestBed, admin};
use crate::harness::{DRIVERS, LIMIT};

const SLEEP: &str = "select pg_sleep(60)";

const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    ..ONE
};

fn process(client: &Client) -> String {
    client.key.as_ref().unwrap().0.to_string()
}

/// Starts a query of the client, and waits until the server runs it.
fn sleep(client: &mut Client) {
    client.run_later(SLEEP);
    let mut admin = admin();
    let active = "select count(*) from pg_stat_activity where state = 'active' and \
                  query = 'select pg_sleep(60)' and datname = current_database()";
    let waited = eventually(LIMIT, "a query that runs", || {
        Ok((admin.value(active) == "1").then_some(()))
    });
    waited.unwrap();
}

/// TO SEE THIS RED: send the text as it is.
#[test]
fn the_id_of_the_login_is_the_one_that_sql_returns() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut client, other) = (bed.client(), bed.client());
        let own = process(&client);
        assert_ne!(own, process(&other));
        assert!(own.parse::<i32>().unwrap() > 4_194_304, "{io}: {own}");
        for text in [
            "select pg_backend_pid()",
            "/* app:web */ SELECT pg_backend_pid();",
            "select pg_catalog.pg_backend_pid() as pid",
        ] {
            assert_eq!(client.value(text), own, "{io}: {text}");
        }
        let reply = client.query("select pg_backend_pid()");
        assert_eq!(reply[0], "T pg_backend_pid", "{io}");
        for name in ["", "named"] {
            client.send_script(
                &Script::new()
                    .parse(name, "select pg_backend_pid()")
                    .bind(name, &[])
                    .describe(name)
                    .execute()
                    .sync(),
            );
            let reply = client.reply();
            assert!(reply.contains(&format!("D {own}")), "{io}: {reply:?}");
        }
        // The server's own number in any other text, since tables of the server have that.
        let known = "select count(*) from pg_stat_activity where pid = pg_backend_pid()";
        assert_eq!(client.value(known), "1", "{io}");
    }
}

/// TO SEE THIS RED: send the text as it is.
#[test]
fn a_client_cancels_and_ends_another_by_its_id() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut victim, mut other) = (bed.client(), bed.client());
        let number = process(&victim);
        sleep(&mut victim);
        let cancel = format!("select pg_cancel_backend({number})");
        assert_eq!(other.value(&cancel), "t", "{io}");
        let reply = victim.reply();
        assert!(reply.contains(&"E 57014".to_owned()), "{io}: {reply:?}");
        for (name, text) in [
            ("", "select pg_cancel_backend($1)"),
            ("c", "select pg_cancel_backend($1::int)"),
        ] {
            sleep(&mut victim);
            other.send_script(
                &Script::new()
                    .parse(name, text)
                    .bind(name, &[&number])
                    .describe_portal("")
                    .execute()
                    .sync(),
            );
            let reply = other.reply();
            assert!(reply.contains(&"D t".to_owned()), "{io}: {reply:?}");
            let reply = victim.reply();
            assert!(reply.contains(&"E 57014".to_owned()), "{io}: {reply:?}");
        }
        assert_eq!(victim.value("select 'goes on'"), "goes on", "{io}");
        other.run("begin");
        let end = format!("select pg_terminate_backend({number}) as ended");
        assert_eq!(other.value(&end), "t", "{io}");
        other.run("commit");
        let reply = victim.reply();
        assert_eq!(
            reply.last().map(String::as_str),
            Some("end"),
            "{io}: {reply:?}"
        );
        assert_eq!(other.value(&cancel), "f", "{io}: it is gone");
        assert_eq!(other.value("select 'goes on'"), "goes on", "{io}");
    }
}

#[test]
fn a_client_of_another_user_is_not_ended_and_servers_numbers_are_the_server_s() {
    let mut admin = admin();
    let _ = admin.query("create role stranger login password 'stranger'");
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut victim = bed.client();
        let login = Login {
            user: "stranger",
            password: "stranger",
            ..bed.login()
        };
        let mut stranger =
            Client::log_in(bed.address, &login).unwrap_or_else(|answer| panic!("{answer}"));
        let end = format!("select pg_terminate_backend({})", process(&victim));
        assert_eq!(stranger.value(&end), "f", "{io}");
        assert_eq!(victim.value("select 'still in'"), "still in", "{io}");
        // A process that is no backend, and one of this user's.
        assert_eq!(victim.value("select pg_cancel_backend(1)"), "f", "{io}");
        victim.run("begin");
        let own = victim.backend();
        let mut other = bed.client();
        assert_eq!(
            other.value(&format!("select pg_terminate_backend({own})")),
            "t",
            "{io}"
        );
        let reply = victim.query("select 1");
        assert!(
            reply.iter().any(|line| line.starts_with("E ")),
            "{io}: {reply:?}"
        );
    }
}
