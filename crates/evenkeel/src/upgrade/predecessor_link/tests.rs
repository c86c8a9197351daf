//! Tests connections to processes that send valid or invalid messages.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;

use super::*;
use crate::upgrade::channel::Channel;

const LIMIT: Duration = Duration::from_secs(10);

/// A running process, its end of the connection, and this process's end.
struct TestLink {
    process: Child,
    theirs: UnixStream,
    link: PredecessorLink,
    events: UnboundedReceiver<PredecessorEvent>,
}

impl TestLink {
    fn start() -> TestLink {
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        let (theirs, ours) = UnixStream::pair().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let link = PredecessorLink::new(process.id(), ours.into(), sender).unwrap();
        TestLink {
            process,
            theirs,
            link,
            events,
        }
    }

    fn report(&self, sessions: u64) {
        let report = DrainReport {
            sessions,
            ..DrainReport::default()
        };
        let mut channel = Channel::new(self.theirs.try_clone().unwrap()).unwrap();
        channel
            .send(&OldProcessMessage::Report(Box::new(report)))
            .unwrap();
    }

    async fn next_sessions(&mut self) -> Option<u64> {
        match timeout(LIMIT, self.events.recv()).await.unwrap().unwrap() {
            PredecessorEvent::Report(report) => Some(report.sessions),
            PredecessorEvent::Gone => None,
        }
    }

    /// Returns whether no event arrives while other tasks run.
    async fn is_silent(&mut self) -> bool {
        let pause = Duration::from_millis(50);
        timeout(pause, self.events.recv()).await.is_err()
    }
}

impl Drop for TestLink {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn reports_and_messages_arrive_as_they_were_sent() {
    let mut test_link = TestLink::start();
    test_link.report(3);
    test_link.report(4);
    assert_eq!(test_link.next_sessions().await, Some(3));
    assert_eq!(test_link.next_sessions().await, Some(4));
    test_link.link.end_draining().unwrap();
    test_link.link.send_stopping();
    let mut channel = Channel::new(test_link.theirs.try_clone().unwrap()).unwrap();
    let mut next = || {
        channel
            .receive::<NewProcessMessage>(Some(Instant::now() + LIMIT))
            .unwrap()
    };
    assert!(matches!(next(), NewProcessMessage::EndDraining));
    assert!(matches!(next(), NewProcessMessage::Stopping));
}

#[tokio::test]
async fn a_process_that_has_closed_the_connection_cannot_be_asked_to_end() {
    let mut test_link = TestLink::start();
    test_link.theirs.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(test_link.is_silent().await);
    assert!(test_link.link.end_draining().is_err());
}

#[tokio::test]
async fn a_process_that_is_not_understood_is_gone_when_it_has_ended() {
    let mut test_link = TestLink::start();
    test_link.theirs.write_all(b"\0\0\0\x02{}").unwrap();
    assert!(test_link.is_silent().await);
    test_link.process.kill().unwrap();
    assert_eq!(test_link.next_sessions().await, None);
}

#[tokio::test]
async fn a_process_that_has_hung_up_is_gone_when_it_has_ended() {
    let mut test_link = TestLink::start();
    test_link.theirs.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(test_link.is_silent().await);
    test_link.process.kill().unwrap();
    assert_eq!(test_link.next_sessions().await, None);
}
