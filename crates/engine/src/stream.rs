//! Provides a byte stream to a peer, plain or under TLS, that a session polls.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_tls::{Channel, ClientPolicy, Names};

use crate::socket::{Chunk, Socket};
use crate::timers;
use crate::worker::Worker;

/// Time limit for sending a final message.
const LAST_WORD_LIMIT: Duration = Duration::from_secs(1);

/// Number of encrypted records without content after which other tasks run.
const EMPTY_MAX: usize = 64;

/// A socket and its encryption.
pub struct Stream {
    socket: Socket,
    tls: Option<Box<Channel>>,
    sending: Sending,
}

/// State of the own side of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// More may be sent.
    Open,
    /// The last bytes were handed to the socket, with the end of the encryption.
    Last,
    /// The peer's kernel receives the end after the last bytes.
    Ended,
}

impl Stream {
    /// Creates a stream that is not encrypted.
    pub fn plain(socket: Socket) -> Self {
        Self::with(socket, None)
    }

    /// Creates a stream from its parts.
    pub fn with(socket: Socket, tls: Option<Box<Channel>>) -> Self {
        Self {
            socket,
            tls,
            sending: Sending::Open,
        }
    }

    /// Returns the socket and the state of its encryption.
    pub fn into_parts(self) -> (Socket, Option<Box<Channel>>) {
        (self.socket, self.tls)
    }

    /// Returns the socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Encrypts everything from here on.
    pub fn encrypt(&mut self, channel: Channel) {
        self.tls = Some(Box::new(channel));
    }

    /// Returns whether the peer owes a reply and has been silent for the given time.
    pub fn is_unanswered(&self, limit: Duration) -> bool {
        self.socket.is_unanswered(limit)
    }

    /// Returns whether the stream is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the policy of client certificates under which an HTTP client was accepted. `None`:
    /// the stream is not encrypted.
    pub fn client_policy(&self) -> Option<&ClientPolicy> {
        self.tls.as_ref()?.policy()
    }

    /// Returns the protocol that was negotiated by ALPN (RFC 7301). `None`: none, or the stream is
    /// not encrypted.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn()
    }

    /// Returns whether the stream does not leave this machine.
    pub fn is_local(&self) -> bool {
        self.socket.is_local()
    }

    /// Returns the client's name from its certificate.
    pub fn client_name(&self) -> Option<String> {
        self.tls.as_ref()?.client_name()
    }

    /// Returns the names in a client's certificate.
    pub fn client_certificate_names(&self) -> Option<Names> {
        self.tls.as_ref()?.client_certificate_names()
    }

    /// Returns the hash of the certificate that was sent to a client.
    pub fn fingerprint(&self) -> Option<[u8; 32]> {
        self.tls.as_ref()?.fingerprint()
    }

    /// Returns the channel binding data for a SCRAM login over this stream.
    pub fn end_point(&self) -> Option<Vec<u8>> {
        self.tls.as_ref()?.end_point()
    }

    /// Polls for received bytes; `None`: the peer has ended its sending.
    pub fn poll_chunk<'a>(
        &mut self,
        worker: &'a Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk<'a>>>> {
        let Some(channel) = &mut self.tls else {
            return self.socket.poll_chunk(worker, context);
        };
        // The end may have come with the last read.
        if channel.is_closed() {
            return Poll::Ready(Ok(None));
        }
        for _ in 0..EMPTY_MAX {
            let Poll::Ready(chunk) = self.socket.poll_chunk(worker, context) else {
                return Poll::Pending;
            };
            let Some(chunk) = chunk? else {
                // An end without close_notify may be an attacker's doing.
                return Poll::Ready(channel.ended().map(|()| None).map_err(io::Error::other));
            };
            let mut plain = worker.take_spare();
            let progress = channel.receive(chunk.bytes(), &mut plain);
            drop(chunk);
            let progress = progress.map_err(io::Error::other)?;
            if !plain.is_empty() {
                return Poll::Ready(Ok(Some(Chunk::own(plain))));
            }
            worker.keep_spare(plain);
            if progress.is_closed {
                return Poll::Ready(Ok(None));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Appends further bytes that have arrived, up to a length of `length_max`, with one system
    /// call in place of one for each buffer of the ring. It appends nothing under TLS. Call it
    /// after [`Self::poll_chunk`] has returned a chunk and before it is called again: then no other
    /// receive is in progress.
    pub fn receive_more(&mut self, bytes: &mut Vec<u8>, length_max: usize) -> io::Result<()> {
        if self.tls.is_some() || bytes.len() >= length_max {
            return Ok(());
        }
        match self.socket.receive_more(bytes, length_max) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Polls until the next send may begin.
    pub fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_sent(context)
    }

    /// Polls whether the next send may begin, for a task that has nothing to send now: no task may
    /// be woken when it may.
    pub fn poll_sent_silently(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_sent_silently(context)
    }

    /// Forwards received bytes unchanged.
    pub fn send_chunk(&mut self, worker: &Worker, chunk: Chunk<'_>) -> io::Result<()> {
        let Some(channel) = &mut self.tls else {
            return self.socket.send_chunk(worker, chunk);
        };
        let mut cipher = worker.take_spare();
        let sent = channel.send(chunk.bytes(), &mut cipher);
        sent.map_err(io::Error::other)?;
        self.socket.send_own(worker, cipher)
    }

    /// Sends bytes in memory from [`Worker::take_spare`], which is returned there.
    pub fn send_own(&mut self, worker: &Worker, bytes: Vec<u8>) -> io::Result<()> {
        let Some(channel) = &mut self.tls else {
            return self.socket.send_own(worker, bytes);
        };
        let mut cipher = worker.take_spare();
        let sent = channel.send(&bytes, &mut cipher);
        worker.keep_spare(bytes);
        sent.map_err(io::Error::other)?;
        self.socket.send_own(worker, cipher)
    }

    /// Sends the last bytes; [`Self::poll_end`] ends sending. Both share a segment if the socket
    /// takes all bytes now. The caller must have seen [`Self::poll_sent`] ready.
    pub fn send_last(&mut self, worker: &Worker, bytes: &[u8]) -> io::Result<()> {
        let has_ended = match &mut self.tls {
            None => self.socket.send_last(worker, bytes)?,
            Some(channel) => {
                let mut cipher = worker.take_spare();
                let sent = channel.send(bytes, &mut cipher);
                sent.map_err(io::Error::other)?;
                channel.close(&mut cipher);
                let has_ended = self.socket.send_last(worker, &cipher);
                worker.keep_spare(cipher);
                has_ended?
            }
        };
        self.sending = match has_ended {
            true => Sending::Ended,
            false => Sending::Last,
        };
        Ok(())
    }

    /// Polls until all bytes are with the kernel, and ends sending. The peer may continue to send.
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.sending == Sending::Ended {
            return Poll::Ready(Ok(()));
        }
        if !self.poll_sent(context)?.is_ready() {
            return Poll::Pending;
        }
        if self.sending == Sending::Open {
            self.send_and_close(&[]);
        }
        self.sending = Sending::Ended;
        // Fails only if the connection has failed, which the next receive reports.
        let _ = self.socket.end_sending();
        Poll::Ready(Ok(()))
    }

    /// Returns whether sending has ended.
    pub fn has_ended(&self) -> bool {
        self.sending == Sending::Ended
    }

    /// Watches for data from an idle peer.
    pub fn watch(&self) {
        self.socket.watch();
    }

    /// Returns whether a watched peer has sent data, or has ended.
    pub fn has_arrived(&self) -> bool {
        self.socket.has_arrived()
    }

    /// Returns whether all sent bytes are with the kernel.
    pub fn is_sent(&self) -> bool {
        self.socket.is_sent()
    }

    /// Returns whether the encryption layer holds no part of a message.
    pub fn is_at_border(&self) -> bool {
        self.tls
            .as_ref()
            .is_none_or(|channel| channel.is_at_border())
    }

    /// Runs the TLS handshake; `cipher` was received already. Data after the handshake is added to
    /// `plain`.
    pub async fn shake_hands(
        &mut self,
        worker: &Worker,
        cipher: &[u8],
        plain: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut arrived = cipher.to_vec();
        while let Some(channel) = &mut self.tls {
            let progress = channel.receive(&arrived, plain);
            let mut out = Vec::new();
            channel.take_output(&mut out);
            self.send_raw(worker, &out).await?;
            let progress = progress.map_err(io::Error::other)?;
            if progress.is_established {
                break;
            }
            arrived.clear();
            let socket = &self.socket;
            let is_more = std::future::poll_fn(|context| {
                let Poll::Ready(chunk) = socket.poll_chunk(worker, context) else {
                    return Poll::Pending;
                };
                Poll::Ready(chunk.map(|chunk| chunk.map(|chunk| chunk.bytes().to_vec())))
            })
            .await?;
            arrived = is_more.ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        Ok(())
    }

    async fn send_raw(&self, worker: &Worker, bytes: &[u8]) -> io::Result<()> {
        std::future::poll_fn(|context| self.socket.poll_sent(context)).await?;
        let mut own = worker.take_spare();
        own.extend_from_slice(bytes);
        self.socket.send_own(worker, own)
    }

    /// Appends the next received data to `bytes`. Returns false if the peer has ended its sending.
    pub async fn receive(&mut self, worker: &Worker, bytes: &mut Vec<u8>) -> io::Result<bool> {
        std::future::poll_fn(|context| {
            let Poll::Ready(chunk) = self.poll_chunk(worker, context) else {
                return Poll::Pending;
            };
            Poll::Ready(chunk.map(|chunk| match chunk {
                Some(chunk) => {
                    bytes.extend_from_slice(chunk.bytes());
                    true
                }
                None => false,
            }))
        })
        .await
    }

    /// Receives exactly one byte, and leaves the data after it where it is.
    pub async fn receive_byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        loop {
            self.socket.readable().await?;
            match self.socket.receive_now(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends all bytes, after earlier sends have completed.
    pub async fn send(&mut self, worker: &Worker, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        std::future::poll_fn(|context| self.poll_sent(context)).await?;
        let mut own = worker.take_spare();
        own.extend_from_slice(bytes);
        self.send_own(worker, own)
    }

    /// Waits until the kernel has taken everything.
    pub async fn flush(&mut self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_sent(context)).await
    }

    /// Sends a final message to a peer that may still read; a slow peer does not get it.
    pub async fn send_final(&mut self, worker: &Worker, bytes: &[u8]) {
        let saying = async {
            self.send(worker, bytes).await?;
            self.flush().await
        };
        // A failure means that the peer has disconnected.
        let _ = timers::timeout(LAST_WORD_LIMIT, saying).await;
    }

    /// Sends a termination message without waiting for the peer, as far as the socket takes it now.
    pub fn send_and_close(&mut self, bytes: &[u8]) {
        if !self.is_sent() {
            // The message would be in the middle of other data.
            return;
        }
        let mut cipher = Vec::new();
        let bytes = match &mut self.tls {
            Some(channel) => {
                // A message that cannot be encrypted is not sent.
                let _ = channel.send(bytes, &mut cipher);
                channel.close(&mut cipher);
                &cipher[..]
            }
            None => bytes,
        };
        if bytes.is_empty() {
            return;
        }
        // On a failure the peer notices the end of the connection.
        let _ = self.socket.send_now(bytes);
    }
}
