//! Opens a probe's connection to either kind of address, and checks its first bytes.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use evenkeel_wire::proxy_header::{self, ProxyVersion};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::{Target, TargetAddress};

/// Number of first bytes kept for the error text.
const HEARD_BYTES_MAX: usize = 32;
/// Maximum length of a reply to a health check; also limits the memory that a faulty peer can
/// occupy.
const READ_BYTES_MAX: usize = 16 << 20;

/// A socket of either family.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// Connects, and sends the PROXY header of the target.
pub(crate) async fn dial(target: &Target) -> io::Result<Box<dyn Socket>> {
    let mut socket: Box<dyn Socket> = match &target.address {
        TargetAddress::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        TargetAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
    };
    let header = match target.proxy_header {
        None => return Ok(socket),
        Some(ProxyVersion::V1) => proxy_header::encode_v1_unknown(),
        Some(ProxyVersion::V2) => proxy_header::encode_v2_local(),
    };
    socket.write_all(header).await?;
    Ok(socket)
}

/// Returns whether these first bytes, however few, may start a valid message of the protocol.
pub(super) type Plausible = fn(&[u8]) -> bool;

/// The first bytes that the peer sent, shared with their stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedPrefix(Arc<Mutex<FirstBytes>>);

#[derive(Debug, Default)]
struct FirstBytes {
    bytes: Vec<u8>,
    implausible: bool,
    /// Bytes of the current reply.
    read_bytes: usize,
}

impl ReceivedPrefix {
    /// Returns the first bytes, if the protocol does not allow them.
    pub(super) fn implausible(&self) -> Option<Vec<u8>> {
        let received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        received.implausible.then(|| received.bytes.clone())
    }

    /// Restarts the byte count for the next reply.
    pub(crate) fn next_answer(&self) {
        let mut received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        received.read_bytes = 0;
    }

    fn check_first_bytes(&self, new: &[u8], plausible: Plausible) -> io::Result<()> {
        let mut received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        received.read_bytes += new.len();
        if received.read_bytes > READ_BYTES_MAX {
            return Err(io::Error::other("response exceeds 16 MiB"));
        }
        let room = HEARD_BYTES_MAX.saturating_sub(received.bytes.len());
        if room == 0 || new.is_empty() {
            return Ok(());
        }
        received
            .bytes
            .extend_from_slice(&new[..room.min(new.len())]);
        received.implausible = !plausible(&received.bytes);
        if received.implausible {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not the expected protocol",
            ));
        }
        Ok(())
    }
}

/// A stream that fails as soon as the peer's first bytes are implausible, and after too many bytes
/// in one reply.
///
/// The check comes before the protocol libraries: they would take the text of a banner for the
/// length of a message and wait for gigabytes.
pub(super) struct CheckedStream {
    inner: Box<dyn Socket>,
    received: ReceivedPrefix,
    plausible: Plausible,
}

impl CheckedStream {
    pub(super) fn new(inner: Box<dyn Socket>, plausible: Plausible) -> (Self, ReceivedPrefix) {
        let received = ReceivedPrefix::default();
        (
            Self {
                inner,
                received: received.clone(),
                plausible,
            },
            received,
        )
    }
}

impl AsyncRead for CheckedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        self.received.check_first_bytes(new, self.plausible)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CheckedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
