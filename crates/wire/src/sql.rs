//! Classifies SQL texts by their tokens, without syntax tree or catalog; allocates only for several
//! statements.
//!
//! [`postgres::facts`] reads a text once, as the server's own scanner would. It returns the kinds
//! of the statements, the names in them, and other facts that decide which servers may execute
//! them. Constructs that are not understood are reported as unknown, and the router treats those as
//! writes.

pub mod digest;
pub mod facts;
pub mod hint;
pub mod mysql;
pub mod name;
pub mod postgres;
pub mod template;
pub mod token;

/// SQL dialect of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// MySQL or MariaDB, with the lexer modes of the session.
    Mysql(mysql::LexerModes),
    /// PostgreSQL.
    Postgres {
        /// True if the session's `standard_conforming_strings` is off.
        backslashes: bool,
    },
}
