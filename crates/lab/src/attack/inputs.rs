//! Makes hostile inputs by combination. Each is one connection's bytes.

mod bodies;
mod heads;
mod http2;

use bodies::{chunks, codings, lengths, repeated, trailers};
use heads::{
    aliases, connections, controls, folds, hosts, line_ends, methods, request_lines, targets,
    truncated, upgrades,
};

pub use http2::all_http2;

/// Bytes of one hostile client.
#[derive(Clone, Debug)]
pub struct Input {
    /// Kind of the attack, and its variant with escapes.
    pub name: String,
    /// Bytes, with the mark `idmark` in all targets.
    pub bytes: Vec<u8>,
}

/// Request that an attacker hides in another one.
const SMUGGLED: &str = "GET /idmark/smuggled HTTP/1.1\r\nHost: a\r\nX-Id: idmark\r\n\r\n";

/// Control bytes that parsers treat differently.
const CONTROLS: [u8; 9] = [0, 1, 8, 9, 0x0B, 0x0C, b'\r', b'\n', 0x7F];

/// Returns all inputs of HTTP/1.1.
pub fn all() -> Vec<Input> {
    let mut inputs = Vec::new();
    for family in [
        lengths,
        codings,
        repeated,
        chunks,
        trailers,
        line_ends,
        controls,
        request_lines,
        hosts,
        targets,
        methods,
        connections,
        upgrades,
        aliases,
        folds,
        truncated,
    ] {
        family(&mut inputs);
    }
    let singles = inputs.len();
    // The same after a good request, and before a good one.
    for number in (0..singles).step_by(3) {
        let Input { name, bytes } = inputs[number].clone();
        let good = b"GET /idmark/first HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        let bytes = [good, bytes, SMUGGLED.into()].concat();
        add(&mut inputs, &format!("pipelined {name}"), "", bytes);
    }
    inputs
}

fn add(inputs: &mut Vec<Input>, family: &str, variant: &str, bytes: impl Into<Vec<u8>>) {
    let name = format!("{family} {}", variant.escape_debug());
    let name: String = name.trim().chars().take(100).collect();
    inputs.push(Input {
        name,
        bytes: bytes.into(),
    });
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /idmark/outer HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}")
}

fn get(fields: &str) -> String {
    format!("GET /idmark/outer HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}
