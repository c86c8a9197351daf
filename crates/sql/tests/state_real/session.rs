//! Blocking connection to PostgreSQL that collects all reports.

use evenkeel_wire::postgres::TransactionStatus;
use std::io::{self, BufReader, Error, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

type Report = (Vec<u8>, Vec<u8>);

pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
    /// The last report of each name.
    pub(crate) reports: Vec<Report>,
}

/// Complete reply to a text.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) completed: usize,
    pub(crate) rows: Vec<Vec<Option<Vec<u8>>>>,
    pub(crate) error: Option<String>,
    pub(crate) status: TransactionStatus,
    pub(crate) reports: Vec<Report>,
}

impl Answer {
    pub(crate) fn outcome(&self) -> (usize, Option<&str>, TransactionStatus) {
        (self.completed, self.error.as_deref(), self.status)
    }
}

impl Connection {
    pub(crate) fn open(socket: &Path, startup: &[(&str, &str)]) -> io::Result<Connection> {
        let mut connection = Connection {
            stream: BufReader::new(UnixStream::connect(socket)?),
            reports: Vec::new(),
        };
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        let always = [("user", "postgres"), ("database", "postgres")];
        for (name, value) in always.iter().chain(startup) {
            body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).unwrap();
        connection.send(&[&length.to_be_bytes()[..], &body].concat())?;
        match connection.answer()?.error {
            Some(error) => Err(Error::other(error)),
            None => Ok(connection),
        }
    }

    pub(crate) fn query(&mut self, text: &str) -> Answer {
        let length = u32::try_from(text.len() + 5).unwrap();
        let message = [b"Q", &length.to_be_bytes()[..], text.as_bytes(), b"\0"].concat();
        self.send(&message).unwrap();
        self.answer().unwrap()
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = Answer {
            completed: 0,
            rows: Vec::new(),
            error: None,
            status: TransactionStatus::Idle,
            reports: Vec::new(),
        };
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'C' | b'I' => answer.completed += 1,
                b'D' => answer.rows.push(row(&body)),
                b'E' => {
                    answer.error = Some(error(&body));
                    if answer.error.as_ref().unwrap().starts_with("FATAL") {
                        return Ok(answer);
                    }
                }
                b'S' => self.report(&body, &mut answer),
                b'Z' => {
                    answer.status = match body[0] {
                        b'I' => TransactionStatus::Idle,
                        b'T' => TransactionStatus::InTransaction,
                        _ => TransactionStatus::Failed,
                    };
                    return Ok(answer);
                }
                _ => {}
            }
        }
    }

    fn report(&mut self, body: &[u8], answer: &mut Answer) {
        let mut parts = body.split(|byte| *byte == 0);
        let name = parts.next().unwrap().to_vec();
        let value = parts.next().unwrap().to_vec();
        self.reports.retain(|(known, _)| *known != name);
        self.reports.push((name.clone(), value.clone()));
        answer.reports.push((name, value));
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }
}

fn row(body: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut rest = &body[2..];
    let mut cells = Vec::new();
    while let [a, b, c, d, behind @ ..] = rest {
        let length = i32::from_be_bytes([*a, *b, *c, *d]);
        let Ok(length) = usize::try_from(length) else {
            cells.push(None);
            rest = behind;
            continue;
        };
        cells.push(Some(behind[..length].to_vec()));
        rest = &behind[length..];
    }
    cells
}

/// Returns the severity, SQLSTATE and text of an error.
fn error(body: &[u8]) -> String {
    let field = |code: u8| {
        let fields = body.split(|byte| *byte == 0);
        let mut found = fields.filter(|field| field.first() == Some(&code));
        found
            .next()
            .map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
    };
    [b'V', b'C', b'M']
        .map(|code| field(code).unwrap_or_default())
        .join(" ")
}
