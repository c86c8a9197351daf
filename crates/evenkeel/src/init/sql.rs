//! Writes the SQL that creates the monitor account with the least grants.

use std::fmt::Write as _;

use evenkeel_config::plan::SqlProtocol;

use super::{Group, Lookup};

/// Account that is proposed in place of a superuser.
const PROPOSED: &str = "evenkeel";

const LOGIN_FUNCTION: &str = "\
CREATE OR REPLACE FUNCTION public.evenkeel_login(name text)
RETURNS TABLE (rolname name, rolpassword text, valid_until timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog
AS $$ SELECT rolname, rolpassword, rolvaliduntil FROM pg_authid
      WHERE rolname = $1 AND rolcanlogin AND NOT rolsuper $$;
REVOKE ALL ON FUNCTION public.evenkeel_login(text) FROM PUBLIC;
";

/// Returns the statements for the group's primary. Empty if the account has all that it needs, and
/// no more.
pub(super) fn statements(group: &Group) -> String {
    let mut sql = String::new();
    if group.is_superuser() {
        let user = &group.user;
        let _ = writeln!(
            sql,
            "-- '{user}' works, and may do everything. This account has the least grants instead:\n\
             -- choose a password, write it into the password file, and set user and\n\
             -- password_file in the config file."
        );
        account(group, PROPOSED, "choose-a-password", &mut sql);
    } else if !group.logs_in() {
        sql.push_str(
            "-- If this account exists already, its password is another one: run `evenkeel init`\n\
             -- again with that.\n",
        );
        account(group, &group.user, &group.password, &mut sql);
    } else if group.needs_sql() {
        let mut grants: Vec<&String> = group.facts().flat_map(|facts| &facts.missing).collect();
        grants.sort();
        grants.dedup();
        for grant in grants {
            let _ = writeln!(sql, "{grant};");
        }
        if group.lookup() == Lookup::Function && !group.has_function() {
            login_function(&group.user, &mut sql);
        }
    }
    sql
}

fn account(group: &Group, user: &str, password: &str, sql: &mut String) {
    let literal = |text| literal(text, group.protocol);
    let password = literal(password);
    match group.protocol {
        SqlProtocol::Postgres => {
            let role = name(user);
            let _ = writeln!(
                sql,
                "CREATE ROLE {role} LOGIN PASSWORD {password} IN ROLE pg_monitor;"
            );
            login_function(user, sql);
        }
        SqlProtocol::Mysql => {
            let host = group.own_address.as_deref().unwrap_or("localhost");
            let account = format!("{}@{}", literal(user), literal(host));
            let _ = writeln!(sql, "CREATE USER {account} IDENTIFIED BY {password};");
            for grant in grants(group) {
                let _ = writeln!(sql, "GRANT {grant} TO {account};");
            }
        }
    }
}

fn grants(group: &Group) -> [&'static str; 3] {
    let is_mariadb = group
        .servers
        .iter()
        .any(|one| one.product().starts_with("MariaDB"));
    match is_mariadb {
        false => [
            "REPLICATION CLIENT, SHOW VIEW, TRIGGER, SHOW_ROUTINE ON *.*",
            "SELECT ON mysql.user",
            "SELECT ON performance_schema.*",
        ],
        true => [
            "REPLICATION CLIENT, SLAVE MONITOR, SHOW VIEW, TRIGGER ON *.*",
            "SELECT ON mysql.global_priv",
            "SELECT ON mysql.proc",
        ],
    }
}

fn login_function(user: &str, sql: &mut String) {
    sql.push_str(LOGIN_FUNCTION);
    let role = name(user);
    let _ = writeln!(
        sql,
        "GRANT EXECUTE ON FUNCTION public.evenkeel_login(text) TO {role};"
    );
}

/// Returns a name of PostgreSQL, in quotes where it needs them.
fn name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
    match name.chars().all(is_plain) && !name.is_empty() {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Returns a string of SQL.
fn literal(text: &str, protocol: SqlProtocol) -> String {
    let quoted = text.replace('\'', "''");
    match protocol {
        SqlProtocol::Postgres => format!("'{quoted}'"),
        SqlProtocol::Mysql => format!("'{}'", quoted.replace('\\', "\\\\")),
    }
}
