//! Starts servers that record each complete request, and answer with its target.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{Launch, Process};
use crate::scratch::Scratch;
use crate::{eventually, free_port, tool};

const READY_LIMIT: Duration = Duration::from_secs(20);

/// Program of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// nginx; it does not record fields.
    Nginx,
    /// The module `http` of Node.
    Node,
    /// The module `http.server` of Python.
    Python,
    /// The package `net/http` of Go.
    Go,
}

impl Kind {
    /// All programs.
    pub const ALL: [Kind; 4] = [Kind::Nginx, Kind::Node, Kind::Python, Kind::Go];

    fn program(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::Node => "node",
            Kind::Python => "python3",
            Kind::Go => "go",
        }
    }
}

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
    _process: Process,
    _scratch: Scratch,
}

impl Origin {
    /// Starts the server, and waits until it accepts connections.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start(kind: Kind) -> Result<Origin> {
        let program = find(kind)?;
        let scratch = Scratch::new("origin")?;
        let log = scratch.path().join("requests");
        fs::write(&log, "")?;
        let port = free_port();
        let (program, mut arguments) = prepare(kind, program, &scratch, port)?;
        if kind != Kind::Nginx {
            arguments.extend([port.to_string(), log.display().to_string()]);
        }
        let process = Process::new(Launch {
            name: kind.program().to_owned(),
            program,
            arguments,
            log: scratch.path().join("log"),
            note: scratch.note(kind.program()),
            stop_signal: libc::SIGTERM,
            keep_environment: kind == Kind::Python,
            ..Launch::default()
        });
        process.start()?;
        let address = format!("127.0.0.1:{port}");
        eventually(READY_LIMIT, "a connection to the origin", || {
            if !process.is_running() {
                bail!("{} ended: {}", kind.program(), process.log_tail());
            }
            Ok(TcpStream::connect(&address).ok())
        })?;
        Ok(Origin {
            kind,
            address,
            log,
            _process: process,
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

fn find(kind: Kind) -> Result<PathBuf> {
    let own = PathBuf::from("/usr/local/go/bin/go");
    match tool::find(kind.program()) {
        Err(_) if kind == Kind::Go && own.is_file() => Ok(own),
        found => found,
    }
}

/// Writes the server's file; returns the program to start and its first arguments.
fn prepare(
    kind: Kind,
    program: PathBuf,
    scratch: &Scratch,
    port: u16,
) -> Result<(PathBuf, Vec<String>)> {
    let (name, text) = match kind {
        Kind::Nginx => ("nginx.conf", nginx(scratch, port)),
        Kind::Node => ("origin.js", include_str!("origin.js").to_owned()),
        Kind::Python => ("origin.py", include_str!("origin.py").to_owned()),
        Kind::Go => ("origin.go", include_str!("origin.go").to_owned()),
    };
    let file = scratch.path().join(name);
    fs::write(&file, text)?;
    let file = file.display().to_string();
    match kind {
        Kind::Nginx => Ok((
            program,
            vec!["-e".into(), "stderr".into(), "-c".into(), file],
        )),
        Kind::Node | Kind::Python => Ok((program, vec![file])),
        Kind::Go => {
            let built = scratch.path().join("origin");
            let output = Command::new(program)
                .args(["build", "-o"])
                .args([&built.display().to_string(), &file])
                .env("GO111MODULE", "off")
                .output()?;
            if !output.status.success() {
                bail!("go build: {}", String::from_utf8_lossy(&output.stderr));
            }
            Ok((built, Vec::new()))
        }
    }
}

/// Returns a configuration in which one server passes requests to another, so that it reads and
/// records their bodies.
fn nginx(scratch: &Scratch, port: u16) -> String {
    let directory = scratch.path().display();
    let inner = free_port();
    format!(
        "daemon off;\nmaster_process off;\npid {directory}/pid;\n\
         events {{ worker_connections 2000; }}\n\
         http {{\n  client_body_temp_path {directory}/t1;\n  proxy_temp_path {directory}/t2;\n\
         \x20 fastcgi_temp_path {directory}/t3;\n  uwsgi_temp_path {directory}/t4;\n\
         \x20 scgi_temp_path {directory}/t5;\n  keepalive_timeout 60s;\n\
         \x20 log_format record escape=json '{{\"method\":\"$request_method\",\"target\":\"$request_uri\",\
         \"host\":\"$http_host\",\"body_text\":\"$request_body\",\"id\":\"$http_x_id\",\"status\":$status}}';\n\
         \x20 server {{\n    listen 127.0.0.1:{port} backlog=1024;\n    access_log {directory}/requests record;\n\
         \x20   client_body_in_single_buffer on;\n    client_body_buffer_size 64k;\n\
         \x20   location / {{ proxy_pass http://127.0.0.1:{inner}; proxy_set_header X-Target $request_uri; }}\n  }}\n\
         \x20 server {{\n    listen 127.0.0.1:{inner} backlog=1024;\n    access_log off;\n\
         \x20   location / {{ return 200 \"$http_x_target\"; }}\n  }}\n}}\n"
    )
}
