//! Tests reading the users of a real server.

use evenkeel_monitor::PostgresAuthQuery;
use evenkeel_monitor::probe::Tls;
use evenkeel_policy::accounts::{LookupError, PostgresAuthRecord, Verifier};

use crate::rig::PATIENCE;
use crate::server::{Postgres, account, block_on, shared};

fn asker(user: &str, query: Option<&str>) -> PostgresAuthQuery {
    PostgresAuthQuery::new(account(user, None), &Tls::Off, query).unwrap()
}

fn ask(
    server: &Postgres,
    asker: &PostgresAuthQuery,
    user: &str,
) -> Result<PostgresAuthRecord, LookupError> {
    block_on(async {
        let answer = asker.ask(&server.target(), user, PATIENCE).await;
        // Each test's runtime ends with the query.
        asker.hang_up().await;
        answer
    })
}

#[test]
fn verifiers_and_what_a_user_may_are_read() {
    let server = shared();
    server.sql(
        "postgres",
        "CREATE ROLE scrammed LOGIN PASSWORD 'secret' VALID UNTIL 'infinity';
         CREATE ROLE bare LOGIN; CREATE ROLE nologin PASSWORD 'secret';
         CREATE ROLE expired LOGIN PASSWORD 'secret' VALID UNTIL '2020-01-01';
         CREATE ROLE young LOGIN PASSWORD 'secret' VALID UNTIL '2999-01-01';
         CREATE ROLE \"Odd 'name\" LOGIN;
         SET password_encryption = 'md5'; CREATE ROLE old LOGIN PASSWORD 'secret'",
    );
    let asker = asker("postgres", None);
    let row = |user: &str| ask(&server, &asker, user).unwrap();
    let stored = server.sql(
        "postgres",
        "SELECT rolpassword FROM pg_authid WHERE rolname = 'scrammed'",
    );
    let scrammed = row("scrammed");
    assert_eq!(scrammed.verifier, Verifier::Scram(stored.into()));
    assert!(scrammed.can_login && !scrammed.expired);
    assert!(matches!(row("old").verifier, Verifier::Md5(_)));
    assert_eq!(row("bare").verifier, Verifier::None);
    assert!(!row("nologin").can_login);
    assert!(row("expired").expired && !row("young").expired);
    assert!(row("Odd 'name").can_login);
    for nobody in ["nobody", "SCRAMMED", "", "x' OR true --"] {
        assert_eq!(ask(&server, &asker, nobody), Err(LookupError::NoSuchUser));
    }
}

#[test]
fn an_account_that_may_not_read_them_says_what_to_grant_and_a_function_will_do() {
    let server = shared();
    server.sql(
        "postgres",
        "CREATE ROLE door LOGIN; CREATE ROLE guest LOGIN PASSWORD 'secret';
         CREATE ROLE late LOGIN PASSWORD 'secret' VALID UNTIL '2020-01-01';
         CREATE FUNCTION user_lookup(name text, OUT text, OUT text, OUT timestamptz)
         RETURNS SETOF record LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS
         'SELECT rolname, rolpassword, rolvaliduntil FROM pg_authid WHERE rolname = lower($1)'",
    );
    let reported = ask(&server, &asker("door", None), "guest").unwrap_err();
    let reported = reported.to_string();
    assert!(
        reported.contains("GRANT SELECT ON pg_authid TO door"),
        "{reported}"
    );
    let by_function = asker("door", Some("SELECT * FROM user_lookup($1); "));
    let guest = ask(&server, &by_function, "guest").unwrap();
    assert!(matches!(guest.verifier, Verifier::Scram(_)));
    assert!(guest.can_login && !guest.expired);
    assert!(ask(&server, &by_function, "late").unwrap().expired);
    for nobody in ["nobody", "GUEST"] {
        assert_eq!(
            ask(&server, &by_function, nobody),
            Err(LookupError::NoSuchUser)
        );
    }
    let narrow = asker("door", Some("SELECT 'guest', $1"));
    let reported = ask(&server, &narrow, "guest").unwrap_err().to_string();
    assert!(
        reported.contains("query of [service.auth] failed"),
        "{reported}"
    );
}

#[test]
fn many_are_asked_for_at_once_over_one_connection_and_a_broken_one_is_made_anew() {
    let server = Postgres::start(&[]);
    server.sql("postgres", "CREATE ROLE guest LOGIN PASSWORD 'secret'");
    let asker = asker("postgres", None);
    let sessions = || {
        let count =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'evenkeel-auth'";
        server.sql("postgres", count)
    };
    block_on(async {
        let target = server.target();
        let one = || asker.ask(&target, "guest", PATIENCE);
        let (a, b, c) = tokio::join!(one(), one(), one());
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        assert_eq!(sessions(), "1");
        server.sql(
            "postgres",
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
             WHERE application_name = 'evenkeel-auth'",
        );
        // The first user may read the credentials, the next may not.
        let _ = one().await;
        assert!(one().await.is_ok());
    });
}
