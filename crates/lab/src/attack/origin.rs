//! Starts servers that record each complete request, and answer with its target.

pub(super) mod front;
mod kind;
pub(super) mod launch;

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{Launch, Process};
use crate::scratch::Scratch;
use crate::{eventually, free_port};
pub use kind::Kind;

const READY_LIMIT: Duration = Duration::from_secs(20);

/// Request as a server has recorded it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Method.
    pub method: String,
    /// Target.
    pub target: String,
    /// Field `Host`.
    pub host: String,
    /// Body in hexadecimal digits.
    pub body: String,
    /// Body as text, in place of `body`.
    pub body_text: Option<String>,
    /// Field `X-Id`, where the fields are not recorded.
    pub id: String,
    /// Names and values of the fields, in turn.
    pub fields: Vec<String>,
    /// Status, where the server refuses requests by itself and records them.
    pub status: Option<u16>,
    /// Reason for which the server has refused bytes before they were a request.
    pub refused: Option<String>,
}

impl Record {
    /// Returns the body.
    pub fn body(&self) -> Vec<u8> {
        if let Some(text) = &self.body_text {
            return text.clone().into_bytes();
        }
        let digits = self.body.as_bytes().chunks(2);
        digits
            .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect()
    }

    /// Returns whether the server has refused it instead of serving it.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some() || self.status.is_some_and(|status| status >= 400)
    }
}

/// A running server.
pub struct Origin {
    /// Program.
    pub kind: Kind,
    /// Address, as the configuration names it.
    pub address: String,
    log: PathBuf,
    _processes: Vec<Process>,
    _scratch: Scratch,
}

impl Origin {
    /// Starts the server, and waits until it accepts connections.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start(kind: Kind) -> Result<Origin> {
        let scratch = Scratch::new("origin")?;
        let log = scratch.path().join("requests");
        fs::write(&log, "")?;
        // Servers that root starts serve requests as another user.
        fs::set_permissions(&log, Permissions::from_mode(0o666))?;
        let port = free_port();
        let parts = launch::prepare(kind, scratch.path(), port)?;
        let processes = start_all(kind.name(), &scratch, parts)?;
        let address = format!("127.0.0.1:{port}");
        Ok(Origin {
            kind,
            address,
            log,
            _processes: processes,
            _scratch: scratch,
        })
    }

    /// Returns all records so far.
    ///
    /// # Errors
    /// The file cannot be read, or has other lines.
    pub fn records(&self) -> Result<Vec<Record>> {
        let text = fs::read(&self.log)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect()
    }
}

/// A program of a server, and the port at which it accepts connections.
pub(super) struct Part {
    pub(super) launch: Launch,
    pub(super) port: u16,
}

/// Starts the programs of a server in their order, and waits until each accepts connections.
///
/// # Errors
/// A program does not start.
pub(super) fn start_all(name: &str, scratch: &Scratch, parts: Vec<Part>) -> Result<Vec<Process>> {
    let numbered = parts.into_iter().enumerate();
    let started = numbered.map(|(number, Part { launch, port })| {
        let part = format!("{name}-{number}");
        let process = Process::new(Launch {
            log: scratch.path().join(format!("log-{number}")),
            note: scratch.note(&part),
            name: part,
            stop_signal: libc::SIGTERM,
            ..launch
        });
        process.start()?;
        wait_until_listening(port, &process)?;
        Ok(process)
    });
    started.collect()
}

fn wait_until_listening(port: u16, process: &Process) -> Result<()> {
    eventually(READY_LIMIT, "a connection to the server", || {
        if !process.is_running() {
            bail!("it ended: {}", process.log_tail());
        }
        Ok(TcpStream::connect(("127.0.0.1", port)).ok())
    })?;
    Ok(())
}
