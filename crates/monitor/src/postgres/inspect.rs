//! Asks a PostgreSQL server what it is, and what the account may not do.

use super::{line::Caller, row};
use crate::{
    WatchError,
    inspect::{Facts, LoginFunction},
    probe::{MonitorAccount, Progress, Target, Tls, messages},
    row::{Row, UnexpectedValue, only},
};

const STEP: &str = "querying its facts";

const QUESTION: &str = "SELECT pg_catalog.current_setting('server_version') AS version, \
    pg_catalog.pg_is_in_recovery() AS is_replica, \
    (SELECT sender_host || ':' || sender_port FROM pg_catalog.pg_stat_wal_receiver) AS source, \
    (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) AS is_superuser, \
    pg_catalog.pg_has_role('pg_monitor', 'USAGE') AS is_monitor, \
    pg_catalog.has_table_privilege('pg_catalog.pg_authid', 'SELECT') AS reads_hashes, \
    CASE WHEN pg_catalog.to_regprocedure('public.evenkeel_login(text)') IS NULL THEN 'missing' \
    WHEN pg_catalog.has_function_privilege('public.evenkeel_login(text)', 'EXECUTE') \
    THEN 'usable' ELSE 'forbidden' END AS login_function";

const WITHOUT_PASSWORD: &str = "SELECT rolname AS name FROM pg_catalog.pg_authid \
    WHERE rolcanlogin AND rolpassword IS NULL ORDER BY rolname LIMIT 20";

pub(crate) async fn facts(
    target: &Target,
    account: MonitorAccount,
    tls: &Tls,
    progress: &Progress,
) -> Result<Facts, WatchError> {
    let user = account.user.clone();
    let caller = Caller::new(account, tls, "evenkeel-init")
        .map_err(|error| WatchError::CannotTell(error.to_string()))?;
    let line = caller.call(target, progress, STEP).await?;
    let ask = async |query: &str| -> Result<Vec<Row>, WatchError> {
        line.begin_answer();
        let messages = line.client.simple_query(query).await;
        let messages = messages.map_err(|error| caller.classify(&error, &line, progress))?;
        Ok(messages.iter().filter_map(row).collect())
    };
    let unexpected = |error: UnexpectedValue| WatchError::CannotTell(error.to_string());
    let answer = only(ask(QUESTION).await?).map_err(unexpected)?;
    let mut facts = read(&answer, &user).map_err(unexpected)?;
    if facts.reads_hashes {
        let rows = ask(WITHOUT_PASSWORD).await?;
        let names = rows
            .iter()
            .map(|row| row.text(&["name"]).map(str::to_owned));
        facts.without_password = names.collect::<Result<_, _>>().map_err(unexpected)?;
    }
    Ok(facts)
}

fn read(answer: &Row, user: &str) -> Result<Facts, UnexpectedValue> {
    let version = answer.text(&["version"])?;
    let number = version.split(' ').next().unwrap_or_default();
    let mut missing = Vec::new();
    if !answer.flag(&["is_monitor"])? {
        missing.push(format!("GRANT pg_monitor TO {}", quoted(user)));
    }
    let function = match answer.text(&["login_function"])? {
        "usable" => LoginFunction::Usable,
        "forbidden" => LoginFunction::Forbidden,
        _ => LoginFunction::Missing,
    };
    Ok(Facts {
        product: format!("PostgreSQL {}", messages::truncated(number)),
        is_replica: answer.flag(&["is_replica"])?,
        source: answer.value(&["source"])?.map(str::to_owned),
        is_superuser: answer.flag(&["is_superuser"])?,
        reads_hashes: answer.flag(&["reads_hashes"])?,
        function,
        missing,
        ..Facts::default()
    })
}

/// Returns a name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
