//! Tests of the codec: each rule of RFC 9112 that the messages obey, as tables of inputs.

use super::chunked::{ChunkDecoder, ChunkEncoder, ChunkLimits, Step};
use super::*;

mod ordinary;
