//! Records the names of the client that statements of the protocol have on a server connection, so
//! that SQL can refer to them.

use super::tokens::NAMED_FOR_QUERY;

/// Names on a server connection, with the requests in flight that give or take them.
#[derive(Debug, Default)]
pub(crate) struct GivenNames(Vec<GivenName>);

#[derive(Debug)]
struct GivenName {
    name: Box<[u8]>,
    /// Token of the Parse.
    given_by: u64,
    /// Token of a Close in flight, which the server may skip.
    closed_by: Option<u64>,
}

impl GivenNames {
    /// Returns whether a statement has the name, or will have it after the requests in flight.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let is_it = |given: &GivenName| *given.name == *name && given.closed_by.is_none();
        self.0.iter().any(is_it)
    }

    /// Records a Parse that is sent.
    pub(super) fn give(&mut self, name: &[u8], token: u64) {
        self.0.push(GivenName {
            name: name.into(),
            given_by: token,
            closed_by: None,
        });
    }

    /// Records that a Close is about to be sent. Returns false if no statement has the name.
    pub(super) fn close(&mut self, name: &[u8], token: u64) -> bool {
        let mut all = self.0.iter_mut();
        let found = all.find(|given| *given.name == *name && given.closed_by.is_none());
        let Some(given) = found else {
            return false;
        };
        given.closed_by = Some(token);
        true
    }

    /// Records that the server has executed the Close of the token.
    pub(super) fn closed(&mut self, token: u64) {
        self.0.retain(|given| given.closed_by != Some(token));
    }

    /// Records that the server has skipped or refused the request of the token.
    pub(super) fn skipped(&mut self, token: u64) {
        self.0.retain(|given| given.given_by != token);
        for given in &mut self.0 {
            given.closed_by = given.closed_by.filter(|by| *by != token);
        }
    }

    /// Records a DEALLOCATE by SQL. Returns false if no statement had the name.
    pub(super) fn deallocated(&mut self, name: &[u8]) -> bool {
        let before = self.0.len();
        self.0.retain(|given| *given.name != *name);
        self.0.len() < before
    }

    /// Records a DEALLOCATE ALL by the request of the token; later names remain.
    pub(super) fn all_deallocated(&mut self, token: u64) {
        self.0
            .retain(|given| given.given_by & !NAMED_FOR_QUERY > token);
    }

    /// Removes and returns all names. Requires that no request is in flight.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Box<[u8]>> {
        let all = std::mem::take(&mut self.0).into_iter();
        all.map(|given| given.name)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TO SEE THIS RED: forget the name as soon as its Close is sent, and record it again if that
    /// is skipped.
    #[test]
    fn a_name_whose_parse_and_close_are_skipped_does_not_exist() {
        let mut given = GivenNames::default();
        given.give(b"s", 1);
        assert!(given.close(b"s", 2) && !given.has(b"s") && !given.close(b"s", 3));
        given.skipped(1);
        given.skipped(2);
        assert!(!given.has(b"s"));
        assert_eq!(given.take().count(), 0);
    }

    #[test]
    fn a_name_exists_until_its_close_is_executed() {
        let mut given = GivenNames::default();
        given.give(b"s", 1);
        assert!(given.close(b"s", 2));
        given.give(b"s", 3);
        given.skipped(2);
        given.skipped(3);
        assert!(given.has(b"s"));
        assert!(given.close(b"s", 4));
        given.closed(4);
        assert!(!given.has(b"s"));
    }

    /// TO SEE THIS RED: forget all names.
    #[test]
    fn a_name_that_is_given_after_a_deallocation_of_all_remains() {
        let mut given = GivenNames::default();
        given.give(b"before", 1);
        given.give(b"after", 3 | NAMED_FOR_QUERY);
        given.all_deallocated(2);
        assert!(!given.has(b"before") && given.has(b"after"));
    }
}
