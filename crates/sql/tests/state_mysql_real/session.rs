//! Blocking connection to MariaDB or MySQL that collects the state in OK packets.

use std::io::{self, BufReader, Error, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use evenkeel_wire::mysql::backend::{Eof, ErrorReport, OkPacket};
use evenkeel_wire::mysql::build::{self, ResponseFields};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::greeting::{self, First};

const AGREED: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::SESSION_TRACK)
    .with(Capabilities::DEPRECATE_EOF);

pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
    sequence: u8,
    pub(crate) version: String,
}

/// One OK, or the end of one result, and the rows before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    pub(crate) rows: Vec<Vec<Option<String>>>,
    pub(crate) status: Status,
    pub(crate) affected: u64,
    pub(crate) insert_id: u64,
    pub(crate) warnings: u16,
    pub(crate) session_state: Vec<u8>,
}

impl Part {
    /// Returns whether the only value is 1.
    pub(crate) fn lock_value(&self) -> Option<bool> {
        let value = self.rows.first().and_then(|row| row.first());
        value.map(|value| value.as_deref() == Some("1"))
    }
}

/// Complete reply to a command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) parts: Vec<Part>,
    pub(crate) error: Option<(u16, String)>,
}

/// Content of a part that the client sees.
type Seen<'a> = (&'a [Vec<Option<String>>], u64, u64, u16, u16);

impl Answer {
    pub(crate) fn rows(&self) -> Vec<Vec<Option<String>>> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.rows.clone()).collect()
    }

    /// Returns the content that the client sees.
    pub(crate) fn outcome(&self) -> (Vec<Seen<'_>>, Option<u16>) {
        const SEEN: u16 = !Status::SESSION_STATE_CHANGED.0;
        let seen = |part| {
            let part: &Part = part;
            let (rows, status) = (part.rows.as_slice(), part.status.0 & SEEN);
            (rows, part.affected, part.insert_id, part.warnings, status)
        };
        let error = self.error.as_ref().map(|(code, _)| *code);
        (self.parts.iter().map(seen).collect(), error)
    }
}

impl Connection {
    /// Logs in as root without a password.
    pub(crate) fn open(socket: &Path, collation: u8, schema: &str) -> io::Result<Connection> {
        let mut connection = Connection {
            stream: BufReader::new(UnixStream::connect(socket)?),
            sequence: 0,
            version: String::new(),
        };
        let packet = connection.packet()?;
        let Ok(First::Greeting(greeting)) = greeting::first(&packet) else {
            return Err(Error::other("no greeting"));
        };
        connection.version = String::from_utf8_lossy(greeting.version).into_owned();
        let mut out = Vec::new();
        let fields = ResponseFields {
            capabilities: AGREED.with(Capabilities::CONNECT_WITH_DB),
            collation,
            user: b"root",
            schema: schema.as_bytes(),
            plugin: b"mysql_native_password",
            ..ResponseFields::default()
        };
        build::response(&mut out, connection.sequence, &fields);
        connection.send(&out)?;
        loop {
            let packet = connection.packet()?;
            match packet.first() {
                Some(0) => return Ok(connection),
                // Another plugin: the response to an empty password is empty, or a zero byte.
                Some(0xfe) => {
                    let mut out = Vec::new();
                    let is_sha2 = packet[1..].starts_with(b"caching_sha2_password");
                    build::packet(&mut out, connection.sequence, |out| {
                        out.extend(is_sha2.then_some(0));
                    });
                    connection.send(&out)?;
                }
                Some(1) => {}
                _ => return Err(Error::other(format!("{packet:?}"))),
            }
        }
    }

    pub(crate) fn query(&mut self, text: &str) -> Answer {
        let mut out = Vec::new();
        build::query(&mut out, text.as_bytes());
        self.ask(&out)
    }

    pub(crate) fn init_db(&mut self, schema: &[u8]) -> Answer {
        let mut out = Vec::new();
        build::init_db(&mut out, schema);
        self.ask(&out)
    }

    pub(crate) fn reset(&mut self) -> Answer {
        let mut out = Vec::new();
        build::command(&mut out, Code::ResetConnection, b"");
        self.ask(&out)
    }

    fn ask(&mut self, bytes: &[u8]) -> Answer {
        self.send(bytes).unwrap();
        let mut answer = Answer::default();
        loop {
            match self.part().unwrap() {
                Ok(part) => {
                    let more = part.status.has(Status::MORE_RESULTS);
                    answer.parts.push(part);
                    if !more {
                        return answer;
                    }
                }
                Err(error) => {
                    answer.error = Some(error);
                    return answer;
                }
            }
        }
    }

    fn part(&mut self) -> io::Result<Result<Part, (u16, String)>> {
        let head = self.packet()?;
        match head[0] {
            0 => return Ok(Ok(of_ok(&head, Vec::new()))),
            0xff => return Ok(Err(of_error(&head))),
            columns => {
                for _ in 0..columns {
                    self.packet()?;
                }
            }
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.packet()?;
            match packet[0] {
                0xfe => return Ok(Ok(of_ok(&packet, rows))),
                0xff => return Ok(Err(of_error(&packet))),
                _ => rows.push(row(&packet)),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    fn packet(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        self.sequence = head[3].wrapping_add(1);
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }
}

fn of_ok(packet: &[u8], rows: Vec<Vec<Option<String>>>) -> Part {
    if let Ok(eof) = Eof::read(packet) {
        let (warnings, status) = (eof.warnings, eof.status);
        return Part {
            rows,
            status,
            warnings,
            ..Part::default()
        };
    }
    let ok = OkPacket::read(packet, AGREED).unwrap();
    Part {
        rows,
        status: ok.status,
        affected: ok.affected_rows,
        insert_id: ok.last_insert_id,
        warnings: ok.warnings,
        session_state: ok.session_state.to_vec(),
    }
}

fn of_error(packet: &[u8]) -> (u16, String) {
    let report = ErrorReport::read(packet).unwrap();
    (report.code, String::from_utf8_lossy(packet).into_owned())
}

fn row(packet: &[u8]) -> Vec<Option<String>> {
    let mut rest = packet;
    let mut cells = Vec::new();
    while let [first, behind @ ..] = rest {
        let (length, behind) = match (first, behind) {
            (0xfb, behind) => {
                cells.push(None);
                rest = behind;
                continue;
            }
            (0xfc, [a, b, behind @ ..]) => (usize::from(u16::from_le_bytes([*a, *b])), behind),
            (short, behind) => (usize::from(*short), behind),
        };
        let text = String::from_utf8_lossy(&behind[..length]).into_owned();
        cells.push(Some(text));
        rest = &behind[length..];
    }
    cells
}
