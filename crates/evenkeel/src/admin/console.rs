//! Serves the console: an admin database for PostgreSQL and MySQL clients, with the same tables and
//! commands for both, in PgBouncer's terms.
//!
//! Reading needs no authentication on loopback. The user `admin` must send the token as its
//! password, and may change things. Clients from other machines always need the token.

mod command;
mod command_runner;
mod error;
mod guard;
mod mysql;
mod postgres;
mod show;
mod sqlite;
mod stats;
mod stream;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{AdminSettings, CONNECTIONS_MAX, Closing, accepted, closed};
use crate::status::ControlHandle;
use guard::Guard;
use sqlite::SelectRunner;
use stats::Averages;
use stream::Stream;

/// State that all connections share.
#[derive(Clone)]
struct Console {
    control: ControlHandle,
    guard: Arc<Guard>,
    averages: Arc<Averages>,
    select_runner: Arc<SelectRunner>,
}

/// Protocol of a console's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Postgres,
    Mysql,
}

impl Dialect {
    /// Returns the version that the console reports.
    fn version(self) -> &'static str {
        match self {
            Self::Postgres => postgres::VERSION,
            Self::Mysql => mysql::VERSION,
        }
    }
}

/// Listener for the clients of a dialect. `None`: not served.
pub(super) type ConsoleListener = (Option<TcpListener>, Dialect);

/// Serves until dropped or until `closing` becomes true, when connections end too.
pub(super) async fn serve(
    consoles: [ConsoleListener; 2],
    settings: &AdminSettings,
    control: ControlHandle,
    closing: Closing,
) {
    if consoles.iter().all(|(listener, _)| listener.is_none()) {
        return;
    }
    let console = Console {
        control: control.clone(),
        guard: Arc::new(Guard::new(settings.token.as_deref())),
        averages: Arc::default(),
        select_runner: Arc::default(),
    };
    let mut keeper = JoinSet::new();
    keeper.spawn(stats::keep(Arc::clone(&console.averages), control));
    let [one, other] =
        consoles.map(|console_listener| listen(console_listener, &console, closing.clone()));
    tokio::join!(one, other);
}

async fn listen((listener, dialect): ConsoleListener, console: &Console, mut closing: Closing) {
    let Some(listener) = listener else { return };
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut tasks = JoinSet::new();
    loop {
        let outcome = tokio::select! {
            outcome = listener.accept() => outcome,
            () = closed(&mut closing) => return,
        };
        let Some((stream, peer)) = accepted(outcome).await else {
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::debug!("console: refused {peer}: {CONNECTIONS_MAX} connections are open");
            continue;
        };
        // Responses are small and sent immediately.
        let _ = stream.set_nodelay(true);
        let console = console.clone();
        tasks.spawn(async move {
            serve_session(&console, dialect, stream, peer.ip()).await;
            drop(permit);
        });
    }
}

/// Serves a client until it disconnects. Errors are ignored: there is no client to report them to.
async fn serve_session(console: &Console, dialect: Dialect, socket: TcpStream, peer: IpAddr) {
    let stream = Stream::new(socket);
    match dialect {
        Dialect::Postgres => drop(postgres::serve_session(console, stream, peer).await),
        Dialect::Mysql => drop(mysql::serve_session(console, stream, peer).await),
    }
}
