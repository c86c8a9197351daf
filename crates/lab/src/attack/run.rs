//! Sends the inputs through the balancer, and judges what the server has seen.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::inputs::Input;
use super::origin::{Kind, Origin, Record};
use super::reference::{self, Request};
use crate::{Balancer, free_port};

/// Mark in the bytes of an input.
const MARK: &[u8] = b"idmark";

/// Fields that no request may repeat.
const SINGLE: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
];

/// Clients at the same time.
const CLIENTS: usize = 24;

/// Limit for the end of a connection; the balancer's own limits are much shorter.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Judgement of one input at one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server saw exactly the requests of the strict reading.
    Exact,
    /// The server saw some of them or none: the rest was refused.
    Refused,
    /// The server saw other requests, or another client got a wrong response.
    Fault(String),
}

/// Result of one input.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the input.
    pub name: String,
    /// Number of requests in the strict reading.
    pub expected: usize,
    /// Number of requests that the server saw.
    pub seen: usize,
    /// First line of the last response to the client; empty if there was none.
    pub answer: String,
    /// Judgement.
    pub verdict: Verdict,
}

/// Sends the inputs to a server through a balancer on this driver.
///
/// # Errors
/// The balancer does not start, or the server's records cannot be read.
pub fn run(io: &str, origin: &Origin, inputs: &[Input]) -> Result<Vec<Row>> {
    let listen = format!("127.0.0.1:{}", free_port());
    let balancer = Balancer::start(&config(io, &listen, origin, 500))?;
    let answers = attack_all(&listen, inputs);
    if !balancer.is_running() {
        bail!("the balancer has ended: {}", balancer.log());
    }
    let seen = by_input(origin.records()?);
    let rows = inputs.iter().enumerate().map(|(number, input)| {
        let none = Vec::new();
        let answer = answers.get(&number).context("each input is sent")?;
        Ok(judge(
            origin.kind,
            number,
            input,
            seen.get(&number).unwrap_or(&none),
            answer,
        ))
    });
    let mut rows = rows.collect::<Result<Vec<Row>>>()?;
    if let Some(strays) = seen.get(&usize::MAX) {
        rows.push(Row {
            name: "requests of no input".to_owned(),
            expected: 0,
            seen: strays.len(),
            answer: String::new(),
            verdict: Verdict::Fault(format!("{strays:?}")),
        });
    }
    Ok(rows)
}

/// Returns a configuration with short limits, but this one for idle clients.
pub(super) fn config(io: &str, listen: &str, origin: &Origin, keepalive_ms: u32) -> String {
    let (server, more) = (&origin.address, origin.kind.keys());
    format!(
        "[engine]\nio = {io:?}\nworkers = 2\n[[service]]\nname = \"attack\"\nprotocol = \"http\"\n\
         listen = {listen:?}\nservers = [{server:?}]\n[service.times]\nheader_ms = 500\n\
         body_idle_ms = 500\nkeepalive_ms = {keepalive_ms}\nfirst_byte_ms = 10000\n\
         [service.health]\nprobe = \"off\"\n[service.http]\nhttp2 = \"all\"\n{more}"
    )
}

/// Sends all inputs to the address by many clients; returns the answers by the inputs' numbers.
pub(super) fn attack_all(listen: &str, inputs: &[Input]) -> BTreeMap<usize, Answer> {
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while let Some(input) = take(inputs, &next) {
                    let answer = attack(listen, input.0, input.1);
                    let mut answers = answers.lock().expect("no holder of the lock panics");
                    answers.insert(input.0, answer);
                }
            });
        }
    });
    answers.into_inner().expect("no holder of the lock panics")
}

fn take<'a>(inputs: &'a [Input], next: &AtomicUsize) -> Option<(usize, &'a Input)> {
    let number = next.fetch_add(1, Relaxed);
    inputs.get(number).map(|input| (number, input))
}

/// Returns the word that all bytes of an input carry.
fn id(number: usize) -> String {
    format!("q{number:04}z")
}

/// Returns the bytes of an input with its word in place of the mark, which has the same length.
fn bytes_of(number: usize, input: &Input) -> Vec<u8> {
    let id = id(number).into_bytes();
    let mut bytes = Vec::with_capacity(input.bytes.len());
    let mut rest = &input.bytes[..];
    while let Some((&first, after)) = rest.split_first() {
        match rest.strip_prefix(MARK) {
            Some(after) => {
                bytes.extend_from_slice(&id);
                rest = after;
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

/// Response to an attack, and the one to an ordinary client after it.
pub(super) struct Answer {
    pub(super) last_line: String,
    follower: Result<String>,
}

fn attack(listen: &str, number: usize, input: &Input) -> Answer {
    let response = exchange(listen, &bytes_of(number, input));
    let response = response.unwrap_or_default();
    let text = String::from_utf8_lossy(&response).into_owned();
    let mut lines = text.lines().filter(|line| line.starts_with("HTTP/1."));
    let check = format!(
        "GET /check/{} HTTP/1.1\r\nHost: check\r\nConnection: close\r\n\r\n",
        id(number)
    );
    let follower = exchange(listen, check.as_bytes());
    Answer {
        last_line: lines.next_back().unwrap_or_default().to_owned(),
        follower: follower.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Sends the bytes, and returns what arrives until the balancer ends the connection.
fn exchange(listen: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(listen)?;
    stream.set_read_timeout(Some(END_LIMIT))?;
    let mut response = Vec::new();
    // It may refuse the first bytes before it has received the last ones.
    let _ = stream.write_all(bytes);
    let mut block = [0; 4096];
    loop {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(count) => response.extend_from_slice(&block[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error.into()),
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    Ok(response)
}

/// Groups the records by the input whose word they carry; others are under `usize::MAX`.
pub(super) fn by_input(records: Vec<Record>) -> BTreeMap<usize, Vec<Record>> {
    let mut groups: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
    for record in records {
        let is_unread = record.is_refused() && record.target.is_empty();
        if record.refused.is_some() || is_unread || record.target.starts_with("/check/") {
            continue;
        }
        let number = number_of(&record).unwrap_or(usize::MAX);
        groups.entry(number).or_default().push(record);
    }
    groups
}

/// Returns the number of the input whose word a record carries.
fn number_of(record: &Record) -> Option<usize> {
    let body = record.body();
    let body = String::from_utf8_lossy(&body);
    let parts = [&*record.target, &*record.id, &*record.host, &*body];
    let mut parts = parts
        .into_iter()
        .chain(record.fields.iter().map(String::as_str));
    parts.find_map(number_in)
}

pub(super) fn number_in(text: &str) -> Option<usize> {
    let mut words = text.split(|byte: char| !byte.is_ascii_alphanumeric());
    words.find_map(|word| word.strip_prefix('q')?.strip_suffix('z')?.parse().ok())
}

fn judge(kind: Kind, number: usize, input: &Input, records: &[Record], answer: &Answer) -> Row {
    let expected = reference::read(&bytes_of(number, input));
    let mut expected: Vec<Request> = expected.into_iter().map(|one| kind.reported(one)).collect();
    let served: Vec<&Record> = records.iter().filter(|one| !one.is_refused()).collect();
    let mut seen: Vec<Request> = served.iter().map(|one| request_of(one)).collect();
    // Streams have no order.
    if reference::is_http2(&input.bytes) {
        expected.sort();
        seen.sort();
    }
    let verdict = match wrong_follower(number, answer).or_else(|| wrong_fields(&served)) {
        Some(why) => Verdict::Fault(why),
        None if seen == expected => Verdict::Exact,
        None if is_part(&seen, &expected) => Verdict::Refused,
        None => Verdict::Fault(format!("saw {seen:?}, not {expected:?}")),
    };
    Row {
        name: input.name.clone(),
        expected: expected.len(),
        seen: seen.len(),
        answer: answer.last_line.clone(),
        verdict,
    }
}

/// Returns whether the requests are some of the others, in their order: the balancer refused the
/// last ones, or the server refused those that it does not support, such as unknown methods.
fn is_part(seen: &[Request], expected: &[Request]) -> bool {
    let mut expected = expected.iter();
    seen.iter().all(|one| expected.any(|other| other == one))
}

pub(super) fn request_of(record: &Record) -> Request {
    Request {
        method: record.method.clone(),
        target: record.target.clone(),
        host: record.host.clone(),
        body: record.body(),
    }
}

pub(super) fn wrong_follower(number: usize, answer: &Answer) -> Option<String> {
    let own = format!("/check/{}", id(number));
    match &answer.follower {
        Ok(text) if is_echo(text, &own) => None,
        Ok(text) => Some(format!("the next client got {text:?}")),
        Err(error) => Some(format!("the next client got no response: {error:#}")),
    }
}

/// Returns whether the text is one response with this body, which may be a chunk.
fn is_echo(text: &str, body: &str) -> bool {
    let chunk = format!("\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let is_only = text.matches("HTTP/1.").count() == 1;
    let has_body = text.ends_with(&format!("\r\n\r\n{body}")) || text.ends_with(&chunk);
    is_only && text.starts_with("HTTP/1.1 200") && has_body
}

/// Returns what is wrong with the fields: one that decides is repeated, in any spelling, or the
/// client's word for its own address was believed.
pub(super) fn wrong_fields(records: &[&Record]) -> Option<String> {
    for record in records {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for field in record.fields.chunks(2) {
            let [name, value] = field else {
                continue;
            };
            let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
            *counts.entry(name.clone()).or_default() += 1;
            let is_identity = matches!(&*name, "x-forwarded-for" | "x-real-ip" | "forwarded");
            if is_identity && value != "127.0.0.1" {
                return Some(format!("{name}: {value}"));
            }
        }
        let repeated = SINGLE
            .iter()
            .find(|name| counts.get(**name).is_some_and(|count| *count > 1));
        if let Some(name) = repeated {
            return Some(format!("{name} is repeated: {:?}", record.fields));
        }
        if counts.contains_key("content-length") && counts.contains_key("transfer-encoding") {
            return Some(format!("two framings: {:?}", record.fields));
        }
    }
    None
}
