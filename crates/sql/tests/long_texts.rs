//! Checks that reading a text of the maximum length does not block a worker noticeably, whatever
//! the text contains: the worker's other sessions wait for that time.

use std::time::{Duration, Instant};

use evenkeel_policy::pins::Pins;
use evenkeel_policy::route::Volatility;
use evenkeel_sql::Dialect;
use evenkeel_sql::digest::digest;
use evenkeel_sql::mysql::LexerModes;
use evenkeel_sql::session_state::{analysis, mysql};

/// Maximum length of a text that sessions read.
const LENGTH: usize = 1024 * 1024;

/// Time limit without optimization, beside other tests. A time quadratic in the text's length was
/// minutes.
const LIMIT: Duration = Duration::from_secs(10);

const MARIADB: LexerModes = LexerModes {
    ansi_quotes: false,
    no_backslash_escapes: false,
    nbsp_byte: 0,
    mariadb: true,
    version: 101_119,
};

struct NothingKnown;

impl analysis::CatalogLookup for NothingKnown {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Unknown
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Unknown
    }

    fn call_pins(&self, _: &[u8]) -> Option<Pins> {
        Some(Pins::NONE)
    }
}

/// Returns `before`, followed by as many copies of `piece` as fit.
fn filled(before: &str, piece: &str) -> String {
    let times = (LENGTH - before.len()) / piece.len();
    format!("{before}{}", piece.repeat(times))
}

#[track_caller]
fn reads_in_time(what: &str, read: impl FnOnce()) {
    let begun = Instant::now();
    read();
    let taken = begun.elapsed();
    assert!(
        taken < LIMIT,
        "{taken:?} for {}…",
        &what[..what.len().min(60)]
    );
}

#[test]
fn no_text_for_postgresql_takes_the_square_of_its_length() {
    let depth = LENGTH / "set_config('',1,true)".len();
    let nested = format!(
        "select {}''{}",
        "set_config(".repeat(depth),
        ",1,true)".repeat(depth)
    );
    for text in [
        filled("", "a;"),
        filled("", "listen a;"),
        filled("", "begin;select lastval();"),
        filled("select 1 from x", ",x("),
        filled("select 1 from x", ",x as not("),
        filled(
            "select set_config('a.b','',false)",
            ",set_config('seed','',false)",
        ),
        filled("set search_path = a", ",a"),
        filled("do $$begin ", "set a;x();execute a;"),
        filled("select ", "((f(,"),
        filled("select f", "$a$b"),
        filled("", "'a'\n"),
        filled("", "/*"),
        nested,
    ] {
        reads_in_time(&text, || {
            let _ = analysis::read(text.as_bytes(), false, Some(&NothingKnown));
            let _ = analysis::parts(text.as_bytes(), false);
            let _ = digest(text.as_bytes(), Dialect::Postgres { backslashes: false });
        });
    }
}

#[test]
fn no_text_for_mysql_takes_the_square_of_its_length() {
    for text in [
        filled("", "a;"),
        filled("", "begin;"),
        filled("", "set @a=1;"),
        filled("", "lock tables a read;"),
        filled("set @a=1", ",@a=1"),
        format!(
            "select 1{}{}",
            ",1".repeat(LENGTH / 4),
            ";set a=b".repeat(900)
        ),
        filled("select 1 from x", ",x("),
        filled("select ", "get_lock(found_rows(), last_insert_id("),
        filled("prepare a from '", "begin;") + "'",
        filled("execute immediate '", "set @a=1;") + "'",
        filled("set statement a=1 for ", "set statement a=1 for "),
        filled("", "/*!50000 a"),
        filled("", "'a'\n"),
    ] {
        reads_in_time(&text, || {
            let _ = mysql::read(text.as_bytes(), MARIADB, None);
            let _ = mysql::parts(text.as_bytes(), MARIADB);
            let _ = digest(text.as_bytes(), Dialect::Mysql(MARIADB));
        });
    }
}

#[test]
fn a_text_of_more_than_a_thousand_statements_is_not_followed_one_by_one() {
    let statements = |text: String| {
        analysis::read(text.as_bytes(), false, None)
            .statements
            .len()
    };
    assert_eq!(statements("listen a;".repeat(1_000)), 1_000);
    assert_eq!(statements("listen a;".repeat(1_001)), 1);
    let statements = |text: String| mysql::read(text.as_bytes(), MARIADB, None).statements.len();
    assert_eq!(statements("begin;".repeat(1_000)), 1_000);
    assert_eq!(statements("begin;".repeat(1_001)), 1);
}

#[test]
fn a_text_that_leaves_too_much_behind_binds_and_keeps_its_hint() {
    let text = "/* evenkeel: primary */ select set_config('a.b','',false)";
    let set = |times: usize| format!("{text}{}", ",set_config('a.b','',false)".repeat(times - 1));
    let read = |times| analysis::read(set(times).as_bytes(), false, None);
    assert_eq!(read(1_000).effects.len(), 1_000);
    let too_much = analysis::TextAnalysis {
        hint: Some(analysis::RoutingHint::Primary),
        parsing_change: analysis::ParsingChange::Anything,
        may_set_search_path: true,
        may_run_later: true,
        ..analysis::TextAnalysis::unreadable()
    };
    assert_eq!(read(1_001), too_much);
    let text = format!("set @a=1{}", ",@a=1".repeat(1_000));
    let found = mysql::read(text.as_bytes(), MARIADB, None);
    assert_eq!(found, mysql::TextAnalysis::unreadable());
}

#[test]
fn rules_see_every_statement_of_a_text() {
    let text = "begin;".repeat(2_000);
    assert_eq!(analysis::parts(text.as_bytes(), false).len(), 2_000);
    assert_eq!(mysql::parts(text.as_bytes(), MARIADB).len(), 2_000);
}
