//! Logs in to PostgreSQL with the monitor account, and classifies failures.

use std::{pin::Pin, sync::Arc};

use evenkeel_tls::messages::{NO_TLS, with_server};
use rustls::ClientConfig;
use tokio_postgres::{
    Client, Config, Error, NoTls,
    config::SslMode,
    error::{DbError, Severity, SqlState},
    tls::{MakeTlsConnect, TlsConnect},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::talk;
use crate::probe::{
    AccountSource, DatabaseLogin, MonitorAccount, ProbeFailure, ProbeSetupError, Progress, Target,
    TargetAddress, Tls, messages,
    stream::{self, CheckedStream, ReceivedPrefix},
    tls,
};

type TlsConnector = <MakeRustlsConnect as MakeTlsConnect<CheckedStream>>::TlsConnect;

/// Future that drives the connection, and must be polled. Ends with the connection.
pub(crate) type Driver = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A connection that is logged in.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) driver: Driver,
    /// First bytes received.
    pub(crate) received: ReceivedPrefix,
}

/// The account and the TLS options.
pub(crate) struct Login {
    user: String,
    source: AccountSource,
    config: Config,
    tls: Tls,
    tls_config: Option<Arc<ClientConfig>>,
}

impl DatabaseLogin for Login {
    type Connection = Connection;

    fn new(
        account: MonitorAccount,
        tls: &Tls,
        program: &'static str,
    ) -> Result<Self, ProbeSetupError> {
        let mut config = Config::new();
        config
            .user(&account.user)
            .password(&account.password)
            .dbname(account.database.as_deref().unwrap_or("postgres"))
            .application_name(program);
        let tls_config = tls::client_config(tls)?;
        Ok(Self {
            user: account.user,
            source: account.source,
            config,
            tls: tls.clone(),
            tls_config,
        })
    }

    fn source(&self) -> AccountSource {
        self.source
    }

    async fn log_in(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> Result<Connection, ProbeFailure> {
        let socket = stream::dial(target).await.map_err(|e| messages::io(&e))?;
        progress.step("logging in");
        let mut config = self.config.clone();
        let (ended, received) = match (&self.tls_config, &target.address) {
            (Some(tls_config), TargetAddress::Tcp(_)) => {
                config.ssl_mode(SslMode::Require);
                let (socket, received) = CheckedStream::new(socket, may_answer_tls_request);
                let connector = connector(tls_config, tls::server_name(&self.tls, target))?;
                (log_in(&config, socket, connector).await, received)
            }
            _ => {
                config.ssl_mode(SslMode::Disable);
                let (socket, received) = CheckedStream::new(socket, may_answer_startup);
                (log_in(&config, socket, NoTls).await, received)
            }
        };
        match ended {
            Err(error) => Err(self.classify(&error, &received, progress)),
            Ok((client, driver)) => Ok(Connection {
                client,
                driver,
                received,
            }),
        }
    }

    async fn run(
        &self,
        connection: Connection,
        query: &str,
        _: &Target,
        progress: &Progress,
    ) -> Result<(), ProbeFailure> {
        let Connection {
            client,
            driver,
            received,
        } = connection;
        let answer = talk(client, driver, query, progress).await;
        answer.map_err(|error| self.classify(&error, &received, progress))
    }
}

impl Login {
    /// Classifies an error, at the login or after it.
    pub(crate) fn classify(
        &self,
        error: &Error,
        received: &ReceivedPrefix,
        progress: &Progress,
    ) -> ProbeFailure {
        if let Some(first) = received.implausible() {
            let why = messages::unexpected_protocol("PostgreSQL", &first);
            return ProbeFailure::Misconfigured(why);
        }
        if let Some(db) = error.as_db_error() {
            return self.classify_reply(db, progress);
        }
        if let Some(tls) = messages::tls_inside(error) {
            return ProbeFailure::Misconfigured(with_server(tls));
        }
        let text = messages::chain(error);
        if text.contains("does not support TLS") {
            return ProbeFailure::Misconfigured(NO_TLS.to_owned());
        }
        if text.contains("authentication") {
            return ProbeFailure::LoginRefused(self.refused(&text));
        }
        match messages::io_inside(error) {
            Some(io) => messages::io(io).into(),
            None if error.is_closed() => messages::closed().into(),
            None => text.into(),
        }
    }

    fn classify_reply(&self, error: &DbError, progress: &Progress) -> ProbeFailure {
        let text = messages::truncated(error.message());
        // The end of a session by the server does not concern the query in progress.
        let ended = matches!(
            error.parsed_severity(),
            Some(Severity::Fatal | Severity::Panic)
        );
        let at_login = !progress.is_logged_in();
        match error.code() {
            &SqlState::TOO_MANY_CONNECTIONS => ProbeFailure::Full(format!(
                "too many connections on the \
                 server: {text}"
            )),
            &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                ProbeFailure::LoginRefused(self.refused(&text))
            }
            &SqlState::INVALID_CATALOG_NAME => ProbeFailure::NoDatabase(self.refused(&text)),
            &SqlState::INSUFFICIENT_PRIVILEGE if at_login => {
                ProbeFailure::LoginRefused(self.refused(&text))
            }
            // Starting up, shutting down, a standby without connections: the text distinguishes
            // them.
            &SqlState::CANNOT_CONNECT_NOW => text.into(),
            code if at_login || ended => format!("{text} (SQLSTATE {})", code.code()).into(),
            code => format!("query failed: {text} (SQLSTATE {})", code.code()).into(),
        }
    }

    fn refused(&self, text: &str) -> String {
        let hint = format!("{}, and pg_hba.conf on the server", self.source.values());
        messages::login_refused(&self.user, text, &hint)
    }
}

async fn log_in<T: TlsConnect<CheckedStream>>(
    config: &Config,
    socket: CheckedStream,
    tls: T,
) -> Result<(Client, Driver), Error>
where
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect_raw(socket, tls).await?;
    Ok((client, Box::pin(connection)))
}

fn connector(
    config: &Arc<ClientConfig>,
    server_name: String,
) -> Result<TlsConnector, ProbeFailure> {
    let mut make = MakeRustlsConnect::new(ClientConfig::clone(config));
    MakeTlsConnect::<CheckedStream>::make_tls_connect(&mut make, &server_name)
        .map_err(|e| ProbeFailure::Failed(e.to_string()))
}

/// Returns whether the bytes may be a reply to a TLS request: "The server then responds with a
/// single byte containing S or N" (Protocol Flow, SSL); old servers reply with an error.
fn may_answer_tls_request(first: &[u8]) -> bool {
    matches!(first.first(), None | Some(b'S' | b'N' | b'E'))
}

/// Accepts an authentication request, an error or a version offer with a plausible length.
fn may_answer_startup(first: &[u8]) -> bool {
    let kind = matches!(first.first(), None | Some(b'R' | b'E' | b'v'));
    let length = first.iter().skip(1).take(2).all(|&byte| byte == 0);
    kind && length
}
