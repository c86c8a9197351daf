//! Checks invariants for any bytes of a MySQL client: its first packet, then commands.

use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::{PAYLOAD_LENGTH_MAX, frame};
use evenkeel_wire::mysql::frontend::{Request, parameters, request};
use evenkeel_wire::mysql::{Parsed, rewrite, startup};

const PLAIN: Capabilities = Capabilities(0);

/// Panics if reading `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let mut rest = bytes;
    let mut first = true;
    while let Parsed::Frame(packet, length) = frame(rest, PAYLOAD_LENGTH_MAX) {
        if first {
            read_first(packet.payload);
        }
        first = false;
        for agreed in [PLAIN, Capabilities::SPOKEN] {
            read_command(packet.payload, agreed);
        }
        rest = &rest[length..];
    }
}

fn read_first(payload: &[u8]) {
    if let Ok(startup::First::Response(response)) = startup::first(payload) {
        let length: usize = response
            .attributes
            .pairs()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(length <= payload.len());
    }
}

fn read_command(payload: &[u8], agreed: Capabilities) {
    match request(payload, agreed) {
        Ok(Request::Query { attributes, text }) => {
            assert_eq!(attributes.len() + text.len() + 1, payload.len());
        }
        Ok(Request::Execute(execute)) => {
            for prepared in [0, 1, 3, 9] {
                let Some(found) = parameters(&execute, prepared, agreed) else {
                    continue;
                };
                let types = found.typed().count();
                assert!(types == 0 || types == found.count);
                for server in [PLAIN, Capabilities::SPOKEN] {
                    let mut out = Vec::new();
                    let _ = rewrite::execute(&mut out, &execute, prepared, agreed, server);
                }
            }
        }
        _ => {}
    }
}
