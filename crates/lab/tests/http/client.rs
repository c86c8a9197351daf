//! A client that writes raw bytes and reads responses strictly.

use std::io::{ErrorKind, Read};

use socket2::Socket;

use crate::peer::{self, is_reset, send};

/// Response as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and fields, without the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Trailer section, with its lines' ends.
    pub(crate) trailers: String,
}

impl Answer {
    /// Returns the value of the only field of this name.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let values = field_values(&self.head, name);
        assert!(values.len() <= 1, "{name} is repeated: {}", self.head);
        values.into_iter().next()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Returns the values of all fields of this name in a head.
pub(crate) fn field_values(head: &str, name: &str) -> Vec<String> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields
        .filter(|(own, _)| own.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
        .collect()
}

/// End of a connection in the place of more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Clean,
    Reset,
}

/// A client connection, with the bytes that were received and not yet read.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) incoming: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(listen: &str) -> Client {
        Client::of(peer::connect(listen))
    }

    pub(crate) fn of(socket: Socket) -> Client {
        Client {
            socket,
            incoming: Vec::new(),
        }
    }

    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        send(&self.socket, bytes.as_ref());
    }

    /// Sends a GET and reads the response.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(get(path));
        self.answer()
    }

    /// Sends a POST with a length and reads the response.
    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answer {
        self.send(post(path, body));
        self.answer()
    }

    /// Reads the next response, interim ones too.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer(false)
            .unwrap_or_else(|(ended, read)| panic!("{ended:?} after {read:?}"))
    }

    /// Reads the response to a HEAD.
    #[track_caller]
    pub(crate) fn answer_to_head(&mut self) -> Answer {
        self.try_answer(true)
            .unwrap_or_else(|(ended, read)| panic!("{ended:?} after {read:?}"))
    }

    /// Reads the next response; the error has how the connection ended, and what was read of the
    /// response before.
    pub(crate) fn try_answer(&mut self, to_head: bool) -> Result<Answer, (Ended, String)> {
        let head = self.until(b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&head[..head.len() - 4]).into_owned();
        let status = head.get(9..12).and_then(|code| code.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no status in {head:?}"));
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
            trailers: String::new(),
        };
        if to_head || status < 200 || status == 204 || status == 304 {
            return Ok(answer);
        }
        let with_head = |(ended, rest): (Ended, String)| (ended, format!("{} {rest}", answer.head));
        if let Some(coding) = answer.field("Transfer-Encoding") {
            assert_eq!(coding, "chunked");
            let read = self.chunks();
            (answer.body, answer.trailers) = read.map_err(with_head)?;
        } else if let Some(length) = answer.field("Content-Length") {
            let read = self.take(length.parse().expect("a number"));
            answer.body = read.map_err(with_head)?;
        } else {
            loop {
                match self.more() {
                    None => {}
                    Some(Ended::Clean) => break,
                    Some(Ended::Reset) => return Err((Ended::Reset, answer.head)),
                }
            }
            answer.body = std::mem::take(&mut self.incoming);
        }
        Ok(answer)
    }

    fn chunks(&mut self) -> Result<(Vec<u8>, String), (Ended, String)> {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n")?;
            let digits = std::str::from_utf8(&line[..line.len() - 2]).expect("digits");
            let size = usize::from_str_radix(digits, 16).expect("a size without extensions");
            if size == 0 {
                break;
            }
            body.extend(self.take(size)?);
            assert_eq!(self.take(2)?, b"\r\n");
        }
        let mut trailers = String::new();
        loop {
            let line = self.until(b"\r\n")?;
            if line == b"\r\n" {
                return Ok((body, trailers));
            }
            trailers.push_str(&String::from_utf8_lossy(&line));
        }
    }

    /// Takes bytes up to and with a mark.
    pub(crate) fn until(&mut self, mark: &[u8]) -> Result<Vec<u8>, (Ended, String)> {
        loop {
            let found = self.incoming.windows(mark.len()).position(|at| at == mark);
            if let Some(at) = found {
                return Ok(self.incoming.drain(..at + mark.len()).collect());
            }
            if let Some(ended) = self.more() {
                return Err((ended, self.rest()));
            }
        }
    }

    /// Takes this number of bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<Vec<u8>, (Ended, String)> {
        while self.incoming.len() < count {
            if let Some(ended) = self.more() {
                return Err((ended, self.rest()));
            }
        }
        Ok(self.incoming.drain(..count).collect())
    }

    fn rest(&self) -> String {
        String::from_utf8_lossy(&self.incoming).into_owned()
    }

    /// Receives more bytes; returns the end in place of them.
    fn more(&mut self) -> Option<Ended> {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            match (&self.socket).read(&mut bytes) {
                Ok(0) => return Some(Ended::Clean),
                Ok(count) => {
                    self.incoming.extend_from_slice(&bytes[..count]);
                    return None;
                }
                Err(error) if is_reset(&error) => return Some(Ended::Reset),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {:?}", self.rest()),
            }
        }
    }

    /// Waits for the end of either kind; no byte may come before.
    #[track_caller]
    pub(crate) fn end_is_any(&mut self) {
        let _ = self.end();
    }

    /// Returns how the connection ends; no byte may come before.
    #[track_caller]
    pub(crate) fn end(&mut self) -> Ended {
        match self.more() {
            Some(ended) if self.incoming.is_empty() => ended,
            _ => panic!("more bytes: {:?}", self.rest()),
        }
    }
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: web.example\r\n\r\n")
}

pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: web.example\r\nContent-Length: {length}\r\n\r\n{body}")
}
