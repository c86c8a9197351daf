//! Asks a server of which nothing is known but its address: its protocol and TLS before a login,
//! then its product, its role, and what the account may not do.

use std::{io, time::Duration};

use evenkeel_tls::{Fingerprint, messages::untrusted_fingerprint, messages::with_server};
use evenkeel_wire::SqlProtocol;
use evenkeel_wire::mysql::{
    flags::Capabilities,
    greeting::{self, First},
};
use evenkeel_wire::postgres::build;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::probe::{
    MonitorAccount, Progress, Target, Tls, messages,
    mysql::Packets,
    stream::{self, Socket},
    tls::TlsStart,
};
use crate::{WatchError, mysql, postgres};

/// Time after which a server that has sent nothing does not speak MySQL.
const GREETING_LIMIT: Duration = Duration::from_millis(1_000);

/// Error of a MySQL server on which no account may connect from this machine.
const HOST_NOT_PRIVILEGED: u16 = 1130;

/// Offer of a server before a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Protocol of the server.
    pub protocol: SqlProtocol,
    /// Product, and its version if the server reports it before a login.
    pub product: String,
    /// TLS of the server.
    pub tls: TlsOffer,
}

/// TLS that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsOffer {
    /// None.
    Off,
    /// TLS with a certificate that a public authority has signed for the server's name.
    Verified,
    /// TLS with another certificate.
    Untrusted(Fingerprint),
    /// TLS that cannot be used, for this reason.
    Unusable(String),
    /// Unknown: the server refuses connections from this machine.
    Unknown,
}

/// Facts that a server reports to an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Product and version: `PostgreSQL 15.8`.
    pub product: String,
    /// True if the server replicates from another one, and takes no writes.
    pub is_replica: bool,
    /// Host and port from which a replica replicates, if the account may see that.
    pub source: Option<String>,
    /// True if the account may do everything.
    pub is_superuser: bool,
    /// True if the account may read password hashes in the system's table.
    pub reads_hashes: bool,
    /// Way to password hashes through `public.evenkeel_login` (PostgreSQL).
    pub function: LoginFunction,
    /// Privileges that the account lacks, as statements without their end.
    pub missing: Vec<String>,
    /// True if the server makes a new certificate at each start.
    pub has_passing_certificate: bool,
    /// Users that have no password, if the account may see that.
    pub without_password: Vec<String>,
}

/// State of `public.evenkeel_login(text)` in the account's database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginFunction {
    /// There is none.
    #[default]
    Missing,
    /// The account may not execute it.
    Forbidden,
    /// The account may execute it.
    Usable,
}

/// Asks a server for its protocol, unless it is given, and its TLS.
///
/// # Errors
/// Returns the reason if the server cannot be reached, or speaks neither protocol.
pub async fn offer(
    target: &Target,
    server_name: &str,
    protocol: Option<SqlProtocol>,
    limit: Duration,
) -> Result<Offer, String> {
    let progress = Progress::new(limit);
    let asking = async {
        match protocol {
            Some(SqlProtocol::Postgres) => postgres_offer(target, server_name).await,
            Some(SqlProtocol::Mysql) => mysql_offer(target, server_name).await,
            None => match greets(target).await? {
                true => mysql_offer(target, server_name).await,
                false => postgres_offer(target, server_name).await,
            },
        }
    };
    match timeout(limit, asking).await {
        Ok(offer) => offer,
        Err(_) => Err(progress.timed_out(limit)),
    }
}

/// Logs the account in and asks for the facts.
///
/// # Errors
/// Returns the reason if the account cannot log in, or a question has no answer.
pub async fn facts(
    protocol: SqlProtocol,
    target: &Target,
    (account, tls): (MonitorAccount, Tls),
    limit: Duration,
) -> Result<Facts, WatchError> {
    let progress = Progress::new(limit);
    let asking = async {
        match protocol {
            SqlProtocol::Postgres => {
                postgres::inspect::facts(target, account, &tls, &progress).await
            }
            SqlProtocol::Mysql => mysql::inspect::facts(target, account, &tls, &progress).await,
        }
    };
    match timeout(limit, asking).await {
        Ok(facts) => facts,
        Err(_) => Err(WatchError::Away(progress.timed_out(limit))),
    }
}

/// Returns whether the server sends the first bytes of a connection.
async fn greets(target: &Target) -> Result<bool, String> {
    let mut socket = dial(target).await?;
    let mut first = [0; 1];
    match timeout(GREETING_LIMIT, socket.read(&mut first)).await {
        Ok(Ok(0)) => Err(messages::closed()),
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => Err(messages::io(&error)),
        Err(_) => Ok(false),
    }
}

async fn postgres_offer(target: &Target, server_name: &str) -> Result<Offer, String> {
    let protocol = SqlProtocol::Postgres;
    let mut socket = dial(target).await?;
    let mut request = Vec::new();
    build::ssl_request(&mut request);
    let mut answer = [0; 1];
    let asking = async {
        socket.write_all(&request).await?;
        socket.read_exact(&mut answer).await
    };
    asking.await.map_err(|error| messages::io(&error))?;
    let tls = match answer {
        [b'S'] => tls_offer(target, server_name, socket).await,
        [b'N'] => TlsOffer::Off,
        _ => {
            return Err(messages::unexpected_protocol(
                "PostgreSQL or MySQL",
                &answer,
            ));
        }
    };
    let product = "PostgreSQL".to_owned();
    Ok(Offer {
        protocol,
        product,
        tls,
    })
}

async fn mysql_offer(target: &Target, server_name: &str) -> Result<Offer, String> {
    let protocol = SqlProtocol::Mysql;
    let mut server = Packets::new(dial(target).await?);
    let (number, payload) = server.next().await.map_err(|error| messages::io(&error))?;
    let (capabilities, product) = match greeting::first(&payload) {
        Ok(First::Greeting(greeting)) => {
            let version = String::from_utf8_lossy(greeting.version);
            let is_mariadb = version.contains("MariaDB");
            (
                greeting.capabilities,
                mysql::inspect::product(&version, is_mariadb),
            )
        }
        Ok(First::Error(report)) => {
            let text = String::from_utf8_lossy(report.message).into_owned();
            if report.code != HOST_NOT_PRIVILEGED {
                return Err(text);
            }
            let is_mariadb = text.contains("MariaDB");
            return Ok(Offer {
                protocol,
                product: if is_mariadb { "MariaDB" } else { "MySQL" }.to_owned(),
                tls: TlsOffer::Unknown,
            });
        }
        Err(_) => {
            return Err(messages::unexpected_protocol(
                "MySQL or PostgreSQL",
                &payload,
            ));
        }
    };
    let tls = match capabilities.has(Capabilities::SSL) {
        false => TlsOffer::Off,
        true => {
            let sent = server.request_tls(number.wrapping_add(1)).await;
            sent.map_err(|error| messages::io(&error))?;
            match server.into_quiet_socket() {
                Ok(socket) => tls_offer(target, server_name, socket).await,
                Err(error) => TlsOffer::Unusable(error.to_string()),
            }
        }
    };
    Ok(Offer {
        protocol,
        product,
        tls,
    })
}

async fn tls_offer(target: &Target, server_name: &str, socket: Box<dyn Socket>) -> TlsOffer {
    let tls = Tls::Verify {
        ca: None,
        fingerprints: Vec::new(),
        server_name: server_name.to_owned(),
        identity: None,
    };
    let start = match TlsStart::new(&tls) {
        Ok(Some(start)) => start,
        Ok(None) => return TlsOffer::Off,
        Err(error) => return TlsOffer::Unusable(error.to_string()),
    };
    match start.connect(socket, target).await {
        Ok(_) => TlsOffer::Verified,
        Err(error) => not_verified(&error),
    }
}

fn not_verified(error: &io::Error) -> TlsOffer {
    let Some(tls) = messages::tls_inside(error) else {
        return TlsOffer::Unusable(messages::io(error));
    };
    match untrusted_fingerprint(tls) {
        Some(fingerprint) => TlsOffer::Untrusted(fingerprint),
        None => TlsOffer::Unusable(with_server(tls)),
    }
}

async fn dial(target: &Target) -> Result<Box<dyn Socket>, String> {
    stream::dial(target)
        .await
        .map_err(|error| messages::io(&error))
}
