//! Detects when a group has elected its primary, by querying the members every few milliseconds.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use mysql_async::prelude::Queryable;
use tokio::runtime::Builder;
use tokio::time::sleep;

const IS_PRIMARY: &str = "SELECT count(*) FROM performance_schema.replication_group_members \
                          WHERE MEMBER_ID = @@server_uuid AND MEMBER_ROLE = 'PRIMARY'";
const INTERVAL: Duration = Duration::from_millis(5);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Queries to the members that are not the primary, until drop.
pub(super) struct Election {
    elected: Receiver<SystemTime>,
    /// Kept alive while the queries are needed.
    _wanted: Arc<()>,
}

impl Election {
    /// Connects to all members.
    pub(super) fn among(members: &[SocketAddr]) -> Result<Election> {
        let wanted = Arc::new(());
        let (ready, are_ready) = channel();
        let (notifier, elected) = channel();
        for &address in members {
            let (ready, notifier, wanted) =
                (ready.clone(), notifier.clone(), Arc::downgrade(&wanted));
            let runtime = Builder::new_current_thread().enable_all().build()?;
            thread::spawn(move || runtime.block_on(ask(address, &ready, &notifier, &wanted)));
        }
        for _ in members {
            are_ready.recv_timeout(CONNECT_LIMIT)??;
        }
        Ok(Election {
            elected,
            _wanted: wanted,
        })
    }

    /// Returns when a member first considered itself the primary; `None` if none has yet.
    pub(super) fn decided_at(&self) -> Option<SystemTime> {
        self.elected.try_iter().min()
    }
}

async fn ask(
    address: SocketAddr,
    ready: &Sender<Result<()>>,
    notifier: &Sender<SystemTime>,
    wanted: &Weak<()>,
) {
    let mut connection = match connect(address).await {
        Ok(connection) => connection,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    while wanted.strong_count() > 0 {
        sleep(INTERVAL).await;
        match connection.query_first::<u64, _>(IS_PRIMARY).await {
            Ok(Some(0)) => {}
            Ok(_) => {
                let _ = notifier.send(SystemTime::now());
                return;
            }
            Err(_) => return,
        }
    }
}

async fn connect(address: SocketAddr) -> Result<mysql_async::Conn> {
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("monitor"))
        .pass(Some("monitor"))
        .prefer_socket(false);
    Ok(mysql_async::Conn::new(options).await?)
}
