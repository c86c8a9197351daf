//! Forwards cancel requests for clients of the old process. They reach the new process, which
//! forwards all unknown ones over a socket; the old process finds the client, if it has it.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use tokio::io::AsyncReadExt;

/// Size of a request: the length of the secret, the process number, the secret, and zeros. A
/// request of this size is written completely or not at all.
const FRAME_BYTES: usize = 64;
const SECRET_AT: usize = 5;

/// Returns the two ends of the socket. Requests sent to the descriptor are received at the other
/// end.
pub(crate) fn pair() -> io::Result<(Receiving, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ours = tokio::net::UnixStream::from_std(ours)?;
    Ok((Receiving(ours), theirs.into()))
}

/// End of the old process.
pub(crate) struct Receiving(tokio::net::UnixStream);

impl Receiving {
    /// Passes each request to `forward` until the new process has closed its end.
    pub(crate) async fn forward_all(mut self, forward: impl Fn(u32, &[u8])) {
        let mut frame = [0; FRAME_BYTES];
        while self.0.read_exact(&mut frame).await.is_ok() {
            if let Some((process, secret)) = read(&frame) {
                forward(process, secret);
            }
        }
    }
}

/// End of the new process.
pub(crate) struct Sending(UnixStream);

impl Sending {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Sending> {
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Sending(stream))
    }

    /// Forwards a request with its process number and secret. Returns whether it could be sent to
    /// the old process.
    pub(crate) fn send(&self, process: u32, secret: &[u8]) -> bool {
        let Some(frame) = frame(process, secret) else {
            return false;
        };
        // A cancel request has no reply: the client cannot be notified of an error.
        let sent = (&self.0).write_all(&frame).inspect_err(|error| {
            tracing::debug!("cannot forward cancel request to the old process: {error}");
        });
        sent.is_ok()
    }
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
        let sending = Sending::new(theirs).unwrap();
        let long = vec![7; FRAME_BYTES - SECRET_AT];
        assert!(sending.send(5, b"abcd"));
        assert!(sending.send(u32::MAX, &long));
        assert!(!sending.send(1, &[0; FRAME_BYTES]), "too long");
        drop(sending);
        let received = std::cell::RefCell::new(Vec::new());
        receiving
            .forward_all(|process, secret| received.borrow_mut().push((process, secret.to_vec())))
            .await;
        let expected = vec![(5, b"abcd".to_vec()), (u32::MAX, long)];
        assert_eq!(received.into_inner(), expected);
    }

    #[tokio::test]
    async fn a_request_to_a_process_that_has_exited_is_not_sent() {
        let (receiving, theirs) = pair().unwrap();
        let sending = Sending::new(theirs).unwrap();
        drop(receiving);
        assert!(!sending.send(5, b"abcd"));
    }
}
