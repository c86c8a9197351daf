//! What a server is asked about a session before its connection is given away.

/// A text of ours; its trackers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateQuery {
    /// The collation, and with it the character set.
    Collation,
    /// LAST_INSERT_ID().
    InsertId,
    /// Both.
    Both,
    /// Both where a variable is told by its own name only if our trackers name it first. They also
    /// forget what they have not told yet.
    BothByName,
}

impl StateQuery {
    /// What the server is to run.
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

    /// Whether [`trackers`](super::super::trackers) must be run behind it.
    #[must_use]
    pub const fn moves_trackers(self) -> bool {
        matches!(self, StateQuery::BothByName)
    }
}
