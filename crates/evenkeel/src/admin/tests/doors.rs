//! Tests the sockets: modes, limits and existing files.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::sync::Arc;

use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::world::{DEADLINE, World, exchange, raw};
use crate::admin::routes::router;
use crate::admin::{
    AdminSettings, AdminTransport, CLOSING_TIME_MAX, CONNECTION_AGE_MAX, CONNECTIONS_MAX,
    HEADER_TIMEOUT, bind_socket, serve_connection,
};
use crate::status::{ControlHandle, StatusSelection, Stopped};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_socket_and_its_directory_are_the_owners_alone() {
    let world = World::start(None).await;
    assert_eq!(mode(&world.socket), 0o600);
    assert_eq!(mode(world.socket.parent().unwrap()), 0o700);
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("evenkeel.sock");
    // A dropped listener does not remove its file.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _listener = bind_socket(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn a_live_socket_is_left_alone() {
    let world = World::start(None).await;
    let error = bind_socket(&world.socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let message = error.to_string();
    assert!(
        message.contains("another process listens on it"),
        "{message}"
    );
    assert!(
        message.contains(world.socket.to_str().unwrap()),
        "{message}"
    );
    assert_eq!(world.unix("GET /healthz", &["host: x"], "").await.code, 200);
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious.txt");
    std::fs::write(&path, "data").unwrap();
    let error = bind_socket(&path).unwrap_err();
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
}

#[tokio::test]
async fn a_directory_where_everybody_may_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let open = directory.path().join("open");
    std::fs::DirBuilder::new()
        .mode(0o777)
        .create(&open)
        .unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = bind_socket(&open.join("evenkeel.sock")).unwrap_err();
    assert!(
        error.to_string().contains("writable by everyone"),
        "{error}"
    );
}

#[tokio::test]
async fn surplus_connections_are_refused_and_the_unix_socket_stays_reachable() {
    let world = World::start(None).await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        held.push(TcpStream::connect(world.tcp).await.unwrap());
    }
    let mut surplus = TcpStream::connect(world.tcp).await.unwrap();
    let mut text = String::new();
    let reading = surplus.read_to_string(&mut text);
    tokio::time::timeout(DEADLINE, reading)
        .await
        .expect("closed at once")
        .unwrap();
    assert!(
        text.starts_with("HTTP/1.1 503 ") && text.contains("too many"),
        "{text}"
    );

    assert_eq!(world.unix("GET /healthz", &["host: x"], "").await.code, 200);

    drop(held.pop());
    let request = raw("GET /healthz", &[&format!("host: {}", world.tcp)], "");
    let again = async {
        loop {
            let stream = TcpStream::connect(world.tcp).await.unwrap();
            match exchange(stream, &request).await {
                Ok(answer) if answer.code == 200 => return,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(DEADLINE, again)
        .await
        .expect("a place that is given back is used again");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_loses_its_place() {
    let world = World::start(None).await;
    let mut silent = TcpStream::connect(world.tcp).await.unwrap();
    let started = tokio::time::Instant::now();
    let mut bytes = Vec::new();
    // The clock is paused: it advances to the next timer when all tasks wait.
    let _ = silent.read_to_end(&mut bytes).await;
    assert!(
        started.elapsed() <= HEADER_TIMEOUT * 2,
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::start(None).await;
    let stream = UnixStream::connect(&world.socket).await.unwrap();
    let request = "POST /api/v1/reload HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
        content-length: 2\r\nconnection: close\r\n\r\n{";
    let answer = exchange(stream, request).await.unwrap();
    assert_eq!(answer.code, 408, "{}", answer.body);
    assert!(world.commands().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_reading_loses_its_place() {
    let (control, _requests) = ControlHandle::channel();
    let app = TowerToHyperService::new(router(AdminSettings::default(), control));
    let never = tokio::sync::watch::channel(false).1;
    let permits = Arc::new(Semaphore::new(1));
    let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
    // The page does not fit into this pipe, and the client does not read.
    let (mut client, server) = tokio::io::duplex(512);
    let serving = tokio::spawn(serve_connection(
        server,
        AdminTransport::Unix,
        (app, never),
        permit,
    ));
    client
        .write_all(raw("GET /app.js", &["host: x"], "").as_bytes())
        .await
        .unwrap();
    let limit = CONNECTION_AGE_MAX + CLOSING_TIME_MAX * 2;
    tokio::time::timeout(limit, serving)
        .await
        .expect("it is cut off")
        .unwrap();
    assert_eq!(permits.available_permits(), 1);
}

#[tokio::test]
async fn a_control_plane_that_is_gone_is_reported() {
    let (control, requests) = ControlHandle::channel();
    drop(requests);
    assert_eq!(
        control
            .status(StatusSelection::default())
            .await
            .unwrap_err(),
        Stopped
    );
}
