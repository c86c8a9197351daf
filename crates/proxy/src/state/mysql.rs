//! What follows a client of a MySQL service from server to server, what binds it to one, and what
//! is put right when it asks about a statement before. Pure: no sockets, no clock.
//!
//! | state | how |
//! |---|---|
//! | session variables, `SET NAMES`, autocommit | followed: the server's trackers tell ([`FOLLOWED`], `variables`) |
//! | schema | followed: the tracker tells; COM_INIT_DB puts it in place |
//! | `SET @a = literal` | followed by its text |
//! | `timestamp` | followed by its text |
//! | `session_track_*` of the client | virtual: [`Journal::keeps`]; mixed with others it binds for ever |
//! | transaction, XA, autocommit off with a statement | binds till the server says that it is over |
//! | `SET TRANSACTION`, `SET @@transaction_isolation` | of the next transaction: binds till that is over |
//! | temporary tables, PREPARE, HANDLER | binds till all that are known are gone |
//! | GET_LOCK | binds till as many RELEASE_LOCKs of that name, or RELEASE_ALL_LOCKS |
//! | LOCK TABLES, FLUSH … WITH READ LOCK, LOCK INSTANCE, BACKUP STAGE | binds till unlocked |
//! | other assignments to user variables, CALL and functions that nobody has read | binds till reset |
//! | sequences, `rand_seed1`, `insert_id`, `sql_log_bin`, `gtid_next`, `profiling` … | binds (`variables`) |
//! | roles, what is not known | binds for ever, and the connection ends with its client |
//! | LAST_INSERT_ID() | remembered and put back where it is asked ([`Needs`], [`Journal::question`]) |
//! | warnings, FOUND_ROWS(), ROW_COUNT() | the connection is kept for a moment ([`Journal::hold`]), never another's |
//! | SET GLOBAL, SET PASSWORD, grants, KILL | harmless to the session |

mod collations;
mod differing;
mod journal;
mod leftover;
mod meaning;
mod server;
#[cfg(test)]
mod tests;
mod tracking;
mod values;
mod variables;

pub use differing::{Difference, difference};
pub use journal::{Beginning, Journal, Reply};
pub use leftover::{Asked, Hold, Needs};
pub use meaning::{Does, Effect, Hint, Kill, Lookup, Meaning, Thing, Value, bound_by_body, read};
pub use server::{Carried, OnServer};
pub use tracking::trackers;
pub use variables::FOLLOWED;
