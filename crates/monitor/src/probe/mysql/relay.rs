//! Relays one connection to a server that expects a PROXY header.
//!
//! The MySQL library opens its connections itself, and cannot send anything before the login. It
//! connects to the relay instead, on the loopback interface.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncWriteExt, copy, split},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::probe::{
    Target,
    stream::{self, Socket},
};

/// Time for the library to connect to this machine.
const ACCEPT_MS_MAX: u64 = 1_000;
/// Time for the server to close its side; then the connection is dropped anyway.
const GOODBYE_MS_MAX: u64 = 100;

/// Connects to the server, and returns the address at which one connection is relayed.
///
/// Another process of this machine could take that connection. It would reach the server as it does
/// without the relay, because the header has no client's address; the probe would fail.
pub(super) async fn start(target: &Target) -> io::Result<SocketAddr> {
    let server = stream::dial(target).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let accept = timeout(Duration::from_millis(ACCEPT_MS_MAX), listener.accept());
        if let Ok(Ok((client, _))) = accept.await {
            drop(listener);
            // Either side learns of an error by the end of its connection.
            let _ = relay(client, server).await;
        }
    });
    Ok(address)
}

async fn relay(client: TcpStream, server: Box<dyn Socket>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
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
