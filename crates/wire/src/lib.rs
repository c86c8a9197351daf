//! Implements the wire protocols: pure codecs between bytes and borrowed frames, without socket,
//! clock, log or randomness.
#![forbid(unsafe_code)]
// No input of a peer may cause a panic here. Tests may panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod gtid;
pub mod lsn;
pub mod mysql;
pub mod postgres;
pub mod proxy_header;
pub mod stream_editor;

/// Protocol of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlProtocol {
    /// PostgreSQL's protocol 3.
    Postgres,
    /// Protocol of MySQL and MariaDB.
    Mysql,
}

impl SqlProtocol {
    /// Returns the word in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            SqlProtocol::Postgres => "postgres",
            SqlProtocol::Mysql => "mysql",
        }
    }

    /// Returns the name for messages.
    pub const fn in_words(self) -> &'static str {
        match self {
            SqlProtocol::Postgres => "PostgreSQL",
            SqlProtocol::Mysql => "MySQL",
        }
    }
}
