//! Statements with which clients change settings.

pub(crate) const PREPARATION: [&str; 4] = [
    "CREATE ROLE app",
    "CREATE ROLE other SUPERUSER",
    "CREATE FUNCTION hidden() RETURNS text LANGUAGE sql AS $$
       SELECT pg_catalog.set_config('TimeZone', 'Pacific/Auckland', false) $$",
    "CREATE FUNCTION back() RETURNS text LANGUAGE sql AS $$
       SELECT pg_catalog.set_config('TimeZone', NULL, false) $$",
];

/// A custom setting that was reset is empty; one that was never set is NULL.
pub(crate) const ALL_SETTINGS: &str = "
    SELECT name::text, setting FROM pg_catalog.pg_settings WHERE name NOT LIKE 'plpgsql.%'
    UNION ALL SELECT name, coalesce(pg_catalog.current_setting(name, true), '')
      FROM (VALUES ('my.a'), ('my.b'), ('my.c'), ('my.d')) own(name)
    UNION ALL VALUES ('current_user', current_user::text), ('session_user', session_user::text)
    ORDER BY 1";

const TEXTS: [&str; 82] = [
    "BEGIN",
    "BEGIN",
    "BEGIN",
    "START TRANSACTION READ ONLY",
    "COMMIT",
    "COMMIT",
    "COMMIT AND CHAIN",
    "ROLLBACK",
    "ROLLBACK",
    "ROLLBACK AND CHAIN",
    "SAVEPOINT s",
    "SAVEPOINT s",
    "SAVEPOINT \"T\"",
    "ROLLBACK TO s",
    "ROLLBACK TO SAVEPOINT \"T\"",
    "RELEASE s",
    "SELECT 1/0",
    "SELECT public.hidden()",
    "SELECT public.back()",
    "SET work_mem = '#MB'",
    "set session \"Work_Mem\" to #00",
    "SET work_mem TO 'nonsense'",
    "SET no_such_setting = 1",
    "SET LOCAL work_mem = '9MB'",
    "SELECT set_config('work_mem', '#MB', false)",
    "SELECT set_config('work_mem', '3MB', true)",
    "RESET work_mem",
    "SET search_path TO a, \"B c\", 'd'",
    "SET search_path = \"$user\", \"user\", public",
    "SET SCHEMA 'x#'",
    "SET search_path TO DEFAULT",
    "SET search_path TO ''",
    "SELECT pg_catalog.set_config('search_path', '', false)",
    "SELECT set_config('search_path', 'a,\"B\"', false)",
    "SET DateStyle = SQL",
    "SET datestyle TO dmy",
    "SET DateStyle = 'ISO, YMD'",
    "SET LOCAL DateStyle = German",
    "RESET DateStyle",
    "SET TIME ZONE 'asia/tokyo'",
    "SET TIME ZONE -7",
    "SET TIME ZONE LOCAL",
    "SET LOCAL TIME ZONE 'UTC'",
    "SET IntervalStyle = iso_8601",
    "SET my.a = 'It''s #'",
    "SET \"my\".\"B\" = E'x\\\\y'",
    "SET my.c = $q$x\\y'$q$",
    "SELECT set_config('my.d', '\u{20ac}', false)",
    "SELECT set_config('my.a', NULL, false), set_config('my.c', 'z', true)",
    "RESET my.a",
    "RESET ALL",
    "DISCARD ALL",
    "SET ROLE app",
    "SET ROLE NONE",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION app",
    "SET SESSION AUTHORIZATION other",
    "SET SESSION AUTHORIZATION DEFAULT",
    "RESET SESSION AUTHORIZATION",
    "SET enable_seqscan = off",
    "SET enable_seqscan = DEFAULT",
    "SET standard_conforming_strings = off",
    "SET standard_conforming_strings TO ON",
    "SET client_encoding = 'latin1'",
    "SET NAMES 'utf8'",
    "SET NAMES",
    "SET bytea_output = escape",
    "SET extra_float_digits = -#",
    "SET seq_page_cost = 1.50",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET default_transaction_read_only = on",
    "RESET default_transaction_read_only",
    "SET application_name = 'app #'",
    "SET log_statement = 'ddl'",
    "SET default_text_search_config = 'pg_catalog.german'",
    // Their values are not in the text.
    "SELECT set_config('work_mem', # || 'MB', false)",
    "SELECT set_config('my.a', 'It''s ' || #, false)",
    "SELECT set_config('DateStyle', 'SQL, ' || 'YMD', false)",
    "SELECT set_config('search_path', 'a, ' || '\"B c\"', false)",
    "SELECT set_config('role', 'a' || 'pp', false)",
    "SELECT set_config('seq_page_cost', '1.2' || '5', false)",
    "DO $$ BEGIN SET my.b = 'x'; SET bytea_output = escape; END $$",
];

/// Returns one statement, or a few in one text.
pub(crate) fn text(mut below: impl FnMut(usize) -> usize) -> String {
    let count = if below(4) == 0 { 2 + below(3) } else { 1 };
    let mut texts = Vec::new();
    for _ in 0..count {
        let number = below(10).to_string();
        texts.push(TEXTS[below(TEXTS.len())].replace('#', &number));
    }
    texts.join("; ")
}

/// Returns whether a text cannot be tracked for a client with a startup message of its own. A
/// function may reset a setting without a visible sign. Within one text, a RESET restores the
/// server's default; a partial `DateStyle` and the encoding of a character depend on it.
pub(crate) fn cannot_be_followed(text: &str) -> bool {
    let resets = ["RESET", "SET NAMES;"]
        .iter()
        .any(|reset| text.contains(reset));
    let depends = text.to_lowercase().contains("datestyle") || !text.is_ascii();
    text.contains("back()") || text.contains(';') && resets && depends
}
