//! Session state of a MySQL client: the settings that follow it between server connections, the
//! state that pins it to one, and the results that its last statement left.
//!
//! Uses no sockets and no clock. Another client's results are never visible ([`settings_diff`]).
//!
//! Followed, and restored on the next connection:
//! - session variables, `SET NAMES`, autocommit: as reported by the server's trackers
//!   ([`FOLLOWED`], and the module `variables`);
//! - the schema: as reported by the tracker;
//! - `SET @a = literal` and `timestamp`: parsed from the text;
//! - user variables with values of expressions: the server is asked for them when another client
//!   needs the connection ([`SessionState::user_variable_question`]);
//! - variables that MariaDB does not report: it is asked before the connection is released;
//! - `session_track_*`: Evenkeel's trackers are enabled, and their reports are filtered by the
//!   client's ([`SessionState::keeps`]). A statement that names them runs with the client's
//!   trackers ([`SessionState::show_trackers`]); what it has set is queried afterwards.
//!
//! Pins until the state ends:
//! - a transaction, XA; autocommit off: from the first statement to COMMIT or ROLLBACK;
//! - `SET TRANSACTION`, `SET @@transaction_isolation`: until the next transaction has ended;
//! - temporary tables, PREPARE, HANDLER: until all known ones are dropped or closed;
//! - GET_LOCK that returned 1: until as many RELEASE_LOCKs returned 1, or RELEASE_ALL_LOCKS;
//! - LOCK TABLES, FLUSH … WITH READ LOCK, LOCK INSTANCE, BACKUP STAGE: until unlocked;
//! - `sql_log_bin`, `gtid_next`, `sql_auto_is_null`: until they have their usual values again.
//!
//! Pins until a reset: user variables that a routine sets; CALL, and functions with unread bodies;
//! sequences, `rand_seed1`, `insert_id`, `profiling`, `optimizer_trace`. Permanent pins, so that
//! the connection is closed with its client: roles, COMMIT RELEASE, and unknown statements.
//!
//! Results of the previous statement: LAST_INSERT_ID() is stored and restored ([`ResultReads`],
//! [`SessionState::state_query`]). For warnings, FOUND_ROWS() and ROW_COUNT() the connection is
//! kept for a short time ([`SessionState::hold`]).
//!
//! No effect on the session: SET GLOBAL, SET PASSWORD, grants, KILL.

mod analysis;
mod client_trackers;
mod collations;
mod connection;
mod diff;
mod facts;
mod leaky_variables;
mod previous_results;
mod server_identity;
mod session;
mod sync_wait;
#[cfg(test)]
mod tests;
mod values;
mod variables;

pub(in crate::session_state) use facts::SettingFacts;

pub use analysis::{
    CatalogLookup, DataChange, Effect, EffectKind, Kill, RoutingHint, SessionObject, TextAnalysis,
    TextForm, TransactionPart, Value, bound_by_body, parts, read,
};
pub use client_trackers::trackers;
pub use connection::{ExportedState, ServerSessionState};
pub use diff::{SettingsDiff, settings_diff};
pub use leaky_variables::{LEAKY_VARIABLES, disable_leaky_variables};
pub use previous_results::{HoldPolicy, ObservedResultReads, ResultReads};
pub use server_identity::{IDENTIFYING, identity};
pub use session::{
    InitialSettings, SessionState, StateQuery, StatementReply, TrackerRestore,
    UserVariableQuestion, UserVariableRows,
};
pub use sync_wait::{CLUSTERING, loses_sync_wait_on_reset};
pub use values::status_of;
pub use variables::{FOLLOWED, is_followed};
