//! Reads SQL statements of PostgreSQL, MySQL and MariaDB: their kinds, the objects that they name,
//! their effects on data, and the session state that they leave. Pure: no socket, no clock.
//!
//! The modules in the order in which they build on each other:
//!
//! 1. [`postgres`] and [`mysql`] split a text into tokens as the server's own scanner does
//!    ([`token`], [`name`], `hint`), and read facts from them in one pass: `facts` returns the
//!    kinds of the statements and the names in them, without a syntax tree ([`facts`]). Constructs
//!    that are not understood are reported as unknown, and the router treats those as writes.
//! 2. [`catalog`] (PostgreSQL) and [`routines`] (MySQL) contain the functions, views, tables and
//!    triggers that the names may mean, as the control plane has read them from the servers.
//! 3. [`session_state`] combines both: its `analysis` returns what a text does, in the words of
//!    `policy` (`route::StatementClass`, `pins::Pin`), and its `SessionState` follows the settings
//!    that a client has made.
//! 4. [`digest`] and `template` compare texts: texts that differ in literals only have one
//!    digest, and a template finds those that one analysis is valid for.
//!
//! Sessions of `proxy` call this crate for each statement, and `explain` calls it for an operator.
//! Both dialects share the tokens and keywords (`token/`), the facts and the scanner (`facts/`),
//! and the collection of effects (`session_state/effects.rs`). A dialect has its kinds of
//! statements in `facts.rs`, the roles of its words in `words.rs`, its part of the scanner in
//! `scan.rs`, and what each kind means to the router and leaves in the session in
//! `analysis/rules.rs`.
#![forbid(unsafe_code)]
// No text may cause a panic here. Tests may panic.
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

pub mod catalog;
pub mod digest;
pub mod facts;
mod hint;
pub mod mysql;
pub mod name;
pub mod postgres;
pub mod routines;
pub mod session_state;
mod template;
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
