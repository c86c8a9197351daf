//! Has a client and a server of HTTP/2 talk to each other; the bytes are the choices.
#![no_main]

#[path = "../invariants/http2_pair.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let steps = bytes.len() / 4;
    let mut rest = bytes.iter();
    let mut choose = |limit: usize| {
        let mut byte = || usize::from(rest.next().copied().unwrap_or_default());
        match limit {
            ..=256 => byte() % limit,
            _ => (byte() << 16 | byte() << 8 | byte()) % limit,
        }
    };
    invariants::run(&mut choose, steps);
});
