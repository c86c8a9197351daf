//! Whether clients get answers from a server that does not answer us: then it is busy, not dead.

use std::time::Duration;

use evenkeel_proxy::Server;

/// Asks, and says whether the server answered clients in the last half of `limit`, while we
/// still waited for it.
pub(super) async fn with_traffic_check<T>(
    server: &Server,
    limit: Duration,
    asking: impl Future<Output = T>,
) -> (T, bool) {
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => return (answer, false),
        () = tokio::time::sleep(limit / 2) => {}
    }
    let before = server.counters.bytes.to_clients();
    let answer = asking.await;
    (answer, server.counters.bytes.to_clients() > before)
}

/// Ends when no client has got anything from the server for the last half of `limit`.
pub(super) async fn gives_nothing(server: &Server, limit: Duration) {
    tokio::time::sleep(limit / 2).await;
    loop {
        let before = server.counters.bytes.to_clients();
        tokio::time::sleep(limit / 2).await;
        if server.counters.bytes.to_clients() == before {
            return;
        }
    }
}
