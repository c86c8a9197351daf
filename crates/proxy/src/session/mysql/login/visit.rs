//! A visit at a server in the name of a client that has proved who it is: its account is let in
//! there, its schema is there, and what its connections begin with is known.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use evenkeel_policy::lending::Condition;

use super::super::account::Account;
use super::super::complaint::Complaint;
use super::super::server::ServerConnection;
use super::Door;
use crate::clock;
use crate::server::Server;
use crate::service::View;
use crate::service::database::DatabaseView;
use crate::upstream::join::{JoinError, Kind};
use crate::upstream::lending::{Borrowed, Delivery, Lending, Place};

/// How long a server may take, while there are others.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits for a connection, and is out of the line when it is dropped.
struct InLine<'a> {
    lending: &'a Rc<Lending<ServerConnection>>,
    place: Rc<Place<ServerConnection>>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.lending.leave_line(&self.place);
        if let Some(Delivery::Connection(server)) = self.place.take_late() {
            self.lending.give_back(server, Condition::Clean);
        }
    }
}

/// A connection that goes back whatever becomes of the visit.
struct Guest<'a> {
    lending: &'a Rc<Lending<ServerConnection>>,
    server: Option<Box<ServerConnection>>,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.lending.give_back(server, Condition::Unclean);
        }
    }
}

/// Why a visit did not succeed.
pub(super) enum Failure {
    /// It is about the server: another one may do.
    OfServer(Complaint),
    /// It is about the client.
    Told(Complaint),
}

/// Any server will do: the primary if there is one, else whoever reads; and each once more, since
/// its connection may have ended while it was idle.
fn candidates(view: &View, own: &DatabaseView) -> Vec<usize> {
    let others = (0..view.servers.len()).filter(|index| own.replicas[*index]);
    let once: Vec<usize> = own.primary.into_iter().chain(others).collect();
    once.repeat(2)
}

impl Door<'_> {
    /// Asks the first server that can be asked.
    pub(super) async fn visit(
        &self,
        view: &Arc<View>,
        account: &Account,
        schema: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let text = "no server can be asked: try again";
        let mut last = Complaint::new(2003, b"HY000", text);
        let Some(own) = &view.database else {
            return Err(Failure::OfServer(last));
        };
        let candidates = candidates(view, own);
        for (place, index) in candidates.iter().enumerate() {
            // One that hangs must not keep clients out whom another one can greet.
            let patience = match place + 1 < candidates.len() {
                true => PATIENCE,
                false => own.times.login.max(PATIENCE),
            };
            let server = &view.servers[*index];
            let visiting = self.visit_one(account, (server, own), schema);
            match compio::time::timeout(patience, visiting).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Failure::Told(complaint))) => return Err(Failure::Told(complaint)),
                Ok(Err(Failure::OfServer(complaint))) => last = complaint,
                Err(_) => {
                    let text = format!("server {} does not answer: try again", server.name);
                    last = Complaint::new(2003, b"HY000", text);
                }
            }
        }
        Err(Failure::OfServer(last))
    }

    async fn visit_one(
        &self,
        account: &Account,
        (server, view): (&Arc<Server>, &DatabaseView),
        schema: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let borrowed = self.wait(account, server, view).await;
        let server = borrowed.map_err(|error| judge(&error))?;
        let mut guest = Guest {
            lending: &self.lending,
            server: Some(server),
        };
        let mut used = Ok(());
        if let Some(server) = &mut guest.server {
            account.known.learn(&server.fresh);
            if let Some(schema) = schema {
                used = server.run(self.worker, &[&use_schema(schema)]).await;
            }
        }
        let used = used.map_err(of_use);
        // A connection on which something broke is not idle, and ends with the guest.
        if let Some(server) = guest.server.take_if(|server| server.is_idle()) {
            self.lending.give_back(server, Condition::Clean);
        }
        used?;
        if let Some(schema) = schema {
            account.known.has_used(schema, clock::now_ms());
        }
        Ok(())
    }

    async fn wait(
        &self,
        account: &Account,
        server: &Arc<Server>,
        view: &DatabaseView,
    ) -> Result<Box<ServerConnection>, Arc<JoinError>> {
        let in_line = InLine {
            lending: &self.lending,
            place: Place::new(),
        };
        loop {
            // It may be another one after each waiting.
            let pooled = account.pooled(server, view);
            let until_ms = match self.lending.borrow(&pooled, &in_line.place) {
                Borrowed::Now(server) => return Ok(server),
                Borrowed::Later(until_ms) => until_ms,
                Borrowed::Refused(_) if pooled.pool.is_outdated() => continue,
                Borrowed::Refused(refusal) => {
                    let complaint = Complaint::refused(refusal);
                    let error = JoinError::ours(complaint.code, complaint.message);
                    return Err(Arc::new(error));
                }
            };
            let wait = Duration::from_millis(until_ms.saturating_sub(clock::now_ms()));
            let place = &in_line.place;
            let delivered = std::future::poll_fn(|context| match place.take(context) {
                Some(delivery) => Poll::Ready(delivery),
                None => Poll::Pending,
            });
            match compio::time::timeout(wait, delivered).await {
                Ok(Delivery::Connection(server)) => return Ok(server),
                Ok(Delivery::Failed(error)) => return Err(error),
                Ok(Delivery::Again) => {}
                Err(_) => {
                    let complaint = Complaint::waited();
                    let error = JoinError::ours(complaint.code, complaint.message);
                    return Err(Arc::new(error));
                }
            }
        }
    }
}

fn judge(error: &JoinError) -> Failure {
    let complaint = Complaint::of_join(error);
    match error.is_passing() || error.kind == Kind::Outdated {
        true => Failure::OfServer(complaint),
        false => Failure::Told(complaint),
    }
}

/// Whether it is about the schema, or about a connection that has ended.
fn of_use(complaint: Complaint) -> Failure {
    match complaint.code.number {
        // ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR, ER_BAD_DB_ERROR, ER_WRONG_DB_NAME
        1044 | 1045 | 1049 | 1102 => Failure::Told(complaint),
        _ => Failure::OfServer(complaint),
    }
}

fn use_schema(schema: &[u8]) -> Vec<u8> {
    let mut text = b"USE `".to_vec();
    for byte in schema {
        if *byte == b'`' {
            text.push(b'`');
        }
        text.push(*byte);
    }
    text.push(b'`');
    text
}

#[cfg(test)]
mod tests {
    use super::use_schema;

    #[test]
    fn a_schema_cannot_end_its_quotes() {
        assert_eq!(use_schema(b"a`; DROP"), b"USE `a``; DROP`");
    }
}
