//! The PostgreSQL probe: a complete login with the monitor account, one query, a Terminate message.

use std::{
    pin::{Pin, pin},
    sync::Arc,
};

use futures_util::{
    TryStreamExt,
    future::{Either, select},
};
use rustls::ClientConfig;
use tokio_postgres::{
    Client, Config, Error, NoTls,
    config::SslMode,
    error::{DbError, SqlState},
    tls::{MakeTlsConnect, TlsConnect},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Account, AskerError, Failure, Progress, QUERY, Target, Tls,
    stream::{self, Heard, Listening},
    tls, words,
};

type TlsConnector = <MakeRustlsConnect as MakeTlsConnect<Listening>>::TlsConnect;

/// The account, the query and the way to encrypt.
pub(super) struct Login {
    user: String,
    query: String,
    config: Config,
    tls: Tls,
    tls_config: Option<Arc<ClientConfig>>,
}

impl Login {
    pub(super) fn new(account: Account, query: String, tls: &Tls) -> Result<Self, AskerError> {
        let mut config = Config::new();
        config
            .user(&account.user)
            .password(&account.password)
            .dbname(account.database.as_deref().unwrap_or("postgres"))
            .application_name("evenkeel-probe");
        let tls_config = tls::client_config(tls)?;
        Ok(Self {
            user: account.user,
            query,
            config,
            tls: tls.clone(),
            tls_config,
        })
    }

    pub(super) async fn ask(&self, target: &Target, progress: &Progress) -> Result<(), Failure> {
        let socket = stream::dial(target).await.map_err(|e| words::io(&e))?;
        progress.step("logging in");
        let mut config = self.config.clone();
        let (ended, heard) = match (&self.tls_config, target) {
            (Some(tls_config), Target::Tcp(_)) => {
                config.ssl_mode(SslMode::Require);
                let (socket, heard) = Listening::new(socket, may_answer_tls_request);
                let connector = connector(tls_config, tls::server_name(&self.tls, target))?;
                (self.talk(&config, socket, connector, progress).await, heard)
            }
            _ => {
                config.ssl_mode(SslMode::Disable);
                let (socket, heard) = Listening::new(socket, may_answer_startup);
                (self.talk(&config, socket, NoTls, progress).await, heard)
            }
        };
        match ended {
            Err(error) => self.judge(&error, &heard, progress),
            Ok(()) => Ok(()),
        }
    }

    async fn talk<T: TlsConnect<Listening>>(
        &self,
        config: &Config,
        socket: Listening,
        tls: T,
        progress: &Progress,
    ) -> Result<(), Error> {
        let (client, mut connection) = config.connect_raw(socket, tls).await?;
        progress.step(QUERY);
        let answer = {
            let query = pin!(run(&client, &self.query));
            match select(query, Pin::new(&mut connection)).await {
                Either::Left((answer, _)) => answer,
                Either::Right((Err(error), _)) => return Err(error),
                Either::Right((Ok(()), query)) => query.await,
            }
        };
        if answer.is_ok() {
            progress.passed(None);
        }
        // Without its client the connection sends Terminate and closes.
        drop(client);
        let _ = connection.await;
        answer
    }

    fn judge(&self, error: &Error, heard: &Heard, progress: &Progress) -> Result<(), Failure> {
        if let Some(first) = heard.implausible() {
            return Err(words::speaks_no("PostgreSQL", &first).into());
        }
        if let Some(db) = error.as_db_error() {
            return self.judge_answer(db, progress);
        }
        if let Some(tls) = words::tls_inside(error) {
            return Err(words::tls(tls).into());
        }
        let text = words::chain(error);
        if text.contains("does not support TLS") {
            return Err(words::no_tls().into());
        }
        if text.contains("authentication") {
            return Err(self.refused(&text));
        }
        Err(match words::io_inside(error) {
            Some(io) => words::io(io).into(),
            None if error.is_closed() => words::closed().into(),
            None => text.into(),
        })
    }

    fn judge_answer(&self, error: &DbError, progress: &Progress) -> Result<(), Failure> {
        let said = words::clipped(error.message());
        let at_login = !progress.is_at(QUERY);
        match error.code() {
            // Full is not dead: taking such a server out would only move its load to the next one.
            &SqlState::TOO_MANY_CONNECTIONS => {
                progress.passed(Some(format!("the server is full: {said}")));
                Ok(())
            }
            &SqlState::INVALID_PASSWORD
            | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            | &SqlState::INVALID_CATALOG_NAME => Err(self.refused(&said)),
            &SqlState::INSUFFICIENT_PRIVILEGE if at_login => Err(self.refused(&said)),
            // Starting up, shutting down, a standby that takes no connections: the text says which.
            &SqlState::CANNOT_CONNECT_NOW => Err(said.into()),
            code if at_login => Err(format!("{said} (SQLSTATE {})", code.code()).into()),
            code => Err(format!("the query failed: {said} (SQLSTATE {})", code.code()).into()),
        }
    }

    fn refused(&self, said: &str) -> Failure {
        let hint =
            "user, password and database in [service.monitor], and pg_hba.conf on the server";
        Failure::LoginRefused(words::login_refused(&self.user, said, hint))
    }
}

/// Runs the query and throws its rows away as they come.
async fn run(client: &Client, query: &str) -> Result<(), Error> {
    let mut rows = pin!(client.simple_query_raw(query).await?);
    while rows.try_next().await?.is_some() {}
    Ok(())
}

fn connector(config: &Arc<ClientConfig>, server_name: String) -> Result<TlsConnector, Failure> {
    let mut make = MakeRustlsConnect::new(ClientConfig::clone(config));
    MakeTlsConnect::<Listening>::make_tls_connect(&mut make, &server_name)
        .map_err(|e| Failure::Failed(e.to_string()))
}

/// "The server then responds with a single byte containing S or N" (Protocol Flow, SSL); old ones
/// with an error.
fn may_answer_tls_request(first: &[u8]) -> bool {
    matches!(first.first(), None | Some(b'S' | b'N' | b'E'))
}

/// An authentication request, an error or a version offer, and of a length that such a message has.
fn may_answer_startup(first: &[u8]) -> bool {
    let kind = matches!(first.first(), None | Some(b'R' | b'E' | b'v'));
    let length = first.iter().skip(1).take(2).all(|&byte| byte == 0);
    kind && length
}
