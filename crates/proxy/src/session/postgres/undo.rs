//! Undoes what requests were expected to do to prepared statements, because the server has skipped
//! or refused them.

use evenkeel_wire::postgres::conversation::{DueAction, RequestToken};

use super::Session;
use super::server::ServerConnection;
use super::tokens::{statement_of, unnamed_of};

impl Session<'_> {
    /// Undoes a request that the server skipped after an error.
    pub(super) fn passed_over(&mut self, due: DueAction, server: &mut ServerConnection) {
        match due {
            DueAction::ParseDiscarded(token) => {
                if let Some(id) = unnamed_of(token) {
                    if server.unnamed == id {
                        server.unnamed = 0;
                    }
                    self.unnamed.skipped(token);
                } else if let Some(id) = statement_of(token) {
                    server.prepared.undo(id);
                    self.statements.discarded(token.0);
                } else {
                    server.given.skipped(token.0);
                    self.statements.discarded(token.0);
                }
            }
            DueAction::CloseDiscarded(token) if unnamed_of(token).is_some() => {
                self.unnamed.skipped(token);
            }
            DueAction::CloseDiscarded(token) => match statement_of(token) {
                Some(id) => server.prepared.undo(id),
                // Only names given to SQL are closed at servers.
                None => {
                    server.given.skipped(token.0);
                    self.statements.discarded(token.0);
                }
            },
            DueAction::AnswerDiscarded(_, token) => {
                self.statements.discarded(token.0);
                self.listening.iter_mut().for_each(|one| one.skipped(token));
            }
            DueAction::RunDiscarded(token) => {
                self.unnamed.skipped(token);
                self.statements.discarded(token.0);
            }
            DueAction::Answer(..) => {}
        }
    }

    /// Records that Evenkeel's own answer to the request of the token is given.
    pub(super) fn answer_given(&mut self, token: RequestToken) {
        self.statements.answered(token.0);
        self.listening.iter_mut().for_each(|one| one.replied(token));
    }

    /// Undoes what a failed request was expected to do to prepared statements.
    pub(super) fn request_failed(&mut self, server: &mut ServerConnection, token: RequestToken) {
        self.unnamed.failed(token);
        server.given.skipped(token.0);
        if unnamed_of(token).is_none() && statement_of(token).is_none() {
            // A failed DEALLOCATE leaves its statement.
            self.statements.discarded(token.0);
        }
    }
}
