//! What a SQL text *is*, by its tokens: no tree, no catalog; only several statements allocate.
//!
//! [`postgres::facts`] reads a text once, as the server's own scanner would, and says what kind of
//! statements it holds, what they name and what else about them decides where they may run. What
//! is not understood is said to be unknown, and whoever decides takes that for a write.

pub mod digest;
pub mod facts;
pub mod hint;
pub mod mysql;
pub mod name;
pub mod postgres;
pub mod template;
pub mod token;

/// How a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// As MySQL or MariaDB does.
    Mysql(mysql::LexerModes),
    /// As PostgreSQL does.
    Postgres {
        /// The session's `standard_conforming_strings` is off.
        backslashes: bool,
    },
}
