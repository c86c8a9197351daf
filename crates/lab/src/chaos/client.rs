//! Defines the operations that the participants need of a client, for any protocol.

use std::net::SocketAddr;
use std::time::Duration;

use super::abrupt_clients::AbruptAction;
use super::failure::Failure;
use super::writer::WriteMethod;

/// Query for rows that no session has ever committed.
pub(super) const GHOSTS: &str = "SELECT tag FROM chaos_ghost";

/// Query of a reader without prepared statements, after its tag.
pub(super) const READ: &str = "concat(count(*)) FROM chaos WHERE session = 1 AND id < 100";

/// Values as text; NULL is `None`.
pub(super) type Row = Vec<Option<String>>;

/// A result set.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(pub(super) Vec<Row>);

impl Rows {
    /// Returns the value in this row and column.
    pub(super) fn value(&self, row: usize, column: usize) -> Option<&str> {
        self.0.get(row)?.get(column)?.as_deref()
    }
}

/// Objects that must not remain on a server after all clients have disconnected.
pub(super) struct Leftover {
    pub(super) what: &'static str,
    /// Query that counts them.
    pub(super) query: String,
    /// Maximum count; `None`: the number of the pool's connections.
    pub(super) most: Option<u32>,
}

/// A logged-in session that sees every message.
pub(super) trait Client: Sized + 'static {
    /// Query for the activity of a server's sessions, for people to read.
    const SESSIONS: &'static str;

    /// Query for session, id and tag of every row, and the number that the server assigned to it,
    /// if any.
    const ROWS: &'static str;
    /// Expression for the port of the server that answers.
    const PORT: &'static str;

    /// Statements that end any transaction after a failed command.
    const AFTER_FAILURE: &'static [&'static str];

    /// Returns the statements that create the tables.
    fn tables() -> Vec<String>;

    /// Returns the methods of writing rows.
    fn write_methods() -> &'static [WriteMethod<Self>];

    /// Returns the abrupt actions on connections, by name.
    fn abrupt_actions() -> &'static [(&'static str, AbruptAction<Self>)];

    /// Returns the objects that must not remain on a server after all clients have disconnected.
    fn leftovers() -> Vec<Leftover>;

    /// Logs in.
    fn connect(address: SocketAddr, name: &str, answer_timeout: Duration) -> Result<Self, Failure>;

    /// Returns the answer to one statement.
    fn run_query(&mut self, text: &str) -> Result<Rows, Failure>;

    /// Returns the answer to a statement that is prepared first; all of its values are texts.
    fn run_prepared(&mut self, text: &str) -> Result<Rows, Failure>;

    /// Returns the answer to a statement in a read-only transaction.
    fn run_read_only(&mut self, text: &str) -> Result<Rows, Failure>;

    /// Prepares the statement that [`Client::read`] executes.
    fn prepare_read(&mut self) -> Result<(), Failure>;

    /// Executes the prepared statement: returns a row with this word and the number of rows.
    fn read(&mut self, word: &str) -> Result<Rows, Failure>;

    /// Changes settings that must follow this session, and no other one.
    fn mark(&mut self, name: &str) -> Result<(), Failure>;

    /// Returns pairs of expected and actual values of such settings.
    fn marks(&mut self, name: &str) -> Result<Vec<(String, Option<String>)>, Failure>;

    /// Returns unsolicited messages.
    fn unsolicited(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Disconnects in the regular way.
    fn leave(self);
}
