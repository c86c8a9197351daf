//! Comments, strings and names as MySQL's lexer reads them.

use super::*;

/// Returns the tokens as written.
fn tokens(text: &str, modes: LexerModes) -> Vec<String> {
    let mut tokens = Tokens::new(text.as_bytes(), modes);
    let mut all = Vec::new();
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return all,
            TokenKind::Broken => all.push("BROKEN".to_owned()),
            _ => {
                let written = token.span.of(text.as_bytes());
                all.push(String::from_utf8_lossy(written).into_owned());
            }
        }
    }
}

#[track_caller]
fn check(text: &str, modes: LexerModes, expect: &[&str]) {
    assert_eq!(tokens(text, modes), expect, "{text}");
}

#[test]
fn comments_are_passed_over() {
    check("a -- b\nc", MYSQL, &["a", "c"]);
    check("a --b", MYSQL, &["a", "-", "-", "b"]);
    check("a --", MYSQL, &["a"]);
    check("5--1", MYSQL, &["5", "-", "-", "1"]);
    check("a # b\nc", MYSQL, &["a", "c"]);
    check("a/* b /* c */d", MYSQL, &["a", "d"]);
    check("a /* b", MYSQL, &["a", "BROKEN"]);
    check("a /*+ NO_INDEX(t) */ b", MYSQL, &["a", "b"]);
    check("a /*+ QB_NAME(`x`) */ b", MYSQL, &["a", "b"]);
}

#[test]
fn a_hint_that_may_go_on_behind_its_end_or_finds_what_others_inserted_is_not_passed_over() {
    for hint in [
        "/*+ QB_NAME(`*/ `) */",
        "/*+ QB_NAME('*/ ') */",
        "/*+ SET_VAR(Sql_Auto_Is_Null=1) */",
    ] {
        assert_eq!(tokens(hint, MYSQL), ["BROKEN"], "{hint}");
    }
    check(
        "a /*+ SET_VAR(sql_auto_is_null=1) */ b",
        MARIADB,
        &["a", "b"],
    );
}

#[test]
fn versioned_comments_are_run_by_those_they_are_meant_for() {
    check("a /*! b */ c", MYSQL, &["a", "b", "c"]);
    check("a /*!40101 b */ c", MYSQL, &["a", "b", "c"]);
    check("a /*!80016 b */ c", MYSQL, &["a", "b", "c"]);
    check("a /*!99999 b */ c", MYSQL, &["a", "c"]);
    check("a /*!080016 b */ c", MYSQL, &["a", "b", "c"]);
    check("a /*!50701 b */ c", MARIADB, &["a", "c"]);
    check("a /*!100500 b */ c", MARIADB, &["a", "b", "c"]);
    check("a /*M! b */ c", MARIADB, &["a", "b", "c"]);
    check("a /*M!110000 b */ c", MARIADB, &["a", "c"]);
    check("a /*M! b */ c", MYSQL, &["a", "c"]);
    check("a /*!99999 b /* d */ e */ c", MYSQL, &["a", "c"]);
    check("a /*!40101 b /* d */ e */ c", MYSQL, &["a", "b", "e", "c"]);
    check("a /*! b", MYSQL, &["a", "b", "BROKEN"]);
}

#[test]
fn of_a_comment_that_may_be_run_or_not_nothing_is_certain() {
    check("a /*!080016b */ c", MYSQL, &["a", "BROKEN", "b", "c"]);
    check("a /*!100500b */ c", MARIADB, &["a", "b", "c"]);
    for modes in [MYSQL, MARIADB] {
        check("a /*! b /*! c */ d", modes, &["a", "b", "BROKEN", "c", "d"]);
    }
}

#[test]
fn the_blank_beyond_ascii_is_looked_for_outside_of_quotes() {
    for (name, nbsp) in [
        (b"latin1".as_slice(), 0xa0),
        (b"KOI8R", 0x9a),
        (b"utf8mb4", 0),
        (b"gbk", 0),
        (b"", 0),
    ] {
        assert_eq!(nbsp_byte(name), nbsp);
    }
    let modes = LexerModes {
        nbsp_byte: 0xa0,
        ..MYSQL
    };
    assert!(has_nbsp_outside_quotes(b"SELECT\xa01", modes));
    assert!(!has_nbsp_outside_quotes(b"SELECT '\xa0' /* \xa0 */", modes));
    assert!(!has_nbsp_outside_quotes(b"SELECT\xa01", MYSQL));
}

#[test]
fn a_comment_that_only_some_servers_run_makes_no_read() {
    for text in [
        "/*!99999 EXPLAIN */ DELETE FROM t",
        "SELECT 1 /*!80000 FOR UPDATE */",
        "SELECT 1 /*M! FOR UPDATE */",
        "/*M! DELETE FROM t */",
        "SELECT 1; /*!99999 DELETE FROM t */",
    ] {
        for modes in [MYSQL, MARIADB] {
            assert!(!facts(text.as_bytes(), modes).only_reads(), "{text}");
        }
    }
    assert!(facts(b"SELECT /*!40001 SQL_NO_CACHE */ * FROM t", MYSQL).only_reads());
}

#[test]
fn strings_end_where_the_sql_mode_says() {
    check(r"'a\'b' c", MYSQL, &[r"'a\'b'", "c"]);
    let plain = LexerModes {
        no_backslash_escapes: true,
        ..MYSQL
    };
    check(r"'a\' c", plain, &[r"'a\'", "c"]);
    check("'a''b' 'c'", MYSQL, &["'a''b'", "'c'"]);
    check("\"a\"\"b\"", MYSQL, &["\"a\"\"b\""]);
    check("`a``b`.`c`", MYSQL, &["`a``b`", ".", "`c`"]);
    check("'a", MYSQL, &["BROKEN"]);
    check(r"'a\", MYSQL, &["BROKEN"]);
    check(
        "N'a' x'41' b'1' _utf8'a'",
        MYSQL,
        &["N'a'", "x'41'", "b'1'", "_utf8", "'a'"],
    );
    let mut tokens = Tokens::new(b"\"a\"", MYSQL);
    assert_eq!(tokens.next_token().kind, TokenKind::String);
    let ansi = LexerModes {
        ansi_quotes: true,
        ..MYSQL
    };
    let mut tokens = Tokens::new(b"\"a\\\"", ansi);
    assert_eq!(tokens.next_token().kind, TokenKind::QuotedName);
    assert_eq!(tokens.next_token().kind, TokenKind::End);
    let all: [&str; 4] = [r#"@"a\""#, r"@'b\''", r"@`c\`", "d"];
    check(&all.join(" "), ansi, &all);
    check(r#"@"a\"" d"#, MYSQL, &[r#"@"a\"""#, "d"]);
}

#[test]
fn numbers_names_and_variables_are_told_apart() {
    check(
        "1 1.5 .5 1e5 1.e-3 0x1F 0b01",
        MYSQL,
        &["1", "1.5", ".5", "1e5", "1.e-3", "0x1F", "0b01"],
    );
    check("1a t.1b 0xg", MYSQL, &["1a", "t", ".", "1b", "0xg"]);
    check(
        "@a @a.b$ @'x y' @@session.a @@`b`",
        MYSQL,
        &["@a", "@a.b$", "@'x y'", "@@session.a", "@@`b`"],
    );
    check("@a:=1", MYSQL, &["@a", ":=", "1"]);
    check("é ?", MYSQL, &["é", "?"]);
    check("a\0b", MYSQL, &["a", "BROKEN", "b"]);
}

#[test]
fn names_and_literals_are_read_as_the_server_does() {
    assert_eq!(identifier(b"`a``b`").as_ref(), b"a`b");
    assert_eq!(identifier(b"Ab").as_ref(), b"Ab");
    assert_eq!(literal(b"'a''b'", MYSQL).unwrap().as_ref(), b"a'b");
    assert_eq!(literal(b"'a\\nb'", MYSQL), None);
    assert_eq!(literal(b"-5", MYSQL).unwrap().as_ref(), b"-5");
}

#[test]
fn a_text_that_is_cut_anywhere_is_read_all_the_same() {
    let text = "SELECT /*!50000 a */ 'b\\'', `c`, @@session.d, x'1' -- e\n FROM t # f";
    for cut in 0..text.len() {
        let _ = facts(&text.as_bytes()[..cut], MYSQL);
    }
}
