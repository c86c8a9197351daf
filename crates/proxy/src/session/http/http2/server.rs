//! Sends requests to servers of HTTP/2 (RFC 9113): one task for a connection, whose streams the
//! exchanges of a worker share.
//!
//! The text of a request of HTTP/1.1 becomes a stream, and the head of its response becomes text
//! again: what a session does for servers of both versions is the same.

mod connection;
mod connections;
mod stream;

pub(in crate::session::http) use connections::{Acquired, ServerConnections, SharedConnection};
pub(in crate::session::http) use stream::ServerStream;
