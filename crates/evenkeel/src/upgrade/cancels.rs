//! Cancel requests for clients of earlier processes: they reach the new one, which sends them on to
//! all of these over sockets of their own. Whose client is meant, each sees for itself.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tokio::io::AsyncReadExt;

/// One request: the length of the secret, the process number, the secret, and zeros. So short that
/// it is written as a whole or not at all.
const FRAME_BYTES: usize = 64;
const SECRET_AT: usize = 5;

/// Two ends: what is sent into the descriptor comes out of the other one.
pub(crate) fn pair() -> io::Result<(Receiving, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ours = tokio::net::UnixStream::from_std(ours)?;
    Ok((Receiving(ours), theirs.into()))
}

/// The end of the earlier process.
pub(crate) struct Receiving(tokio::net::UnixStream);

impl Receiving {
    /// Hands on each request until the new process is gone.
    pub(crate) async fn each(mut self, hand_on: impl Fn(u32, &[u8])) {
        let mut frame = [0; FRAME_BYTES];
        while self.0.read_exact(&mut frame).await.is_ok() {
            if let Some((process, secret)) = read(&frame) {
                hand_on(process, secret);
            }
        }
    }
}

/// The ends of the new process, the last process's and those that it had itself.
#[derive(Clone, Default)]
pub(crate) struct PredecessorSockets(Arc<Vec<UnixStream>>);

impl PredecessorSockets {
    pub(crate) fn new(sockets: Vec<OwnedFd>) -> io::Result<PredecessorSockets> {
        let streams = sockets.into_iter().map(UnixStream::from);
        let mut formers = Vec::new();
        for stream in streams {
            stream.set_nonblocking(true)?;
            formers.push(stream);
        }
        Ok(PredecessorSockets(Arc::new(formers)))
    }

    /// Sends a request on: the process number and the secret. Whether an earlier process lives that
    /// takes it.
    pub(crate) fn send(&self, process: u32, secret: &[u8]) -> bool {
        let Some(frame) = frame(process, secret) else {
            return false;
        };
        let mut is_sent = false;
        for mut former in self.0.iter() {
            match former.write_all(&frame) {
                Ok(()) => is_sent = true,
                // There is nobody to tell: a cancel request has no answer.
                Err(error) => {
                    tracing::debug!("a cancel request does not reach an earlier process: {error}");
                }
            }
        }
        is_sent
    }

    /// Once more, for the next process: those that still live.
    pub(crate) fn descriptors(&self) -> Vec<OwnedFd> {
        let alive = self.0.iter().filter(|former| is_alive(former));
        let copies = alive.filter_map(|former| former.try_clone().ok());
        copies.map(OwnedFd::from).collect()
    }
}

/// Nothing ever comes from there but the end.
fn is_alive(mut former: &UnixStream) -> bool {
    let read = former.read(&mut [0; 1]);
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn frame(process: u32, secret: &[u8]) -> Option<[u8; FRAME_BYTES]> {
    let mut frame = [0; FRAME_BYTES];
    let into = frame.get_mut(SECRET_AT..SECRET_AT + secret.len())?;
    into.copy_from_slice(secret);
    frame[0] = u8::try_from(secret.len()).ok()?;
    frame[1..SECRET_AT].copy_from_slice(&process.to_be_bytes());
    Some(frame)
}

fn read(frame: &[u8; FRAME_BYTES]) -> Option<(u32, &[u8])> {
    let (head, rest) = frame.split_at(SECRET_AT);
    let [length, process @ ..] = head else {
        return None;
    };
    let process = u32::from_be_bytes(process.try_into().ok()?);
    Some((process, rest.get(..usize::from(*length))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_come_out_as_they_were_sent_and_the_end_is_the_end() {
        let (receiving, theirs) = pair().unwrap();
        let formers = PredecessorSockets::new(vec![theirs]).unwrap();
        let long = vec![7; FRAME_BYTES - SECRET_AT];
        assert!(formers.send(5, b"abcd"));
        assert!(formers.send(u32::MAX, &long));
        assert!(!formers.send(1, &[0; FRAME_BYTES]), "too long");
        drop(formers);
        let heard = std::cell::RefCell::new(Vec::new());
        receiving
            .each(|process, secret| heard.borrow_mut().push((process, secret.to_vec())))
            .await;
        let expected = vec![(5, b"abcd".to_vec()), (u32::MAX, long)];
        assert_eq!(heard.into_inner(), expected);
    }

    #[tokio::test]
    async fn processes_that_have_ended_are_not_handed_on() {
        let ((one, first), (other, second)) = (pair().unwrap(), pair().unwrap());
        let formers = PredecessorSockets::new(vec![first, second]).unwrap();
        assert_eq!(formers.descriptors().len(), 2);
        drop(one);
        assert_eq!(formers.descriptors().len(), 1);
        drop(other);
        assert!(formers.descriptors().is_empty());
        assert!(!formers.send(5, b"abcd"), "nobody is there");
    }
}
