//! Texts that only the server's own lexer reads correctly: strings, comments, dollars, semicolons.

use super::*;

#[test]
fn semicolons_count_only_outside_strings_comments_and_bodies() {
    for (text, count) in [
        ("", 0),
        (" ; ; ", 0),
        ("SELECT 1;", 1),
        ("SELECT 1; SELECT 2;;SELECT 3", 3),
        (
            "SELECT ';', \";\", $$;$$, $a$;$$;$a$ -- ;\n /* ; /* ; */ ; */",
            1,
        ),
        ("SELECT 'it''s;'; SELECT 2", 2),
        ("SELECT E'it\\';'; SELECT 2", 2),
        ("SELECT 'it\\'; SELECT 2", 2),
        ("SELECT e'a'\n  'b\\';'; SELECT 2", 2),
        ("SELECT E'a' -- c\n 'b\\';'; SELECT 2", 2),
        ("SELECT E'a' 'b\\'; SELECT 2", 2),
        // A string continues after a newline, with the escapes of its first part.
        ("SELECT E'a'\n'b\\'; DELETE FROM t; --'", 1),
        ("SELECT E'a' -- c\n -- d\n 'b\\'; DELETE FROM t; --'", 1),
        ("SELECT 'a'\n'b\\'; DELETE FROM t; --'", 2),
        ("SELECT U&'\\'; SELECT 2", 2),
        ("SELECT a$b$ ; SELECT $b$ ; $b$", 2),
        ("SELECT $1$2; SELECT 1", 2),
        ("SELECT 1 /* ; */ -- ;", 1),
        (
            "CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2); SELECT 3",
            2,
        ),
        (
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN a THEN 1 END; \
             END; COMMIT",
            2,
        ),
        ("BEGIN; SELECT 1; END", 3),
    ] {
        assert_eq!(of(text).count(), count, "{text}");
    }
}

#[test]
fn backslashes_escape_in_plain_strings_only_when_the_session_says_so() {
    let text = b"SELECT 'a\\'; DELETE FROM t; --'";
    assert_eq!(facts(text, false).count(), 2);
    assert_eq!(facts(text, true).count(), 1);
    assert!(!facts(text, false).only_reads());
    assert!(facts(text, true).only_reads());
}

#[test]
fn operators_end_where_a_comment_begins() {
    for text in [
        "SELECT 1 +-- INTO x\n 2",
        "SELECT 1 */* FOR UPDATE */ 2",
        "SELECT 1<-/* INTO x */1",
        "SELECT a@>b, c->>'d', e #>> '{}', f ?| g, h !~~* i, 2^3 FROM t",
        "SELECT a:b, c := d, e=>f",
    ] {
        assert_eq!(one(text).traits, StatementTraits::NONE, "{text}");
        assert!(of(text).only_reads(), "{text}");
    }
    assert!(!of("SELECT 1 --/* \n INTO x --*/").only_reads());
}

#[test]
fn numbers_end_where_words_begin() {
    // Servers before 15 read `1into` as two words.
    for text in [
        "SELECT 1INTO x",
        "SELECT 1.5into x",
        "SELECT 1e5into x",
        "SELECT .5into x",
    ] {
        assert!(one(text).traits.any(StatementTraits::SELECT_INTO), "{text}");
    }
    let text = "SELECT 1_000, 0x1F, 0b01, 0o17, 1.e5, 1e-5, a[1..2], $1";
    assert_eq!(one(text).traits, StatementTraits::NONE);
}

#[test]
fn a_text_without_its_end_is_broken_and_no_read() {
    for text in [
        "SELECT 'a",
        "SELECT \"a",
        "SELECT $$a",
        "SELECT /* a",
        "SELECT E'\\",
        "SELECT $x",
    ] {
        assert!(one(text).traits.any(StatementTraits::BROKEN), "{text}");
        assert!(!of(text).only_reads(), "{text}");
    }
}

#[test]
fn bytes_that_are_no_text_do_no_harm() {
    for text in [
        &b"\xff\xfe"[..],
        b"SELECT \xc3\xa4(1)",
        b"\0SELECT",
        b"select 1\0; delete",
    ] {
        let _ = facts(text, false);
    }
    assert_eq!(facts(b"SELECT 1\0; DELETE", false).count(), 1);
    let text = b"SELECT \xc3\xa4(1)";
    let facts = facts(text, false);
    let statement = facts.single().unwrap();
    assert!(statement.calls(text, b"\xc3\xa4"));
}

#[test]
fn identifiers_are_folded_unquoted_and_cut() {
    assert_eq!(identifier(b"AbC").as_ref(), b"abc");
    assert_eq!(identifier(b"\"A\"\"b\"").as_ref(), b"A\"b");
    let long = "x".repeat(70);
    assert_eq!(identifier(long.as_bytes()).len(), 63);
    assert_eq!(literal(b"'it''s'").unwrap().as_ref(), b"it's");
    assert_eq!(literal(b"-5").unwrap().as_ref(), b"-5");
    assert_eq!(literal(b"On").unwrap().as_ref(), b"on");
    assert_eq!(literal(b"''").unwrap().as_ref(), b"");
    for text in ["E'\\n'", "'a'\n'b'", "U&'x'", "$$x$$", "b'1'"] {
        assert_eq!(literal(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn encodings_with_ascii_bytes_inside_characters_are_not_safe() {
    assert!(
        encoding_is_safe(b"UTF8") && encoding_is_safe(b"LATIN1") && encoding_is_safe(b"EUC_JP")
    );
    assert!(!encoding_is_safe(b"SJIS") && !encoding_is_safe(b"gbk") && !encoding_is_safe(b"BIG5"));
}

#[test]
fn every_beginning_of_a_text_is_read_without_harm() {
    let text = "WITH x(a) AS (SELECT $1, E'\\'' \n '', $q$ ; $q$ /* /* */ */) -- c\n \
                SELECT \"a\"\"b\", U&'x', f(1.5e-3)::numeric(1) FROM s.t FOR UPDATE; SET a = 'b'";
    for cut in 0..=text.len() {
        let facts = of(&text[..cut]);
        assert!(facts.count() <= 2);
        for statement in facts.statements() {
            assert!(statement.span.end as usize <= cut);
        }
    }
}
