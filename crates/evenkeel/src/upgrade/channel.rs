//! Exchanges length-prefixed messages and descriptors between two processes over a socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message. The state of ten thousand servers is far smaller, so a larger message is
/// invalid.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

const LENGTH_BYTES: usize = 4;

/// Time limit of a send before the new process serves, if the peer reads nothing.
const SEND_LIMIT: Duration = Duration::from_secs(2);

/// Removes and returns the next message from the received bytes, if it is complete.
pub(crate) fn next_in<T: DeserializeOwned>(bytes: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let end = LENGTH_BYTES + body_bytes(*length)?;
    let Some(body) = bytes.get(LENGTH_BYTES..end) else {
        return Ok(None);
    };
    let message = serde_json::from_slice(body)?;
    bytes.drain(..end);
    Ok(Some(message))
}

/// Serializes a message, prefixed by its length.
pub(crate) fn message(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(content)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(body);
    Ok(bytes)
}

fn body_bytes(length: [u8; LENGTH_BYTES]) -> io::Result<usize> {
    match u32::from_be_bytes(length) as usize {
        length if length <= MESSAGE_BYTES_MAX => Ok(length),
        length => Err(io::Error::other(format!(
            "message too long ({length} bytes)"
        ))),
    }
}

/// One end of the socket. Blocking, with a deadline for each message.
pub(crate) struct Channel {
    stream: UnixStream,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Channel> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(SEND_LIMIT))?;
        Ok(Channel { stream })
    }

    /// Removes the time limit of sends: from now on they wait as long as the peer lives.
    pub(crate) fn clear_timeout(&self) -> io::Result<()> {
        self.stream.set_write_timeout(None)
    }

    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&self::message(message)?)
    }

    /// Receives the next message. Without a deadline this waits as long as the peer lives.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        deadline: Option<Instant>,
    ) -> io::Result<T> {
        let mut length = [0; LENGTH_BYTES];
        self.read_exact(&mut length, deadline)?;
        let mut body = vec![0; body_bytes(length)?];
        self.read_exact(&mut body, deadline)?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Sends a descriptor, attached to a single byte.
    pub(crate) fn send_descriptor(&mut self, descriptor: &impl AsFd) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("cannot attach file descriptor"));
        }
        let carrier = [IoSlice::new(&[0])];
        sendmsg(&self.stream, &carrier, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a descriptor.
    pub(crate) fn receive_descriptor(&mut self, deadline: Option<Instant>) -> io::Result<OwnedFd> {
        self.wait_until(deadline)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut carrier = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        recvmsg(&self.stream, &mut carrier, &mut control, flags)?;
        let passed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        passed.ok_or_else(|| io::Error::other("expected file descriptor not received"))
    }

    fn read_exact(&mut self, mut into: &mut [u8], deadline: Option<Instant>) -> io::Result<()> {
        while !into.is_empty() {
            self.wait_until(deadline)?;
            match self.stream.read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until the socket is readable. Polls it even after the deadline: a process that was not
    /// scheduled for a while must not mistake arrived data for silence.
    fn wait_until(&self, deadline: Option<Instant>) -> io::Result<()> {
        let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let remaining = remaining.map(Timespec::try_from).transpose();
        let remaining = remaining.map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut ready, remaining.as_ref()) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => Ok(()),
            Err(Errno::INTR) => self.wait_until(deadline),
            Err(error) => Err(error.into()),
        }
    }
}
