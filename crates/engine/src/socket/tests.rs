//! Tests of sends on the driver of epoll, with a scripted peer.

use std::future::poll_fn;
use std::task::Poll;

use crate::scripted::{Stage, connected};

/// A task that has sent its last bytes waits for the reply, and polls the send no more.
#[test]
fn bytes_that_the_socket_did_not_take_are_sent_without_a_poll() {
    let stage = Stage::new().unwrap();
    let (socket, peer) = connected();
    peer.set_room(3);
    socket
        .send_own(stage.worker(), b"request".to_vec())
        .unwrap();
    assert_eq!((peer.take(), socket.is_sent()), (b"req".to_vec(), false));
    peer.set_room(2);
    assert_eq!((peer.take(), socket.is_sent()), (b"ue".to_vec(), false));
    peer.set_room(100);
    assert_eq!((peer.take(), socket.is_sent()), (b"st".to_vec(), true));
}

#[test]
fn a_task_that_waits_for_its_send_is_woken() {
    let stage = Stage::new().unwrap();
    let (socket, peer) = connected();
    peer.set_room(0);
    socket.send_own(stage.worker(), b"one".to_vec()).unwrap();
    let worker = std::rc::Rc::clone(stage.worker());
    stage.worker().spawn(async move {
        poll_fn(|context| socket.poll_sent(context)).await.unwrap();
        socket.send_own(&worker, b"two".to_vec()).unwrap();
        std::future::pending::<()>().await;
    });
    stage.settle();
    peer.set_room(100);
    stage.settle();
    assert_eq!(peer.take(), b"onetwo");
}

#[test]
fn a_failed_send_is_reported_by_the_next_poll() {
    let stage = Stage::new().unwrap();
    let (socket, peer) = connected();
    peer.set_room(0);
    socket.send_own(stage.worker(), b"lost".to_vec()).unwrap();
    peer.reset();
    stage.worker().spawn(async move {
        let sent = poll_fn(|context| Poll::Ready(socket.poll_sent(context))).await;
        assert!(matches!(sent, Poll::Ready(Err(_))), "{sent:?}");
    });
    stage.settle();
}
