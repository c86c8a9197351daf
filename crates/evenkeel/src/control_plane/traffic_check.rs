//! Checks whether clients receive responses from a server that does not respond to the monitor:
//! such a server is busy, not down.

use std::time::Duration;

use evenkeel_proxy::Server;

/// Awaits `query`. Also returns whether clients received bytes from the server after half of
/// `limit`, while `query` was pending.
pub(super) async fn with_traffic_check<T>(
    server: &Server,
    limit: Duration,
    query: impl Future<Output = T>,
) -> (T, bool) {
    tokio::pin!(query);
    tokio::select! {
        answer = &mut query => return (answer, false),
        () = tokio::time::sleep(limit / 2) => {}
    }
    let before = server.counters.bytes.to_clients();
    let answer = query.await;
    (answer, server.counters.bytes.to_clients() > before)
}

/// Returns once clients have received nothing from the server for half of `limit`, not before
/// `limit` has passed.
pub(super) async fn await_silence(server: &Server, limit: Duration) {
    tokio::time::sleep(limit / 2).await;
    loop {
        let before = server.counters.bytes.to_clients();
        tokio::time::sleep(limit / 2).await;
        if server.counters.bytes.to_clients() == before {
            return;
        }
    }
}
