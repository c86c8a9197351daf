//! Starts web servers, nginx or Apache: each answers with its own name, and has small, large and
//! slow pages.

mod apache;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::{ServerSlot, for_each_at_once};
use crate::process::Launch;
use crate::server::{Kind, Role, Server};
use crate::{Lab, tool};

const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Files that every server has; the large ones are sparse and take no disk space.
const FILES: &[(&str, u64)] = &[
    ("29b", 29),
    ("1k", 1 << 10),
    ("100k", 100 << 10),
    ("1m", 1 << 20),
    ("100m", 100 << 20),
    ("1g", 1 << 30),
    ("slow", 2000),
];

/// Size of the page that the server must compress for each request.
const WORK_BYTES: usize = 60 << 10;

impl Lab {
    /// Starts `count` web servers with keep-alive. `/` returns the server's name; `/29b`, `/1k`,
    /// `/100k`, `/1m`, `/100m` and `/1g` are files of that size. `/slow` takes about two seconds,
    /// `/work` some milliseconds of processor time for clients that accept gzip. `/rows` is JSON of
    /// 80 kB. `/status` counts the requests.
    pub fn web(&self, count: usize) -> Result<Vec<Server>> {
        self.web_by(WebProgram::Nginx, count)
    }

    /// Starts `count` servers of this program, as [`Lab::web`] does.
    pub fn web_by(&self, program: WebProgram, count: usize) -> Result<Vec<Server>> {
        let servers = (1..=count)
            .map(|number| self.enlist_web(program, &format!("web-{number}")))
            .collect::<Result<Vec<Server>>>()?;
        for_each_at_once(&servers, Server::start)?;
        Ok(servers)
    }

    fn enlist_web(&self, program: WebProgram, name: &str) -> Result<Server> {
        let slot = self.allocate_slot(name);
        let files = slot.directory.join("files");
        fs::create_dir_all(&files)?;
        for (file, bytes) in FILES {
            File::create(files.join(file))?.set_len(*bytes)?;
        }
        fs::write(files.join("work"), numbers(WORK_BYTES))?;
        fs::write(files.join("rows"), rows())?;
        let (config, launch) = match program {
            WebProgram::Nginx => nginx(&slot)?,
            WebProgram::Apache => apache::prepare(&slot)?,
        };
        Ok(self.enlist(
            &slot,
            Role::StandAlone,
            launch,
            Arc::new(Web {
                address: slot.address,
                config,
            }),
        ))
    }
}

/// Program that serves the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebProgram {
    /// One process without threads, which serves requests sequentially.
    #[default]
    Nginx,
    /// One thread for each request.
    Apache,
}

impl WebProgram {
    /// Returns what is missing to start it; `None` if nothing is.
    pub(crate) fn missing(self) -> Option<String> {
        let (name, program) = match self {
            WebProgram::Nginx => ("nginx", "nginx"),
            WebProgram::Apache => ("Apache", "apache2"),
        };
        let error = tool::find(program).err()?;
        Some(format!("{name} is not installed: {error:#}"))
    }
}

fn nginx(slot: &ServerSlot) -> Result<(PathBuf, Launch)> {
    let config = slot.directory.join("nginx.conf");
    fs::write(&config, configuration(slot))?;
    let launch = Launch {
        program: tool::find("nginx")?,
        arguments: ["-e", "stderr", "-c", &config.display().to_string()]
            .map(str::to_owned)
            .into(),
        stop_signal: libc::SIGTERM,
        ..Launch::default()
    };
    Ok((config, launch))
}

/// Returns digits of medium compressibility.
fn numbers(bytes: usize) -> String {
    let mut state: u64 = 1;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:08} ", state >> 40));
    }
    text.truncate(bytes);
    text
}

/// Returns a list of records in JSON.
fn rows() -> String {
    let digits = numbers(9_000);
    let rows = digits.split(' ').enumerate().map(|(id, digits)| {
        let (price, stock) = digits.split_at(digits.len() / 2);
        format!(
            "{{\"id\":{id},\"name\":\"article {digits}\",\"price\":\"{price}\",\
             \"stock\":\"{stock}\",\"currency\":\"EUR\"}}"
        )
    });
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

struct Web {
    address: SocketAddr,
    config: PathBuf,
}

impl Kind for Web {
    fn answers(&self) -> bool {
        get(self.address, "/").is_ok()
    }

    fn sql(&self, _statements: &str) -> Result<String> {
        bail!("a web server speaks no SQL")
    }

    fn config_files(&self) -> Vec<PathBuf> {
        vec![self.config.clone()]
    }

    fn connect_command(&self) -> String {
        format!("curl http://{}/", self.address)
    }
}

/// Returns the number of requests that the server has received, from its status page.
pub(crate) fn requests(address: SocketAddr) -> Option<u64> {
    let page = get(address, "/status?auto").ok()?;
    let apaches = page
        .lines()
        .find_map(|line| line.strip_prefix("Total Accesses: "));
    // nginx: "server accepts handled requests", and below them three numbers.
    let nginx = || page.lines().nth(2)?.split_whitespace().nth(2);
    apaches.or_else(nginx)?.parse().ok()
}

/// Returns the body of a page, over a new connection.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    get_within(ANSWER_LIMIT, address, path)
}

/// Like [`get`], with a limit for each read.
pub fn get_within(limit: Duration, address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        bail!("no HTTP answer: {answer:?}")
    };
    let status = head.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") {
        bail!("{path}: {status}");
    }
    Ok(body.to_owned())
}

/// Sends this request, which ends its connection, over a new one, and reads the whole answer.
pub(crate) async fn fetch(address: SocketAddr, request: &str) -> Result<()> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        bail!("not answered with 200");
    }
    Ok(())
}

/// Returns a configuration with one process and no master: it must die completely, and needs no
/// supervision.
fn configuration(slot: &ServerSlot) -> String {
    let ServerSlot {
        name,
        address,
        directory,
        ..
    } = slot;
    let directory = directory.display();
    format!(
        "daemon off;\nmaster_process off;\nworker_rlimit_nofile 20000;\npid {directory}/pid;\n\
         events {{ worker_connections 10000; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_timeout 3600s;\n\
         \x20 keepalive_requests 1000000000;\n\
         \x20 client_body_temp_path {directory}/t1;\n  proxy_temp_path {directory}/t2;\n\
         \x20 fastcgi_temp_path {directory}/t3;\n  uwsgi_temp_path {directory}/t4;\n  scgi_temp_path {directory}/t5;\n\
         \x20 server {{\n    listen {address} backlog=4096;\n    root {directory}/files;\n\
         \x20   location = / {{ return 200 \"{name}\"; }}\n\
         \x20   location = /slow {{ limit_rate 1000; }}\n\
         \x20   location = /status {{ stub_status; }}\n\
         \x20   location = /work {{ gzip on; gzip_comp_level 9; gzip_types *; gzip_http_version 1.0; \
         gzip_proxied any; }}\n  }}\n}}\n"
    )
}
