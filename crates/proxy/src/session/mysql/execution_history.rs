//! Who has executed a statement of a server, and with which types. MySQL infers what a `?` is from
//! executions, and keeps that with the statement: where somebody has given a DOUBLE, it compares an
//! integer as one from then on. That must have been the same client, as it would be there.

use evenkeel_wire::mysql::frontend::typed;

/// The first MySQL that does so.
const SINCE: u32 = 80_022;

/// NULL, which is of no type.
const NULL: u16 = 6;

/// The executions of a statement since its server has prepared it.
#[derive(Debug, Default)]
pub(crate) struct ExecutionHistory {
    by: ExecutedBy,
    /// The type of each parameter, as it was given last.
    kinds: Box<[u16]>,
    /// They were not the same each time, which one client alone may do.
    are_mixed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ExecutedBy {
    #[default]
    Nobody,
    One(u64),
    Several,
}

/// Whether a server keeps what it infers.
pub(super) fn is_kept_by(is_mariadb: bool, version: u32) -> bool {
    !is_mariadb && version >= SINCE
}

impl ExecutionHistory {
    /// Whether nobody but this client has executed it: the server may remember anything.
    pub(super) fn is_only_by(&self, client: u64) -> bool {
        self.by == ExecutedBy::Nobody || self.by == ExecutedBy::One(client)
    }

    /// Whether others have executed it with these types only. `named`: each has a name.
    pub(super) fn was_so(&self, types: &[u8], named: bool) -> bool {
        let mut both = self.kinds.iter().zip(typed(types, named));
        let is_so = |known: u16, kind: u16| known == kind || known == NULL || kind == NULL;
        !self.are_mixed && both.all(|(known, (kind, _))| is_so(*known, kind))
    }

    /// This client executes it with these types.
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

    /// Whether a client may execute it as it is there, behind executions of clients.
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
