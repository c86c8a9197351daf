//! HTTP/1.1 messages (RFC 9110, RFC 9112): strict parsing into spans, and writing with edits.
//!
//! A message is sent on only if it was understood. One function decides the framing of a message;
//! the start line, `Host`, the framing and the fields of one connection are generated; all other
//! fields are copied after they passed the grammar. An ambiguous message is a [`Fault`]: it is
//! answered and the connection closed, never repaired.

mod answer;
pub mod basic;
pub mod chunked;
pub mod cookie;
mod decimal;
pub(crate) mod edit;
pub mod entity_tag;
mod fault;
pub mod forwarded;
mod framing;
pub(crate) mod grammar;
pub(crate) mod head;
pub(crate) mod hops;
pub mod negotiation;
pub(crate) mod target;
mod websocket;

#[cfg(test)]
mod tests;

pub use answer::{Answer, CONTINUE, reason_phrase, write_answer};
pub use edit::{
    BodyEdit, NewField, PathEdit, Persistence, RequestEdit, ResponseEdit, Scheme, Written,
    write_request, write_response,
};
pub use fault::{Fault, Limit};
pub use framing::Framing;
pub use head::{
    Expectation, Field, HEAD_BYTES_MAX, HeadLimits, KnownName, Method, Parsed, RequestHead,
    ResponseHead, Underscores, Version, may_be_trailer,
};
pub use target::{HOST_BYTES_MAX, PathAndQuery, TargetForm};
pub use websocket::WebSocketKey;
