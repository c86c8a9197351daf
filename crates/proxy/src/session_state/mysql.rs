//! What follows a client of a MySQL service from server to server, what binds it to one, and what
//! is put right when it asks about a statement before. Pure: no sockets, no clock.
//!
//! Followed, and put in place on the next connection:
//! - session variables, `SET NAMES`, autocommit: as the server's trackers tell ([`FOLLOWED`], and
//!   the module `variables`);
//! - the schema: as the tracker tells;
//! - `SET @a = literal` and `timestamp`: by their text;
//! - `session_track_*`: ours are on, and what they tell is filtered by the client's
//!   ([`Journal::keeps`]); a statement that names them runs with the client's in their place
//!   ([`Journal::show_trackers`]), and what it has set is asked for behind it.
//!
//! Binding until it is over:
//! - a transaction, XA; autocommit off from the first statement to COMMIT or ROLLBACK;
//! - `SET TRANSACTION`, `SET @@transaction_isolation`: until the next transaction has ended;
//! - temporary tables, PREPARE, HANDLER: until all that are known are gone;
//! - GET_LOCK: until as many RELEASE_LOCKs of that name, or RELEASE_ALL_LOCKS;
//! - LOCK TABLES, FLUSH … WITH READ LOCK, LOCK INSTANCE, BACKUP STAGE: until unlocked;
//! - `sql_log_bin`, `gtid_next`, `profiling`, `optimizer_trace`, `sql_auto_is_null`: until they are
//!   back.
//!
//! Binding until a reset: other assignments to user variables; CALL and functions that nobody has
//! read; sequences, `rand_seed1`, `insert_id`. Binding for ever, so that the connection ends with
//! its client: roles, COMMIT RELEASE, and what is not known.
//!
//! What the next statement may ask: LAST_INSERT_ID() is remembered and put back ([`Needs`],
//! [`Journal::question`]); for warnings, FOUND_ROWS() and ROW_COUNT() the connection is kept for a
//! moment ([`Journal::hold`]). Another client's is never seen ([`difference`]).
//!
//! Harmless to the session: SET GLOBAL, SET PASSWORD, grants, KILL.

mod analysis;
mod client_trackers;
mod collations;
mod connection;
mod diff;
mod facts;
mod information;
mod leaky_variables;
mod server_identity;
mod session;
mod sync_wait;
#[cfg(test)]
mod tests;
mod values;
mod variables;

pub(in crate::session_state) use facts::Facts;

pub use analysis::{
    CatalogLookup, Effect, EffectKind, Kill, RoutingHint, SessionObject, TextAnalysis, Value,
    bound_by_body, parts, read,
};
pub use client_trackers::trackers;
pub use connection::{ExportedState, ServerSessionState};
pub use diff::{SettingsDiff, settings_diff};
pub use information::{HoldPolicy, InfoNeeds, InfoUsage};
pub use leaky_variables::{LEAKY_VARIABLES, disable_leaky_variables};
pub use server_identity::{IDENTIFYING, identity};
pub use session::{InitialSettings, SessionState, StateQuery, StatementReply, TakeBack};
pub use sync_wait::{CLUSTERING, loses_sync_wait_on_reset};
pub use values::status_of;
pub use variables::{FOLLOWED, is_followed};
