//! Checks an authenticated client's account at a server: the account is accepted, its schema
//! exists, and the baseline of its connections is known.

use std::sync::Arc;

use evenkeel_engine::{clock, timers};

use super::super::error_reply::ErrorReply;
use super::super::user_state::Account;
use super::LoginHandler;
use crate::error_catalog;
use crate::server::Server;
use crate::service::ServiceSnapshot;
use crate::service::database::DatabaseSnapshot;
use crate::session::acquirer::AcquireError;
use crate::session::login_connection;
use crate::upstream::connect_error::ConnectErrorKind;

/// Reason why a check failed.
pub(super) enum ServerCheckError {
    /// The server is the cause; another one may succeed.
    OfServer(ErrorReply),
    /// The client is the cause.
    Rejected(ErrorReply),
}

impl LoginHandler<'_> {
    /// Checks the account at the first available server.
    pub(super) async fn check_at_servers(
        &self,
        view: &Arc<ServiceSnapshot>,
        account: &Account,
        schema: Option<&[u8]>,
    ) -> Result<(), ServerCheckError> {
        let why = login_connection::fault_text(self.context.permit.service());
        let mut last = ErrorReply::with(&error_catalog::NO_SERVER_AVAILABLE, &[&why]);
        let Some(database) = view.database() else {
            return Err(ServerCheckError::OfServer(last));
        };
        for (server, limit) in login_connection::candidates(view, database) {
            let checking = self.check_at(account, (server, database), schema);
            match timers::timeout(limit, checking).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(ServerCheckError::Rejected(error_reply))) => {
                    return Err(ServerCheckError::Rejected(error_reply));
                }
                Ok(Err(ServerCheckError::OfServer(error_reply))) => last = error_reply,
                Err(_) => {
                    let entry = &error_catalog::SERVER_UNRESPONSIVE;
                    last = ErrorReply::with(entry, &[&server.name]);
                }
            }
        }
        Err(ServerCheckError::OfServer(last))
    }

    async fn check_at(
        &self,
        account: &Account,
        (server, view): (&Arc<Server>, &DatabaseSnapshot),
        schema: Option<&[u8]>,
    ) -> Result<(), ServerCheckError> {
        let acquired =
            login_connection::acquire(&self.context.worker_pool, account, server, view).await;
        let mut login_connection = acquired.map_err(|error| classify(&error))?;
        let mut used = Ok(());
        if let Some(connection) = &mut login_connection.connection {
            account.known.update_baseline(&connection.baseline);
            if let Some(schema) = schema {
                used = connection
                    .run(self.context.worker, &[&use_schema(schema)])
                    .await;
            }
        }
        let used = used.map_err(classify_use);
        // A connection with an error is not idle, and ends when the guard is dropped.
        if login_connection
            .connection
            .as_ref()
            .is_some_and(|connection| connection.is_idle())
        {
            login_connection.release();
        }
        used?;
        if let Some(schema) = schema {
            account.known.record_use(schema, clock::now_ms());
        }
        Ok(())
    }
}

fn classify(error: &AcquireError) -> ServerCheckError {
    let error_reply = ErrorReply::from_acquire_error(error);
    match error {
        AcquireError::ConnectFailed(error)
            if error.is_passing() || error.kind == ConnectErrorKind::Outdated =>
        {
            ServerCheckError::OfServer(error_reply)
        }
        _ => ServerCheckError::Rejected(error_reply),
    }
}

/// Classifies a failure to select the schema: caused by the schema or by the connection.
fn classify_use(error_reply: ErrorReply) -> ServerCheckError {
    match error_reply.code.number {
        // ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR, ER_BAD_DB_ERROR, ER_WRONG_DB_NAME
        1044 | 1045 | 1049 | 1102 => ServerCheckError::Rejected(error_reply),
        _ => ServerCheckError::OfServer(error_reply),
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
