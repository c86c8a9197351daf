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
struct Talk {
    process: Child,
    theirs: UnixStream,
    line: PredecessorLink,
    heard: UnboundedReceiver<PredecessorEvent>,
}

impl Talk {
    fn start() -> Talk {
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        let (theirs, ours) = UnixStream::pair().unwrap();
        let (told, heard) = mpsc::unbounded_channel();
        let line = PredecessorLink::new(process.id(), ours.into(), told).unwrap();
        Talk {
            process,
            theirs,
            line,
            heard,
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
        match timeout(LIMIT, self.heard.recv()).await.unwrap().unwrap() {
            PredecessorEvent::Report(report) => Some(report.sessions),
            PredecessorEvent::Gone => None,
        }
    }

    /// Returns whether no event arrives while other tasks run.
    async fn is_silent(&mut self) -> bool {
        let pause = Duration::from_millis(50);
        timeout(pause, self.heard.recv()).await.is_err()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn reports_and_messages_arrive_as_they_were_sent() {
    let mut talk = Talk::start();
    talk.report(3);
    talk.report(4);
    assert_eq!(talk.next_sessions().await, Some(3));
    assert_eq!(talk.next_sessions().await, Some(4));
    talk.line.end_draining().unwrap();
    talk.line.say_stopping();
    let mut channel = Channel::new(talk.theirs.try_clone().unwrap()).unwrap();
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
    let mut talk = Talk::start();
    talk.theirs.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(talk.is_silent().await);
    assert!(talk.line.end_draining().is_err());
}

#[tokio::test]
async fn a_process_that_is_not_understood_is_gone_when_it_has_ended() {
    let mut talk = Talk::start();
    talk.theirs.write_all(b"\0\0\0\x02{}").unwrap();
    assert!(talk.is_silent().await);
    talk.process.kill().unwrap();
    assert_eq!(talk.next_sessions().await, None);
}

#[tokio::test]
async fn a_process_that_has_hung_up_is_gone_when_it_has_ended() {
    let mut talk = Talk::start();
    talk.theirs.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(talk.is_silent().await);
    talk.process.kill().unwrap();
    assert_eq!(talk.next_sessions().await, None);
}
