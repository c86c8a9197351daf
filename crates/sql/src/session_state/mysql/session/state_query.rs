//! Defines the queries for session state that only the server knows, run before its connection is
//! released.

/// SQL text run by Evenkeel; the trackers of its reply contain the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateQuery {
    /// The collation, and with it the character set.
    Collation,
    /// LAST_INSERT_ID().
    InsertId,
    /// The collation and LAST_INSERT_ID().
    Both,
    /// Both values, for servers that report a variable by its own name only if our trackers name it
    /// first. Setting the trackers also discards changes that they have not reported yet.
    BothByName,
}

impl StateQuery {
    /// Returns the SQL text to run.
    #[must_use]
    pub const fn text(self) -> &'static [u8] {
        match self {
            StateQuery::Collation => {
                b"SET @@session.collation_connection=@@session.collation_connection"
            }
            StateQuery::InsertId => b"SET @@session.last_insert_id=LAST_INSERT_ID()",
            StateQuery::Both => {
                b"SET @@session.collation_connection=@@session.collation_connection,\
                @@session.last_insert_id=LAST_INSERT_ID()"
            }
            StateQuery::BothByName => {
                b"SET @@session.session_track_system_variables=\
                'collation_connection,last_insert_id,*',\
                @@session.collation_connection=@@session.collation_connection,\
                @@session.last_insert_id=LAST_INSERT_ID()"
            }
        }
    }

    /// Returns whether [`trackers`](super::super::trackers) must be run after the query.
    #[must_use]
    pub const fn moves_trackers(self) -> bool {
        matches!(self, StateQuery::BothByName)
    }
}
