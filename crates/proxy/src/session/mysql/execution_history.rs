//! Records which clients executed a server's statement, and with which parameter types.
//!
//! MySQL infers the type of each `?` from executions and keeps it with the statement. After a
//! DOUBLE, it compares an integer as a DOUBLE too. Only types from the same client may have this
//! effect, as they would on a direct connection.

use evenkeel_wire::mysql::frontend::typed;

/// First MySQL version with this behavior.
const SINCE: u32 = 80_022;

/// Type code of NULL, which is compatible with any type.
const NULL: u16 = 6;

/// Executions of a statement since its server prepared it.
#[derive(Debug, Default)]
pub(crate) struct ExecutionHistory {
    by: ExecutedBy,
    /// Type of each parameter in the last execution.
    kinds: Box<[u16]>,
    /// True if the types have varied, which is only safe for a single client.
    are_mixed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ExecutedBy {
    #[default]
    Nobody,
    One(u64),
    Several,
}

/// Returns whether a server keeps the types that it infers.
pub(super) fn is_kept_by(is_mariadb: bool, version: u32) -> bool {
    !is_mariadb && version >= SINCE
}

impl ExecutionHistory {
    /// Returns whether no other client has executed the statement, so that any inferred type is
    /// acceptable.
    pub(super) fn is_only_by(&self, client: u64) -> bool {
        self.by == ExecutedBy::Nobody || self.by == ExecutedBy::One(client)
    }

    /// Returns whether the statement was executed only with these types. `named`: each type has a
    /// name.
    pub(super) fn was_so(&self, types: &[u8], named: bool) -> bool {
        let mut both = self.kinds.iter().zip(typed(types, named));
        let is_so = |known: u16, kind: u16| known == kind || known == NULL || kind == NULL;
        !self.are_mixed && both.all(|(known, (kind, _))| is_so(*known, kind))
    }

    /// Records an execution by this client with these types.
    pub(super) fn note(&mut self, client: u64, types: &[u8], named: bool) {
        if self.by == ExecutedBy::Nobody {
            self.by = ExecutedBy::One(client);
            self.kinds = typed(types, named).map(|(kind, _)| kind).collect();
            return;
        }
        if !self.is_only_by(client) {
            self.by = ExecutedBy::Several;
        }
        for (known, (kind, _)) in self.kinds.iter_mut().zip(typed(types, named)) {
            if *known != kind && kind != NULL {
                self.are_mixed |= *known != NULL;
                *known = kind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLE: [u8; 2] = [5, 0];
    const LONGLONG: [u8; 2] = [8, 0];
    const UNSIGNED: [u8; 2] = [8, 128];
    const NONE: [u8; 2] = [6, 0];

    /// Returns whether a client may execute the server's statement after the given executions.
    fn may(before: &[(u64, [u8; 2])], client: u64, types: [u8; 2]) -> bool {
        let mut executed = ExecutionHistory::default();
        for (client, types) in before {
            executed.note(*client, types, false);
        }
        executed.is_only_by(client) || executed.was_so(&types, false)
    }

    #[test]
    fn what_others_gave_of_another_type_is_no_client_s_own() {
        assert!(may(&[], 1, DOUBLE));
        assert!(may(&[(1, DOUBLE)], 1, LONGLONG), "its own");
        assert!(may(&[(1, DOUBLE), (1, LONGLONG)], 1, DOUBLE), "its own");
        assert!(may(&[(1, DOUBLE)], 2, DOUBLE));
        assert!(!may(&[(1, DOUBLE)], 2, LONGLONG));
        assert!(!may(&[(1, UNSIGNED)], 2, LONGLONG));
        assert!(!may(&[(1, DOUBLE), (2, DOUBLE)], 1, LONGLONG));
        let mixed = [(1, DOUBLE), (1, LONGLONG)];
        assert!(!may(&mixed, 2, LONGLONG), "it may be compared as a DOUBLE");
    }

    #[test]
    fn a_null_is_of_any_type() {
        assert!(may(&[(1, NONE)], 2, LONGLONG));
        assert!(may(&[(1, LONGLONG)], 2, NONE));
        assert!(!may(&[(1, NONE), (2, DOUBLE)], 3, LONGLONG));
        assert!(!may(&[(1, DOUBLE), (2, NONE)], 3, LONGLONG));
    }

    #[test]
    fn names_of_parameters_are_passed_over() {
        let mut executed = ExecutionHistory::default();
        executed.note(1, b"\x08\0\x01a\x05\0\0", true);
        assert!(executed.was_so(b"\x08\0\0\x05\0\x01b", true));
        assert!(!executed.was_so(b"\x08\0\0\x08\0\0", true));
    }

    #[test]
    fn servers_keep_what_they_infer_since_a_version_of_mysql() {
        assert!(is_kept_by(false, 80_022) && !is_kept_by(false, 80_021));
        assert!(!is_kept_by(true, 101_100));
    }
}
