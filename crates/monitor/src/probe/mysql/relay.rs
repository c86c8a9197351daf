//! Relays one connection of the MySQL library, where it must begin in a way that the library cannot
//! do: with a PROXY header, or with TLS that accepts the certificates of the configuration.
//!
//! The library opens its connections itself. It connects to the relay instead: over the loopback
//! interface without TLS, and over a Unix socket with TLS, which it takes for as safe as TLS.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncWriteExt, copy, split},
    net::{TcpListener, UnixListener},
    time::timeout,
};

use super::encrypt::{self, LoginEnd, Packets};
use crate::probe::{
    ProbeFailure, Target,
    stream::{self, Socket},
    tls::TlsStart,
};

/// Time for the library to connect to this machine.
const ACCEPT_MS_MAX: u64 = 1_000;
/// Time for the server to close its side; then the connection is dropped anyway.
const GOODBYE_MS_MAX: u64 = 100;

/// Number of relays so far: each has a socket of its own name.
static RELAYS: AtomicU64 = AtomicU64::new(0);

/// Address at which one connection is relayed, and why it was not.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) address: RelayAddress,
    failure: Arc<Mutex<Option<ProbeFailure>>>,
}

/// Address of a relay on this machine.
#[derive(Debug)]
pub(super) enum RelayAddress {
    /// Relays to the server without TLS.
    Plain(SocketAddr),
    /// Name of an abstract Unix socket; TLS is between the relay and the server.
    Encrypted(String),
}

impl Relay {
    /// Returns the reason for which the relay has closed the connection, if it has.
    pub(super) fn take_failure(&self) -> Option<ProbeFailure> {
        lock(&self.failure).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the server, and relays one connection to it.
///
/// Another process of this machine could take that connection. It would reach the server as it does
/// without the relay, because the header has no client's address; the probe would fail.
pub(super) async fn start(target: &Target, tls: Option<Arc<TlsStart>>) -> io::Result<Relay> {
    let server = stream::dial(target).await?;
    let failure = Arc::default();
    let address = match tls {
        None => RelayAddress::Plain(relay_plainly(server).await?),
        Some(tls) => {
            let target = target.clone();
            RelayAddress::Encrypted(relay_encrypted(
                server,
                (tls, target),
                Arc::clone(&failure),
            )?)
        }
    };
    Ok(Relay { address, failure })
}

async fn relay_plainly(server: Box<dyn Socket>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let accept = timeout(Duration::from_millis(ACCEPT_MS_MAX), listener.accept());
        if let Ok(Ok((client, _))) = accept.await {
            drop(listener);
            if client.set_nodelay(true).is_ok() {
                // Either side learns of an error by the end of its connection.
                let _ = relay(client, server).await;
            }
        }
    });
    Ok(address)
}

fn relay_encrypted(
    server: Box<dyn Socket>,
    (tls, target): (Arc<TlsStart>, Target),
    failure: Arc<Mutex<Option<ProbeFailure>>>,
) -> io::Result<String> {
    let number = RELAYS.fetch_add(1, Relaxed);
    // A zero byte in front makes the name one that exists in no directory.
    let name = format!("\0evenkeel-monitor-{}-{number}", std::process::id());
    let listener = UnixListener::bind(&name)?;
    tokio::spawn(async move {
        let accept = timeout(Duration::from_millis(ACCEPT_MS_MAX), listener.accept());
        let Ok(Ok((client, _))) = accept.await else {
            return;
        };
        drop(listener);
        let mut client = Packets::new(client);
        match encrypt::log_in(&mut client, server, &tls, &target).await {
            Ok(LoginEnd::Replied(server)) => {
                let _ = relay(client.into_socket(), server).await;
            }
            Ok(LoginEnd::Known) => {}
            Err(why) => {
                *lock(&failure) = Some(why);
            }
        }
    });
    Ok(name)
}

async fn relay(client: impl Socket, server: impl Socket) -> io::Result<()> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let mut to_end = Box::pin(copy(&mut from_server, &mut to_client));
    tokio::select! {
        ended = &mut to_end => ended?,
        ended = copy(&mut from_client, &mut to_server) => {
            ended?;
            to_server.shutdown().await?;
            match timeout(Duration::from_millis(GOODBYE_MS_MAX), to_end).await {
                Ok(ended) => ended?,
                Err(_) => 0,
            }
        }
    };
    Ok(())
}
