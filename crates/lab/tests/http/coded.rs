//! Decompresses bodies as clients do.

use std::io::Write;

/// Room for output of a decompressor. With less, some would come out with later input only.
const ROOM: usize = 1 << 20;

/// Reader of a body of a coding, which shows what has come so far.
pub(crate) enum Reader {
    Gzip(Box<flate2::write::GzDecoder<Vec<u8>>>),
    Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
}

impl Reader {
    pub(crate) fn new(coding: &str) -> Reader {
        match coding {
            "gzip" => Reader::Gzip(Box::new(flate2::write::GzDecoder::new(Vec::new()))),
            "br" => Reader::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), ROOM))),
            other => panic!("coding {other}"),
        }
    }

    /// Reads more bytes, and returns all of the body so far.
    #[track_caller]
    pub(crate) fn read(&mut self, bytes: &[u8]) -> &[u8] {
        match self {
            Reader::Gzip(reader) => {
                reader.write_all(bytes).unwrap();
                reader.flush().unwrap();
                reader.get_ref()
            }
            Reader::Brotli(reader) => {
                reader.write_all(bytes).unwrap();
                reader.flush().unwrap();
                reader.get_ref()
            }
        }
    }

    /// Returns the body, whose end must have come.
    #[track_caller]
    pub(crate) fn end(self) -> Vec<u8> {
        match self {
            Reader::Gzip(reader) => reader.finish().unwrap(),
            Reader::Brotli(mut reader) => {
                reader.close().unwrap();
                reader.get_ref().clone()
            }
        }
    }
}

/// Returns the body of all of these bytes.
#[track_caller]
pub(crate) fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(coding);
    reader.read(bytes);
    reader.end()
}

/// Returns a text with repetitions, as those of applications have, of exactly this length.
pub(crate) fn text(length: usize) -> String {
    let mut number = 88_172_645_463_325_252_u64;
    let mut text = String::with_capacity(length + 64);
    while text.len() < length {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        text.push_str(&format!(
            "{{\"id\":{},\"name\":\"n{}\"}},",
            number % 100_000,
            number % 97
        ));
    }
    text.truncate(length);
    text
}
