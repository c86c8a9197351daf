//! HTTP/2 (RFC 9113): frames, fields and streams, without sockets and clock.
//!
//! A received head becomes the text of an HTTP/1.1 head, which [`crate::http::RequestHead`] or
//! [`crate::http::ResponseHead`] parses, so that the rules of HTTP/1.1 apply to both versions. A
//! sent head is written from such a parsed one.

mod budget;
mod connection;
mod error;
mod frame;
mod head;
pub mod hpack;
mod request;
mod response;
mod settings;
mod stream;
mod window;

#[cfg(test)]
mod tests;

pub use budget::{BudgetLimits, Rate};
pub use connection::{Connection, DataHeader, Event, Limits, PREFACE, Read};
pub use error::{ConnectionError, ErrorCode, StreamId};
pub use head::{HeadFault, HeadListLimits, RequestFacts, RequestText, TrailerText};
pub use request::write_request;
pub use response::{write_answer, write_response, write_trailers};
pub use settings::ExtendedConnect;
