//! The console: an admin database that any PostgreSQL client can reach, in PgBouncer's words.
//!
//! Reading is free on loopback. The user `admin` is asked for the token as its password and may
//! change things; from other machines everybody is asked for it.

mod command;
mod login;
mod session;
mod show;
mod stats;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{AdminSettings, CONNECTIONS_MAX, Closing, accepted, closed};
use crate::status::ControlHandle;
use login::Guard;
use stats::Averages;
use stream::Stream;

/// What all connections share.
#[derive(Clone)]
struct Console {
    control: ControlHandle,
    guard: Arc<Guard>,
    averages: Arc<Averages>,
}

/// Serves until dropped or `closing`; connections end with it.
pub(super) async fn serve(
    listener: Option<TcpListener>,
    settings: &AdminSettings,
    control: ControlHandle,
    mut closing: Closing,
) {
    let Some(listener) = listener else { return };
    let console = Console {
        control: control.clone(),
        guard: Arc::new(Guard::new(settings.token.as_deref())),
        averages: Arc::default(),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut tasks = JoinSet::new();
    tasks.spawn(stats::keep(Arc::clone(&console.averages), control));
    loop {
        let outcome = tokio::select! {
            outcome = listener.accept() => outcome,
            () = closed(&mut closing) => return,
        };
        let Some((stream, peer)) = accepted(outcome).await else {
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::debug!("console: refused {peer}: {CONNECTIONS_MAX} connections are open");
            continue;
        };
        // Answers are small and written at once.
        let _ = stream.set_nodelay(true);
        let console = console.clone();
        tasks.spawn(async move {
            // An error is the client's leaving: there is nobody to tell.
            let _ = session::converse(&console, Stream::new(stream), peer.ip()).await;
            drop(place);
        });
    }
}
