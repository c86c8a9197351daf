//! Compressors of bodies, and the memory that those of a worker may take.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::rc::Rc;

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use evenkeel_policy::http::compress::Coding;
use flate2::{Compress, Compression, FlushCompress, Status};

/// Level of gzip. Higher ones take much more time for few bytes less.
const GZIP_LEVEL: u32 = 5;

/// Window of gzip as a power of two, the largest.
const GZIP_WINDOW_BITS: u8 = 15;

/// Level of Brotli: the highest one that is as fast as gzip's.
const BROTLI_LEVEL: i32 = 4;

/// Window of Brotli as a power of two: 256 kB. A larger one takes more memory for each response.
const BROTLI_WINDOW_BITS: i32 = 18;

/// Memory of the compressors of a worker, in bytes: 167 of gzip. A response that finds none left is
/// not compressed.
const MEMORY_MAX: usize = 64_000_000;

/// Number of unused compressors of gzip that a worker keeps: a new one costs more time than a small
/// body.
const IDLE_MAX: usize = 8;

/// Room in bytes that is made for output at a time.
const OUTPUT_STEP: usize = 4 * 1024;

/// Compressors of a worker.
#[derive(Default)]
pub(in crate::session::http) struct Compressors {
    idle: RefCell<Vec<Compress>>,
    /// Memory of those in use, in bytes.
    used: Cell<usize>,
}

/// Compressor of one body.
pub(super) struct Compressor {
    engine: Engine,
    /// Bytes of memory that it counts for.
    memory: usize,
    /// True if bytes were written that may not have come out.
    holds: bool,
    shared: Rc<Compressors>,
}

enum Engine {
    Gzip(Compress),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    /// The body is complete.
    Finished,
}

impl Compressor {
    /// Returns a compressor for a coding. `None`: there is no memory left for it.
    pub(super) fn new(shared: &Rc<Compressors>, coding: Coding) -> Option<Self> {
        let memory = memory_of(coding);
        let used = shared.used.get() + memory;
        if used > MEMORY_MAX {
            return None;
        }
        shared.used.set(used);
        Some(Self {
            engine: match coding {
                Coding::Gzip => Engine::Gzip(shared.take_gzip()),
                Coding::Brotli => Engine::Brotli(new_brotli()),
            },
            memory,
            holds: false,
            shared: Rc::clone(shared),
        })
    }

    /// Returns whether bytes were written that may not have come out.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Compresses bytes. Some may come out with later ones only.
    pub(super) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.holds |= !bytes.is_empty();
        match &mut self.engine {
            Engine::Gzip(gzip) => run_gzip(gzip, bytes, FlushCompress::None, out),
            Engine::Brotli(brotli) => {
                brotli.write_all(bytes)?;
                out.append(brotli.get_mut());
                Ok(())
            }
            Engine::Finished => Err(finished()),
        }
    }

    /// Appends all that was written before, so that the client can decompress it.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.holds = false;
        match &mut self.engine {
            Engine::Gzip(gzip) => run_gzip(gzip, &[], FlushCompress::Sync, out),
            Engine::Brotli(brotli) => {
                brotli.flush()?;
                out.append(brotli.get_mut());
                Ok(())
            }
            Engine::Finished => Err(finished()),
        }
    }

    /// Appends the end, and releases the memory.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.holds = false;
        match std::mem::replace(&mut self.engine, Engine::Finished) {
            Engine::Gzip(mut gzip) => {
                let finished = run_gzip(&mut gzip, &[], FlushCompress::Finish, out);
                self.shared.keep_gzip(gzip);
                finished
            }
            Engine::Brotli(brotli) => {
                out.extend_from_slice(&brotli.into_inner());
                Ok(())
            }
            Engine::Finished => Err(finished()),
        }
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        if let Engine::Gzip(gzip) = std::mem::replace(&mut self.engine, Engine::Finished) {
            self.shared.keep_gzip(gzip);
        }
        self.shared.used.set(self.shared.used.get() - self.memory);
    }
}

impl Compressors {
    fn take_gzip(&self) -> Compress {
        let idle = self.idle.borrow_mut().pop();
        idle.unwrap_or_else(|| {
            let level = Compression::new(GZIP_LEVEL);
            Compress::new_gzip(level, GZIP_WINDOW_BITS)
        })
    }

    fn keep_gzip(&self, mut gzip: Compress) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE_MAX {
            gzip.reset();
            idle.push(gzip);
        }
    }
}

/// Returns the memory of a compressor in bytes, as measured.
fn memory_of(coding: Coding) -> usize {
    match coding {
        Coding::Gzip => 381_000,
        Coding::Brotli => 2_600_000,
    }
}

fn new_brotli() -> Box<CompressorWriter<Vec<u8>>> {
    let params = BrotliEncoderParams {
        quality: BROTLI_LEVEL,
        lgwin: BROTLI_WINDOW_BITS,
        ..BrotliEncoderParams::default()
    };
    let writer = CompressorWriter::with_params(Vec::new(), OUTPUT_STEP, &params);
    Box::new(writer)
}

/// Compresses bytes until nothing more comes out.
fn run_gzip(
    gzip: &mut Compress,
    mut bytes: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    loop {
        out.reserve(OUTPUT_STEP);
        let before = gzip.total_in();
        let status = gzip.compress_vec(bytes, out, flush)?;
        let used = usize::try_from(gzip.total_in() - before).unwrap_or(usize::MAX);
        bytes = bytes.get(used..).unwrap_or_default();
        let is_full = out.len() == out.capacity();
        match (flush, status) {
            (_, Status::StreamEnd) => return Ok(()),
            // Without room left, more may come out.
            (FlushCompress::Finish, _) => {}
            _ if bytes.is_empty() && !is_full => return Ok(()),
            _ => {}
        }
    }
}

fn finished() -> io::Error {
    io::Error::other("the compressed body has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random (xorshift).
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % limit as u64) as usize
        }

        /// Returns bytes with repetitions, as texts have them.
        fn body(&mut self, length: usize) -> Vec<u8> {
            let mut body = Vec::new();
            while body.len() < length {
                let word = [&b"{\"id\":"[..], b"name", b" <p>", b"\x00\xff"][self.below(4)];
                body.extend_from_slice(word);
                body.push(self.below(256) as u8);
            }
            body.truncate(length);
            body
        }
    }

    /// Room for output of a decompressor. With less, some would come out with later input only.
    const ROOM: usize = 1 << 20;

    /// Decompresses what has come out so far.
    enum Reader {
        Gzip(Box<flate2::write::GzDecoder<Vec<u8>>>),
        Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
    }

    impl Reader {
        fn new(coding: Coding) -> Reader {
            match coding {
                Coding::Gzip => Reader::Gzip(Box::new(flate2::write::GzDecoder::new(Vec::new()))),
                Coding::Brotli => {
                    Reader::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), ROOM)))
                }
            }
        }

        fn read(&mut self, bytes: &[u8]) -> &[u8] {
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

        /// Returns whether the end was valid: for gzip, length and checksum are compared.
        fn end(self) -> bool {
            match self {
                Reader::Gzip(reader) => reader.finish().is_ok(),
                Reader::Brotli(mut reader) => reader.close().is_ok(),
            }
        }
    }

    #[test]
    fn the_pieces_of_a_body_decompress_to_it() {
        let shared = Rc::new(Compressors::default());
        for coding in Coding::ALL {
            for seed in 1..=60_u64 {
                let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let length = numbers.below([2, 300, 5_000, 200_000][seed as usize % 4]);
                let body = numbers.body(length);
                let mut compressor = Compressor::new(&shared, coding).unwrap();
                let mut reader = Reader::new(coding);
                let mut at = 0;
                while at < body.len() {
                    let piece = (1 + numbers.below(9_000)).min(body.len() - at);
                    let mut out = Vec::new();
                    compressor.write(&body[at..at + piece], &mut out).unwrap();
                    at += piece;
                    assert!(compressor.holds());
                    let is_flushed = numbers.below(3) == 0;
                    if is_flushed {
                        compressor.flush(&mut out).unwrap();
                        assert!(!compressor.holds());
                    }
                    let read = reader.read(&out);
                    assert!(body.starts_with(read), "{coding:?}, seed {seed}");
                    assert!(
                        !is_flushed || read.len() == at,
                        "{coding:?}, seed {seed}: held"
                    );
                }
                let mut out = Vec::new();
                compressor.finish(&mut out).unwrap();
                assert!(reader.read(&out) == body, "{coding:?}, seed {seed}");
                assert!(reader.end(), "{coding:?}, seed {seed}: end");
            }
        }
    }

    #[test]
    fn a_compressor_of_an_abandoned_body_leaves_nothing_to_the_next() {
        let shared = Rc::new(Compressors::default());
        for coding in Coding::ALL {
            let mut abandoned = Compressor::new(&shared, coding).unwrap();
            abandoned
                .write(b"secret of another client", &mut Vec::new())
                .unwrap();
            drop(abandoned);
            let mut next = Compressor::new(&shared, coding).unwrap();
            let mut out = Vec::new();
            next.write(b"own", &mut out).unwrap();
            next.finish(&mut out).unwrap();
            assert_eq!(Reader::new(coding).read(&out), b"own");
        }
    }

    #[test]
    fn the_memory_of_a_worker_is_limited_and_released() {
        let shared = Rc::new(Compressors::default());
        let take = |coding| std::iter::from_fn(|| Compressor::new(&shared, coding)).collect();
        let brotli: Vec<_> = take(Coding::Brotli);
        assert_eq!(brotli.len(), 24);
        let gzip: Vec<_> = take(Coding::Gzip);
        assert_eq!(gzip.len(), 4);
        drop((brotli, gzip));
        assert_eq!(shared.used.get(), 0);
        assert_eq!(shared.idle.borrow().len(), 4);
        let all: Vec<_> = take(Coding::Gzip);
        assert_eq!(all.len(), 167);
        drop(all);
        assert_eq!(shared.idle.borrow().len(), IDLE_MAX);
    }
}
