//! What the participants ask of a client, whatever protocol it speaks.

use std::net::SocketAddr;
use std::time::Duration;

use super::abrupt_clients::Cruelty;
use super::failure::Failure;
use super::writer::Act;

/// Rows that nobody has ever committed.
pub(super) const GHOSTS: &str = "SELECT tag FROM chaos_ghost";

/// What a reader that prepares nothing asks, behind its word.
pub(super) const READ: &str = "concat(count(*)) FROM chaos WHERE session = 1 AND id < 100";

/// Values as text; NULL is `None`.
pub(super) type Row = Vec<Option<String>>;

/// An answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(pub(super) Vec<Row>);

impl Rows {
    /// The value in this row and column.
    pub(super) fn value(&self, row: usize, column: usize) -> Option<&str> {
        self.0.get(row)?.get(column)?.as_deref()
    }
}

/// What nobody may have left on a server when all clients have gone.
pub(super) struct Leftover {
    pub(super) what: &'static str,
    /// Counts them.
    pub(super) query: String,
    /// How many there may be; `None`: as many as the pool has connections.
    pub(super) most: Option<u32>,
}

/// A session that is logged in, and sees every message.
pub(super) trait Client: Sized + 'static {
    /// What the sessions at a server are doing, to be read by people.
    const SESSIONS: &'static str;

    /// Session, id and tag of every row, and the number that the server has given it, if any.
    const ROWS: &'static str;
    /// The port of the server that answers.
    const PORT: &'static str;

    /// After a failed command these make the session one without a transaction.
    const AFTER_FAILURE: &'static [&'static str];

    /// Statements that make the tables.
    fn tables() -> Vec<String>;

    /// The ways in which rows are written.
    fn acts() -> &'static [Act<Self>];

    /// What is done to connections, by name.
    fn cruelties() -> &'static [(&'static str, Cruelty<Self>)];

    /// What must not be on a server when all have gone.
    fn leftovers() -> Vec<Leftover>;

    /// Logs in.
    fn connect(address: SocketAddr, name: &str, limit: Duration) -> Result<Self, Failure>;

    /// The answer to one statement.
    fn ask(&mut self, text: &str) -> Result<Rows, Failure>;

    /// The same of a statement that is prepared for it; all of its values are texts.
    fn ask_prepared(&mut self, text: &str) -> Result<Rows, Failure>;

    /// The same in a transaction that says that it writes nothing.
    fn ask_read_only(&mut self, text: &str) -> Result<Rows, Failure>;

    /// Prepares what [`Client::read`] executes.
    fn prepare_read(&mut self) -> Result<(), Failure>;

    /// A row with this word and how many rows there are, by what was prepared.
    fn read(&mut self, word: &str) -> Result<Rows, Failure>;

    /// Settings that must follow this session, and no other one.
    fn mark(&mut self, name: &str) -> Result<(), Failure>;

    /// Pairs of such a setting as it must be, and as it is.
    fn marks(&mut self, name: &str) -> Result<Vec<(String, Option<String>)>, Failure>;

    /// What has come that nobody asked for.
    fn strays(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Leaves as clients do.
    fn leave(self);
}
