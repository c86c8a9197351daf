//! Differences between texts that count for a digest and that do not, in both dialects.

use super::*;

const MYSQL: Dialect = Dialect::Mysql(mysql::LexerModes {
    ansi_quotes: false,
    no_backslash_escapes: false,
    nbsp_byte: 0,
    mariadb: false,
    version: 80_403,
});

const POSTGRES: Dialect = Dialect::Postgres { backslashes: false };

const BOTH: [Dialect; 2] = [MYSQL, POSTGRES];

fn of(text: &str, dialect: Dialect) -> Digest {
    digest(text.as_bytes(), dialect)
}

fn shown(text: &str, dialect: Dialect) -> String {
    normalised(text.as_bytes(), dialect)
}

/// Asserts that all texts have one digest and the normalized text `show`.
#[track_caller]
fn alike(dialect: Dialect, show: &str, texts: &[&str]) {
    let Some(first) = texts.first() else { return };
    for text in texts {
        assert_eq!(of(text, dialect), of(first, dialect), "{text} | {first}");
        assert_eq!(shown(text, dialect), show, "{text}");
    }
}

#[test]
fn literals_blanks_comments_and_case_do_not_count() {
    for dialect in BOTH {
        let show = "select a from t where id = ? and n = ?";
        let texts = [
            "SELECT a FROM t WHERE id = 1 AND n = 'x'",
            "select  a\nfrom t /* c */ where id=22 and n= 'y''z' -- end",
            "SELECT a FROM t WHERE id = -1.5e3 AND n = 'it''s';",
            " ; select a FROM t WHERE id = + 7 AND n = '';; ",
        ];
        alike(dialect, show, &texts);
    }
}

#[test]
fn each_dialect_has_literals_of_its_own() {
    let show = "select a from t where id = ?";
    let texts = [
        "SELECT a FROM t WHERE id = \"x\"",
        "SELECT a FROM t WHERE id = 0x1F # end",
        "SELECT a FROM t WHERE id = ?",
        "SELECT a FROM t WHERE id = 'a\\'b'",
        "SELECT /*!99999 b */ a FROM t WHERE id = N'x'",
    ];
    alike(MYSQL, show, &texts);
    let texts = [
        "SELECT a FROM t WHERE id = $1",
        "SELECT a FROM t WHERE id = $q$ ; $q$",
        "SELECT a FROM t WHERE id = E'\\''",
        "SELECT a FROM t WHERE id = /* /* */ */ 1_000",
    ];
    alike(POSTGRES, show, &texts);
}

#[test]
fn a_list_of_literals_counts_as_one() {
    for dialect in BOTH {
        let show = "select * from t where id in (?)";
        let texts = [
            "select * from t where id in (1)",
            "select * from t where id in (1,2,3)",
            "select * from t where id in (1, -2, 'a', NULL, TRUE)",
            "select * from t where id in (null,1)",
        ];
        alike(dialect, show, &texts);
        let other = of("select * from t where id in (1, a)", dialect);
        assert_ne!(other, of("select * from t where id in (1)", dialect));
    }
}

#[test]
fn alike_rows_count_as_one() {
    for dialect in BOTH {
        let texts = [
            "INSERT INTO t (a, b) VALUES (1, 'x')",
            "INSERT INTO t (a, b) VALUES (1, 'x'), (2, NULL), (DEFAULT, 'z')",
        ];
        alike(dialect, "insert into t (a, b) values (?)", &texts);
        let texts = [
            "INSERT INTO t VALUES (1, now())",
            "INSERT INTO t VALUES (1, now()), (2, now()),(3,NOW())",
        ];
        alike(dialect, "insert into t values (?, now())", &texts);
        let texts = [
            "SELECT 1 FROM t WHERE (a, b) IN ((1, 2))",
            "SELECT 1 FROM t WHERE (a, b) IN ((1, 2), (3, 4), (5, 6))",
        ];
        alike(dialect, "select ? from t where (a, b) in ((?))", &texts);
        let show = shown("INSERT INTO t VALUES (1, now()), (2, 3)", dialect);
        assert_eq!(show, "insert into t values (?, now()), (?)");
    }
}

#[test]
fn a_sign_counts_only_where_it_does_not_belong_to_a_literal() {
    for dialect in BOTH {
        let texts = ["select -1", "select 1", "SELECT +1", "select 1, -2"];
        alike(dialect, "select ?", &texts);
        assert_eq!(shown("select a - 1", dialect), "select a - ?");
        assert_eq!(shown("select f(-a), 1", dialect), "select f(- a), ?");
        assert_ne!(of("select -a", dialect), of("select a", dialect));
    }
    assert_eq!(shown("select 5--a", MYSQL), "select ? - - a");
}

#[test]
fn what_is_different_has_another_digest() {
    let texts = [
        "select a from t",
        "select b from t",
        "select `A` from t",
        "select `a` from t",
        "select a, b from t",
        "select a b from t",
        "select 1, a from t",
        "select @a from t",
        "select @@a from t",
        "select a from t where b is null",
        "select a from t where b is not null",
        "select a from t; select b from t",
        "select a from t select b from t",
        "select a from a_name_longer_than_sixteen_bytes",
        "select a from a_name_longer_than_sixteen_byteS2",
        "select a < b",
        "select a <= b",
        "select a > b",
        "select (a), b",
        "select ((a), b)",
        "select ((a), b",
        "select (((a), b",
        "select last_insert_id()",
        "select last_insert_id(1)",
        "",
    ];
    for (index, text) in texts.iter().enumerate() {
        for other in &texts[..index] {
            assert_ne!(of(text, MYSQL), of(other, MYSQL), "{text} | {other}");
        }
    }
    let texts = ["select \"A\"", "select \"a\"", "select a", "select a[1]"];
    for (index, text) in texts.iter().enumerate() {
        for other in &texts[..index] {
            assert_ne!(of(text, POSTGRES), of(other, POSTGRES), "{text} | {other}");
        }
    }
}

#[test]
fn parentheses_without_end_or_beginning_and_too_deep_ones_count() {
    let deep = |count: usize| format!("select {}a", "(".repeat(count));
    for dialect in BOTH {
        for count in 1..40 {
            assert_ne!(of(&deep(count), dialect), of(&deep(count - 1), dialect));
        }
        assert_ne!(of("select a)", dialect), of("select a", dialect));
    }
}

#[test]
fn a_text_is_shown_as_people_write_it() {
    for (text, show) in [
        (
            "SELECT COUNT(*), t.`a` , @x:=1 FROM `db`.t AS T WHERE a<=>b AND c->>'$.d'>=2",
            "select count(*), t.`a`, @x := ? from `db`.t as t where a <=> b and c ->> ? >= ?",
        ),
        ("SELECT 'a' ; DELETE FROM t", "select ?; delete from t"),
    ] {
        assert_eq!(shown(text, MYSQL), show);
    }
    let text = "SELECT \"A\"::text[], b[1] FROM t WHERE c ->> 'd' <> 'e'";
    let show = "select \"A\"::text[], b[?] from t where c ->> ? <> ?";
    assert_eq!(shown(text, POSTGRES), show);
}

#[test]
fn no_literal_is_shown_even_where_the_text_is_broken() {
    for dialect in BOTH {
        for text in [
            "select 'secret",
            "select 1, 'a', 'secret\\'",
            "select 1 /* secret",
        ] {
            assert!(!shown(text, dialect).contains("secret"), "{text}");
        }
    }
}

#[test]
fn the_text_that_is_shown_has_the_same_digest() {
    for text in [
        "SELECT a, -1 FROM t WHERE b IN (1, 2) OR c = - d",
        "INSERT INTO t VALUES (1, now()), (2, now()); SELECT 5--a /*!40101 , b */",
        "SELECT `a``b` . c , @`x y` FROM t WHERE a<b ORDER BY 1,2",
        "é / *",
    ] {
        let show = shown(text, MYSQL);
        assert_eq!(of(&show, MYSQL), of(text, MYSQL), "{text} | {show}");
        assert_eq!(shown(&show, MYSQL), show);
    }
}

#[test]
fn a_digest_is_written_and_read_as_sixteen_digits() {
    let one = Digest(0xfe);
    assert_eq!(one.to_string(), "00000000000000fe");
    assert_eq!("00000000000000FE".parse(), Ok(one));
    for wrong in [
        "",
        "fe",
        "+0000000000000fe",
        "00000000000000fg",
        "000000000000000fe",
    ] {
        assert_eq!(wrong.parse::<Digest>(), Err(NoDigest), "{wrong}");
    }
}

/// Operators keep digests in their files: a change of these numbers would break their rules.
#[test]
fn the_numbers_stay_as_they_are() {
    let mysql = of("SELECT c FROM sbtest1 WHERE id = 1", MYSQL);
    let postgres = of(
        "SELECT abalance FROM pgbench_accounts WHERE aid = 1",
        POSTGRES,
    );
    assert_eq!(mysql.to_string(), "045d9735848c4353");
    assert_eq!(postgres.to_string(), "667b42c4901e2d97");
}
