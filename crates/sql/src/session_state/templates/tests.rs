//! Tests which texts are analyzed again, and that the cache does not change results.

use crate::mysql::LexerModes;

use super::*;
use crate::session_state::{analysis, mysql};

const WITHIN: TemplateContext = TemplateContext {
    dialect: Dialect::Postgres { backslashes: false },
    catalog: 1,
};

/// Returns whether a text is analyzed; its analysis is its length.
fn is_read(templates: &mut Templates<usize>, text: &[u8], within: TemplateContext) -> bool {
    let mut is_read = false;
    let read = || {
        is_read = true;
        text.len()
    };
    templates.analysis(text, within, |length| *length < 100, read);
    is_read
}

#[test]
fn what_differs_in_literals_only_is_read_twice_at_most() {
    let mut templates = Templates::default();
    assert!(is_read(&mut templates, b"select 1", WITHIN));
    assert!(is_read(&mut templates, b"select 2", WITHIN));
    assert!(!is_read(&mut templates, b"select 345", WITHIN));
    assert!(is_read(&mut templates, b"select '345'", WITHIN));
}

#[test]
fn what_its_meaning_hangs_on_must_be_the_same() {
    let mut templates = Templates::default();
    is_read(&mut templates, b"select 1", WITHIN);
    is_read(&mut templates, b"select 1", WITHIN);
    assert!(!is_read(&mut templates, b"select 1", WITHIN));
    let later = TemplateContext {
        catalog: 2,
        ..WITHIN
    };
    assert!(is_read(&mut templates, b"select 1", later));
    let other = TemplateContext {
        dialect: Dialect::Postgres { backslashes: true },
        ..WITHIN
    };
    assert!(is_read(&mut templates, b"select 1", other));
}

#[test]
fn what_hangs_on_its_literals_is_read_each_time() {
    let mut templates = Templates::default();
    let long = format!("select {}1", "a, ".repeat(40));
    for _ in 0..4 {
        assert!(is_read(&mut templates, long.as_bytes(), WITHIN));
    }
}

/// Reads, writes, and texts that look like them.
const TEXTS: [&str; 31] = [
    "select c from t where id = 1",
    "select c from t where id = 1 and n in ('a', 2) limit 3",
    "insert into t values (1, 'a'), (2, 'b')",
    "update t set c = 'a' where id = 1",
    "delete from t where id = 1",
    "select set_config('search_path', 'a', false)",
    "select set_config('role', 'a', 1 > 2)",
    "select set_config('a', 'b', true), c from t",
    "select current_setting('a')",
    "select nextval('a'), 1",
    "select lastval(), 'a'",
    "select pg_advisory_lock(1)",
    "select pg_notify('a', 'b')",
    "select query_to_xml('a', true, true, 'b')",
    "select dblink_exec('a', 'b')",
    "select get_lock('a', 1)",
    "select 1, get_lock('a', 1)",
    "select release_lock('a')",
    "select is_free_lock('a')",
    "select last_insert_id(1)",
    "select last_insert_id()",
    "select sleep(1), benchmark(2, 'a')",
    "select master_pos_wait('a', 1)",
    "select @a := 1",
    "select 1 into @a",
    "select 'a' into outfile 'b'",
    "select c from t where id = 1 for update",
    "with a as (select 1) select 'a' from a",
    "explain select 1",
    "kill 1",
    "set names 'a'",
];

const LITERALS: [&str; 9] = [
    "0",
    "7",
    "'x'",
    "'role'",
    "'datestyle'",
    "'pg_temp'",
    "'delete from t'",
    "''",
    "'a b'",
];

/// Returns the text with each number or string replaced by another, one at a time.
fn others(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split_inclusive([' ', '(', ')', ',']).collect();
    let mut others = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let end = part.trim_end_matches([' ', '(', ')', ',']).len();
        let (literal, behind) = part.split_at(end);
        let is_string = literal.starts_with('\'') && literal.ends_with('\'');
        let is_number = !literal.is_empty() && literal.bytes().all(|byte| byte.is_ascii_digit());
        if is_string || is_number {
            others.extend(LITERALS.iter().map(|other| {
                let mut all: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
                all[index] = format!("{other}{behind}");
                all.concat()
            }));
        }
    }
    others
}

/// Compares the analysis of a text with those of the texts that fit its template.
fn check<M: PartialEq + fmt::Debug>(
    dialect: Dialect,
    read: impl Fn(&str) -> M,
    is_fixed: impl Fn(&M) -> bool,
) {
    let mut compared = 0;
    for text in TEXTS {
        let analysis = read(text);
        if !is_fixed(&analysis) {
            continue;
        }
        let template = Template::of(text.as_bytes(), dialect).expect("it is short");
        for other in others(text) {
            if template.fits(other.as_bytes()) {
                compared += 1;
                assert_eq!(read(&other), analysis, "{other}");
            }
        }
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn what_fits_means_the_same_in_either_dialect() {
    let dialect = Dialect::Postgres { backslashes: false };
    let read = |text: &str| analysis::read(text.as_bytes(), false, None);
    check(dialect, read, analysis::TextAnalysis::is_fixed);
    let modes = LexerModes {
        mariadb: true,
        version: 101_100,
        ..LexerModes::default()
    };
    let read = |text: &str| mysql::read(text.as_bytes(), modes, None);
    check(Dialect::Mysql(modes), read, mysql::TextAnalysis::is_fixed);
}

#[test]
fn a_literal_that_is_run_is_no_other() {
    let modes = LexerModes {
        mariadb: true,
        version: 101_100,
        ..LexerModes::default()
    };
    let of = |text: &str| mysql::read(text.as_bytes(), modes, None);
    assert!(of("select 1").is_fixed());
    assert!(!of("execute immediate 'select 1'").is_fixed());
    assert!(!of("set statement max_statement_time = 1 for select 1").is_fixed());
}
