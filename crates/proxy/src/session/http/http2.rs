//! Serves clients of HTTP/2 (RFC 9113): one task for a connection, and one for each of its streams.
//! [`server`] has the connections to servers.
//!
//! The head of a request becomes the text of an HTTP/1.1 head, and its stream is served by the same
//! [`Session`](super::Session) as a request of HTTP/1.1: routes, limits, retries and logs are the
//! same. The task of the connection alone receives and sends; the tasks of the streams read and
//! write in the [`shared::Shared`] state, and wake it.

mod connection;
mod server;
mod shared;
mod stream;

pub(super) use connection::serve_connection;
pub(super) use server::{Acquired, ServerConnections, ServerStream, SharedConnection};
pub(super) use stream::ClientStream;
