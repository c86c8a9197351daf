//! A small model server that follows the protocol, for the conversation's tests.
//!
//! The model follows `PostgresMain`, `SocketBackend` and `CopyGetData` of the real server. They
//! determine which messages are skipped after an error, which ones COPY consumes, and which errors
//! end in ReadyForQuery. The model also follows `StartReplication`: either side may end a stream,
//! and the replies after it.

use std::collections::BTreeMap;

use crate::postgres::TransactionStatus::{self, Failed, Idle, InTransaction};
use crate::postgres::backend::SqlState;
use crate::postgres::frame::{self, LENGTH_MAX};
use crate::postgres::frontend::{self, Target};
use crate::postgres::{Parsed, build};

#[derive(Debug, Clone)]
struct CopyIn {
    /// True if begun by Execute, not by Query.
    extended: bool,
    /// Fails at this number of data messages.
    fails_after: Option<usize>,
    /// Statements of the Query that follow.
    rest: Vec<String>,
}

/// COPY in both directions.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// True if the server has sent all its data.
    is_done: bool,
    /// True if the stream fails at the first data of the client.
    fails: bool,
}

#[derive(Debug)]
pub(super) struct Server {
    input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) statements: BTreeMap<Vec<u8>, String>,
    portals: BTreeMap<Vec<u8>, String>,
    pub(super) status: TransactionStatus,
    skipping: bool,
    copy: Option<CopyIn>,
    stream: Option<Stream>,
}

impl Server {
    pub(super) fn new() -> Self {
        Server {
            input: Vec::new(),
            output: Vec::new(),
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            status: Idle,
            skipping: false,
            copy: None,
            stream: None,
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    pub(super) fn is_idle(&self) -> bool {
        let is_at_rest = !self.skipping && self.copy.is_none() && self.stream.is_none();
        self.input.is_empty() && self.status == Idle && is_at_rest
    }

    /// Handles one message, if there is one.
    pub(super) fn step(&mut self) -> bool {
        let Parsed::Frame(message, length) = frame::frame(&self.input, LENGTH_MAX) else {
            return false;
        };
        let body = message.body.to_vec();
        let tag = message.tag;
        self.input.drain(..length);
        let frame = frame::Frame { tag, body: &body };
        let request = frontend::request(frame).unwrap();
        if self.copy.is_some() {
            self.copy_data(request);
        } else if let Some(stream) = self.stream {
            self.stream_data(stream, request);
        } else if !self.skipping || matches!(request, frontend::Request::Sync) {
            self.command(request);
        }
        true
    }

    fn command(&mut self, request: frontend::Request<'_>) {
        match request {
            frontend::Request::Query { text } => {
                let text = String::from_utf8(text.to_vec()).unwrap();
                self.statements.remove(b"".as_slice());
                self.run_all(text.split(';').map(str::to_owned).collect());
            }
            frontend::Request::Parse {
                statement, text, ..
            } => {
                if text == b"bad" {
                    return self.fail(true);
                }
                let text = String::from_utf8(text.to_vec()).unwrap();
                self.statements.insert(statement.to_vec(), text);
                build::empty(&mut self.output, b'1');
            }
            frontend::Request::Bind {
                portal, statement, ..
            } => match self.statements.get(statement).cloned() {
                None => self.fail(true),
                Some(text) => {
                    self.portals.insert(portal.to_vec(), text);
                    build::empty(&mut self.output, b'2');
                }
            },
            frontend::Request::Describe(target) => self.describe(target),
            frontend::Request::Execute { portal, .. } => match self.portals.get(portal).cloned() {
                None => self.fail(true),
                Some(text) => {
                    self.run(&text, true, Vec::new());
                }
            },
            frontend::Request::Close(target) => {
                match target {
                    Target::Statement(name) => self.statements.remove(name),
                    Target::Portal(name) => self.portals.remove(name),
                };
                build::empty(&mut self.output, b'3');
            }
            frontend::Request::Sync => {
                self.skipping = false;
                self.ready();
            }
            frontend::Request::FunctionCall { function: 0, .. } => {
                self.fail(false);
                self.ready();
            }
            frontend::Request::FunctionCall { .. } => {
                build::empty(&mut self.output, b'V');
                self.ready();
            }
            _ => {}
        }
    }

    fn describe(&mut self, target: Target<'_>) {
        let (name, known) = match target {
            Target::Statement(name) => (name, &self.statements),
            Target::Portal(name) => (name, &self.portals),
        };
        let Some(text) = known.get(name).cloned() else {
            return self.fail(true);
        };
        if let Target::Statement(_) = target {
            build::empty(&mut self.output, b't');
        }
        let rows = text == "select";
        build::empty(&mut self.output, if rows { b'T' } else { b'n' });
    }

    fn ready(&mut self) {
        build::ready_for_query(&mut self.output, self.status);
    }

    fn run_all(&mut self, mut texts: Vec<String>) {
        while !texts.is_empty() {
            let text = texts.remove(0);
            if !self.run(&text, false, texts.clone()) {
                return;
            }
        }
        self.ready();
    }

    /// Runs one statement. Returns whether to continue with the next one.
    fn run(&mut self, text: &str, extended: bool, rest: Vec<String>) -> bool {
        let fails_after = match text {
            "copyfails" => Some(2),
            "copytrigger" => Some(0),
            _ => None,
        };
        match text {
            "" => build::empty(&mut self.output, b'I'),
            "begin" => self.status = InTransaction,
            "commit" => self.status = Idle,
            "select" => {
                if !extended {
                    build::row_description(&mut self.output, &[b"a"]);
                }
                build::data_row(&mut self.output, &[Some(b"1"), None]);
                build::notice(&mut self.output, &error("NOTICE"));
            }
            "copyin" | "copyfails" | "copytrigger" => {
                build::empty(&mut self.output, b'G');
                self.copy = Some(CopyIn {
                    extended,
                    fails_after,
                    rest,
                });
                if fails_after == Some(0) {
                    self.copy_fails();
                }
                return false;
            }
            "copyout" => {
                build::empty(&mut self.output, b'H');
                build::empty(&mut self.output, b'd');
                build::empty(&mut self.output, b'c');
            }
            "stream" | "streamends" | "streamfails" => {
                self.begin_stream(text);
                return false;
            }
            _ => {
                self.fail(extended);
                if !extended {
                    self.ready();
                }
                return false;
            }
        }
        if !text.is_empty() {
            build::command_complete(&mut self.output, b"DONE 1");
        }
        true
    }

    fn fail(&mut self, extended: bool) {
        build::error(&mut self.output, &error("ERROR"));
        self.skipping = extended;
        if self.status == InTransaction {
            self.status = Failed;
        }
    }

    fn copy_data(&mut self, request: frontend::Request<'_>) {
        let copy = self.copy.as_mut().unwrap();
        match request {
            frontend::Request::CopyData(_) => {
                if let Some(left) = &mut copy.fails_after {
                    *left -= 1;
                    if *left == 0 {
                        self.copy_fails();
                    }
                }
            }
            frontend::Request::CopyDone => {
                let copy = self.copy.take().unwrap();
                build::command_complete(&mut self.output, b"COPY 1");
                if !copy.extended {
                    self.run_all(copy.rest);
                }
            }
            frontend::Request::Sync | frontend::Request::Flush => {}
            _ => self.copy_fails(),
        }
    }

    /// Begins a stream. `streamends`: all data is sent immediately, as for a timeline that has
    /// ended.
    fn begin_stream(&mut self, text: &str) {
        build::empty(&mut self.output, b'W');
        let is_done = text == "streamends";
        if is_done {
            build::empty(&mut self.output, b'd');
            build::empty(&mut self.output, b'c');
        }
        self.stream = Some(Stream {
            is_done,
            fails: text == "streamfails",
        });
    }

    fn stream_data(&mut self, stream: Stream, request: frontend::Request<'_>) {
        match request {
            frontend::Request::CopyData(_) if stream.fails => {
                self.stream = None;
                self.fail(false);
                self.ready();
            }
            frontend::Request::CopyData(_) if !stream.is_done => {
                build::empty(&mut self.output, b'd');
            }
            frontend::Request::CopyData(_) => {}
            frontend::Request::CopyDone => {
                self.stream = None;
                self.end_stream(stream);
            }
            _ => panic!("a stream ends the connection for that"),
        }
    }

    /// Ends a stream. For a timeline that has ended, the next timeline follows, and CommandComplete
    /// is sent twice.
    fn end_stream(&mut self, stream: Stream) {
        if stream.is_done {
            build::row_description(&mut self.output, &[b"next_tli"]);
            build::data_row(&mut self.output, &[Some(b"2")]);
        } else {
            build::empty(&mut self.output, b'c');
        }
        build::command_complete(&mut self.output, b"START_STREAMING");
        build::command_complete(&mut self.output, b"START_REPLICATION");
        self.ready();
    }

    fn copy_fails(&mut self) {
        let copy = self.copy.take().unwrap();
        self.fail(copy.extended);
        if !copy.extended {
            self.ready();
        }
    }
}

fn error(severity: &str) -> build::ErrorText<'_> {
    build::ErrorText {
        severity,
        sqlstate: SqlState(*b"42601"),
        message: "no",
        detail: "",
        hint: "",
    }
}
