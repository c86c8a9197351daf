//! Logs in to MySQL and MariaDB with the monitor account, and classifies failures.

use std::{io, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use evenkeel_tls::messages::{NO_TLS, with_server};
use futures_util::{
    FutureExt,
    future::{Either, pending, select},
};
use mysql_async::{
    ClientIdentity, Conn, DriverError, Error, IoError, Opts, OptsBuilder, ServerError, SslOpts,
    prelude::Queryable,
};
use tokio::{
    io::AsyncReadExt,
    time::{sleep, timeout},
};

use super::relay::{self, Relay, RelayAddress};
use crate::probe::{
    AccountSource, DatabaseLogin, MonitorAccount, ProbeFailure, ProbeSetupError, Progress, Target,
    TargetAddress, Tls, messages, stream,
    tls::{self, TlsStart},
};

/// More than any health check needs; an explicit value saves a query for the server's own.
const PACKET_BYTES_MAX: usize = 16 << 20;
/// Set only to avoid a query by the library; a probe is shorter.
const WAIT_TIMEOUT_S: usize = 60;
/// Time limit for the examination of a peer whose reply was invalid.
const CHECK_MS_MAX: u64 = 200;

/// Interval of keepalive probes, which detect a vanished peer even on a connection that only waits
/// to be closed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The account and the TLS options.
pub(crate) struct Login {
    account: MonitorAccount,
    program: &'static str,
    /// Settings of unverified TLS, which the library does.
    ssl: Option<SslOpts>,
    /// Settings of verified TLS, which the relay does: the library verifies in another way than
    /// connections of clients.
    verified: Option<Arc<TlsStart>>,
    tls: Tls,
}

impl DatabaseLogin for Login {
    type Connection = Conn;

    fn new(
        account: MonitorAccount,
        tls: &Tls,
        program: &'static str,
    ) -> Result<Self, ProbeSetupError> {
        // The library uses the process's provider; this avoids a wrong choice.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let verified = match tls {
            Tls::Verify { .. } => TlsStart::new(tls)?,
            Tls::Off | Tls::Encrypt(_) => None,
        };
        Ok(Self {
            account,
            program,
            ssl: ssl_opts(tls),
            verified: verified.map(Arc::new),
            tls: tls.clone(),
        })
    }

    fn source(&self) -> AccountSource {
        self.account.source
    }

    async fn log_in(&self, target: &Target, progress: &Progress) -> Result<Conn, ProbeFailure> {
        let relay = self.relay(target).await.map_err(|e| messages::io(&e))?;
        progress.step("connecting or logging in");
        let login = pin!(catch_panic(Conn::new(self.opts(target, relay.as_ref()))));
        let stalled = pin!(diagnose_stall(target, progress));
        match select(login, stalled).await {
            Either::Left((Some(Ok(connection)), _)) => Ok(connection),
            Either::Left((Some(Err(error)), _)) => {
                match relay.as_ref().and_then(Relay::take_failure) {
                    Some(failure) => Err(failure),
                    None => Err(self.classify(error, target, progress).await),
                }
            }
            Either::Left((None, _)) => Err(malformed(target).await),
            Either::Right((why, _)) => Err(ProbeFailure::Misconfigured(why)),
        }
    }

    async fn run(
        &self,
        mut connection: Conn,
        query: &str,
        target: &Target,
        progress: &Progress,
    ) -> Result<(), ProbeFailure> {
        let talk = catch_panic(async {
            let answer = connection.query_drop(query).await;
            if answer.is_ok() {
                progress.passed();
            }
            // Without this COM_QUIT the server counts an aborted client.
            let _ = connection.disconnect().await;
            answer
        });
        match talk.await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.classify(error, target, progress).await),
            None => Err(malformed(target).await),
        }
    }
}

impl Login {
    /// Starts the relay for a connection that the library cannot begin itself. A Unix socket needs
    /// no TLS.
    async fn relay(&self, target: &Target) -> io::Result<Option<Relay>> {
        let is_tcp = matches!(target.address, TargetAddress::Tcp(_));
        let tls = self.verified.clone().filter(|_| is_tcp);
        if target.proxy_header.is_none() && tls.is_none() {
            return Ok(None);
        }
        relay::start(target, tls).await.map(Some)
    }

    /// Returns the options for a connection to the server, or to the relay in front of it.
    fn opts(&self, target: &Target, relay: Option<&Relay>) -> Opts {
        let password = Some(&self.account.password).filter(|p| !p.is_empty());
        let opts = OptsBuilder::default()
            .user(Some(&self.account.user))
            .pass(password)
            .db_name(self.account.database.as_ref())
            .connect_attribute("program_name", self.program)
            .tcp_keepalive(Some(KEEPALIVE))
            .prefer_socket(false)
            .max_allowed_packet(Some(PACKET_BYTES_MAX))
            .wait_timeout(Some(WAIT_TIMEOUT_S))
            .stmt_cache_size(0);
        let address = match (relay.map(|relay| &relay.address), &target.address) {
            (Some(RelayAddress::Encrypted(socket)), _) => {
                return opts.socket(Some(socket.clone())).into();
            }
            (None, TargetAddress::Unix(path)) => {
                return opts.socket(Some(path.to_string_lossy())).into();
            }
            (Some(RelayAddress::Plain(address)), _) | (None, TargetAddress::Tcp(address)) => {
                address
            }
        };
        let is_tcp = matches!(target.address, TargetAddress::Tcp(_));
        let name = tls::server_name(&self.tls, target);
        let ssl = self.ssl.clone().filter(|_| is_tcp);
        opts.ip_or_hostname(address.ip().to_string())
            .resolved_ips(Some(vec![address.ip()]))
            .tcp_port(address.port())
            .ssl_opts(ssl.map(|ssl| ssl.with_danger_tls_hostname_override(Some(name))))
            .into()
    }

    /// Classifies an error, at the login or after it.
    pub(crate) async fn classify(
        &self,
        error: Error,
        target: &Target,
        progress: &Progress,
    ) -> ProbeFailure {
        if let Some(tls) = messages::tls_inside(&error) {
            return ProbeFailure::Misconfigured(with_server(tls));
        }
        match error {
            Error::Server(error) => self.classify_reply(&error, progress),
            Error::Driver(DriverError::NoClientSslFlagFromServer) => {
                ProbeFailure::Misconfigured(NO_TLS.to_owned())
            }
            Error::Driver(
                e @ (DriverError::UnknownAuthPlugin { .. }
                | DriverError::CleartextPluginDisabled
                | DriverError::MysqlOldPasswordDisabled),
            ) => self.refused(&e.to_string(), "the account's authentication plugin"),
            Error::Io(IoError::Io(e)) if e.raw_os_error().is_some() => messages::io(&e).into(),
            Error::Io(IoError::Io(e)) => invalid_reply(target, &messages::io(&e)).await,
            other => invalid_reply(target, &messages::chain(&other)).await,
        }
    }

    fn classify_reply(&self, error: &ServerError, progress: &Progress) -> ProbeFailure {
        let text = messages::truncated(&error.message);
        let values = self.account.source.values();
        let monitor = format!("{values}, and the account on the server");
        match error.code {
            // Too many connections; the account's own limit, by variable and by resource option.
            1040 | 1203 | 1226 => ProbeFailure::Full(format!(
                "too many connections on the server: {text} (error {})",
                error.code
            )),
            // Access denied: to the database, with the password, without one; unknown database.
            1044 | 1045 | 1698 | 1049 => self.refused(&text, &monitor),
            // This host may not connect; or it failed too often.
            1130 => self.refused(
                &text,
                "that the account allows connections from the address of \
                 Evenkeel",
            ),
            1129 => self.refused(
                &text,
                "the cause of the failed connections, then run FLUSH HOSTS on the server",
            ),
            // Password expired (at login, in the session); account locked (MySQL, MariaDB).
            1820 | 1862 => self.refused(&text, "whether the password of the account has expired"),
            3118 | 4151 => self.refused(
                &text,
                "that the account is not locked (ALTER USER … ACCOUNT UNLOCK)",
            ),
            // --require_secure_transport
            3159 => self.refused(&text, "[service.server_tls] mode (the server requires TLS)"),
            1047 => format!("node not ready: {text} (error 1047)").into(),
            code if progress.is_logged_in() => {
                format!("query failed: {text} (error {code})").into()
            }
            code => format!("{text} (error {code})").into(),
        }
    }

    fn refused(&self, text: &str, hint: &str) -> ProbeFailure {
        ProbeFailure::LoginRefused(messages::login_refused(&self.account.user, text, hint))
    }
}

/// Returns the options of TLS without verification.
fn ssl_opts(tls: &Tls) -> Option<SslOpts> {
    let Tls::Encrypt(identity) = tls else {
        return None;
    };
    let identity = identity.as_ref().map(|identity| {
        let pem = identity.pem();
        ClientIdentity::new(pem.certificate.clone().into(), pem.key.to_vec().into())
    });
    let options = SslOpts::default().with_danger_accept_invalid_certs(true);
    Some(options.with_client_identity(identity))
}

/// Examines a stalled server over a separate connection when half of the time has passed without a
/// login.
///
/// The library takes the first bytes of any banner for the length of a packet and waits for the
/// rest. It therefore recognizes neither another protocol nor the step at which a silent server has
/// stopped. Returns only if the peer does not speak MySQL.
async fn diagnose_stall(target: &Target, progress: &Progress) -> String {
    sleep(progress.timeout / 2).await;
    if !progress.is_logged_in()
        && let Ok(Some(why)) = check_greeting(target, Some(progress)).await
    {
        return why;
    }
    pending().await
}

/// Returns a reason why the peer's first bytes are not MySQL's, if there is one.
async fn check_greeting(
    target: &Target,
    progress: Option<&Progress>,
) -> io::Result<Option<String>> {
    let step = |step| {
        if let Some(progress) = progress.filter(|p| !p.is_logged_in()) {
            progress.step(step);
        }
    };
    step("connecting");
    let mut socket = stream::dial(target).await?;
    step("waiting for the server's greeting");
    let mut first = Vec::new();
    while first.len() < 5 {
        if (&mut socket).take(32).read_buf(&mut first).await? == 0 {
            break;
        }
        if !may_greet(&first) {
            return Ok(Some(messages::unexpected_protocol("MySQL", &first)));
        }
    }
    step("logging in");
    Ok(None)
}

/// Catches the library's assertions on malformed packets, so that invalid data does not end the
/// thread. `None`: such data.
pub(crate) async fn catch_panic<T>(exchange: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(exchange).catch_unwind().await.ok()
}

/// Describes a peer whose packet triggered an assertion of the library.
pub(crate) async fn malformed(target: &Target) -> ProbeFailure {
    invalid_reply(target, "malformed packet").await
}

/// Describes a peer that ended the conversation with an invalid reply.
async fn invalid_reply(target: &Target, seen: &str) -> ProbeFailure {
    let diagnosis = timeout(
        Duration::from_millis(CHECK_MS_MAX),
        check_greeting(target, None),
    )
    .await;
    match diagnosis {
        Ok(Ok(Some(why))) => ProbeFailure::Misconfigured(why),
        _ => seen.to_owned().into(),
    }
}

/// Accepts a short packet, the first or second of its exchange, that is a greeting of version 10 or
/// an error.
fn may_greet(first: &[u8]) -> bool {
    first.iter().zip(0..).all(|(&byte, at)| match at {
        2 => byte == 0,
        3 => byte <= 1,
        4 => byte == 10 || byte == 0xff,
        _ => true,
    })
}
