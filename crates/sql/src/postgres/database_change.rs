//! Statements that act on a whole database and require that no other session uses it.

use std::borrow::Cow;

use super::facts::StatementFacts;
use super::lexer::Tokens;
use crate::name::identifier;
use crate::postgres::string_value;
use crate::token::words as w;
use crate::token::words::{DATABASE, IF, RENAME, TABLESPACE, TEMPLATE};
use crate::token::{Token, TokenKind};

/// Effect of a statement on whole databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseChange<'a> {
    /// Database that all other sessions must leave before the statement is executed.
    pub database: Cow<'a, [u8]>,
    /// Names whose meaning changes: dropped, created, or renamed.
    pub affected_names: Vec<Cow<'a, [u8]>>,
    /// True if the database continues to exist under another name.
    pub is_rename: bool,
}

/// Parses DROP DATABASE, ALTER DATABASE … RENAME and SET TABLESPACE, and CREATE DATABASE, which
/// copies a database. Returns `None` for any other statement, or if the name is written in a form
/// that is not decoded.
#[must_use]
pub fn database_change<'a>(
    text: &'a [u8],
    statement: &StatementFacts,
    backslashes: bool,
) -> Option<DatabaseChange<'a>> {
    let sql = statement.span.of(text);
    let mut tokens = Tokens::new(sql, backslashes);
    let verb = tokens.next_token();
    if !tokens.next_token().is(DATABASE) {
        return None;
    }
    let mut reader = Reader {
        sql,
        tokens,
        backslashes,
    };
    match verb.word {
        w::DROP => reader.drop(),
        w::ALTER => reader.alter(),
        w::CREATE => reader.create(),
        _ => None,
    }
}

/// Reader of the tokens after `DATABASE`.
struct Reader<'a> {
    sql: &'a [u8],
    tokens: Tokens<'a>,
    backslashes: bool,
}

impl<'a> Reader<'a> {
    fn drop(&mut self) -> Option<DatabaseChange<'a>> {
        let mut token = self.tokens.next_token();
        let mut ahead = self.tokens.clone();
        // `if` may be the name of a database.
        if token.is(IF) && ahead.next_token().is(w::EXISTS) {
            self.tokens = ahead;
            token = self.tokens.next_token();
        }
        let database = self.name(token)?;
        Some(DatabaseChange {
            affected_names: vec![database.clone()],
            database,
            is_rename: false,
        })
    }

    fn alter(&mut self) -> Option<DatabaseChange<'a>> {
        let token = self.tokens.next_token();
        let database = self.name(token)?;
        let verb = self.tokens.next_token();
        let what = self.tokens.next_token();
        if verb.is(w::SET) && what.is(TABLESPACE) {
            return Some(DatabaseChange {
                database,
                affected_names: Vec::new(),
                is_rename: false,
            });
        }
        if !verb.is(RENAME) || !what.is(w::TO) {
            return None;
        }
        let token = self.tokens.next_token();
        let new = self.name(token)?;
        Some(DatabaseChange {
            affected_names: vec![database.clone(), new],
            database,
            is_rename: true,
        })
    }

    fn create(&mut self) -> Option<DatabaseChange<'a>> {
        let token = self.tokens.next_token();
        let affected_names = vec![self.name(token)?];
        let database = loop {
            let token = self.tokens.next_token();
            match token.kind {
                TokenKind::End | TokenKind::Semicolon => break Cow::Borrowed(DEFAULT_TEMPLATE),
                _ if token.is(TEMPLATE) => break self.template()?,
                _ => {}
            }
        };
        Some(DatabaseChange {
            database,
            affected_names,
            is_rename: false,
        })
    }

    /// Parses `[=] name`, `[=] 'name'` or `[=] DEFAULT`.
    fn template(&mut self) -> Option<Cow<'a, [u8]>> {
        let mut token = self.tokens.next_token();
        if token.kind == TokenKind::Operator {
            token = self.tokens.next_token();
        }
        match token.kind {
            _ if token.is(w::DEFAULT) => Some(Cow::Borrowed(DEFAULT_TEMPLATE)),
            TokenKind::String => string_value(token.span.of(self.sql), self.backslashes),
            _ => self.name(token),
        }
    }

    fn name(&self, token: Token) -> Option<Cow<'a, [u8]>> {
        let is_name = matches!(token.kind, TokenKind::Word | TokenKind::QuotedName);
        is_name.then(|| identifier(token.span.of(self.sql)))
    }
}

/// Database that CREATE DATABASE copies by default.
const DEFAULT_TEMPLATE: &[u8] = b"template1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::facts;

    fn read(text: &str) -> Option<(String, Vec<String>)> {
        let facts = facts(text.as_bytes(), false);
        let statement = facts.statements().next()?;
        let found = database_change(text.as_bytes(), statement, false)?;
        let word = |name: &Cow<'_, [u8]>| String::from_utf8_lossy(name).into_owned();
        let affected_names: Vec<String> = found.affected_names.iter().map(word).collect();
        assert_eq!(found.is_rename, affected_names.len() == 2, "{text}");
        Some((word(&found.database), affected_names))
    }

    #[test]
    fn the_database_is_the_one_that_is_dropped_renamed_moved_or_copied() {
        for (text, database, affected_names) in [
            ("drop database Shop", "shop", &["shop"][..]),
            (
                "DROP DATABASE IF EXISTS \"My \"\"Shop\";",
                "My \"Shop",
                &["My \"Shop"],
            ),
            ("drop database if", "if", &["if"]),
            ("drop database if exists if", "if", &["if"]),
            ("drop/**/database shop (force)", "shop", &["shop"]),
            ("drop database shop with (force)", "shop", &["shop"]),
            (
                "alter database shop rename to old",
                "shop",
                &["shop", "old"],
            ),
            ("alter database shop set tablespace fast", "shop", &[]),
            ("create database shop", "template1", &["shop"]),
            (
                "create database shop owner x encoding 'utf8'",
                "template1",
                &["shop"],
            ),
            (
                "create database shop template default",
                "template1",
                &["shop"],
            ),
            (
                "create database shop template template0",
                "template0",
                &["shop"],
            ),
            (
                "create database a with owner = b template = \"C\"",
                "C",
                &["a"],
            ),
            (
                "create database a template E'it''s' owner b",
                "it's",
                &["a"],
            ),
            (
                "create database a template = $$c$$ strategy = wal_log",
                "c",
                &["a"],
            ),
        ] {
            let affected_names = affected_names
                .iter()
                .map(|name| (*name).to_owned())
                .collect();
            let expect = Some((database.to_owned(), affected_names));
            assert_eq!(read(text), expect, "{text}");
        }
    }

    #[test]
    fn other_statements_do_not_require_an_unused_database() {
        for text in [
            "drop table database",
            "alter database shop owner to x",
            "alter database shop set search_path = a",
            "alter database shop reset all",
            "alter database shop connection limit 5",
            "alter database shop allow_connections false",
            "create table database (template int)",
            "comment on database shop is 'x'",
            "select 'drop database shop'",
            "drop database",
            "drop database 'shop'",
            "alter database shop rename",
            "create database",
            "create database a template",
            "create database a template = U&\"c\"",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
