//! Starts Pebble, an authority for tests of ACME, with names that all lead to loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use evenkeel_lab::free_port;
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::peer;

/// Pebble, which verifies names on ports of loopback.
pub(crate) struct Pebble {
    program: PathBuf,
    certificates: Certificates,
    directory: TempDir,
    /// Port of its directory.
    port: u16,
    management: u16,
    names: u16,
    process: Option<Child>,
}

impl Pebble {
    /// Starts it; prints a message and returns `None` if that is not possible. It verifies names on
    /// these ports, without and with TLS, and signs certificates that are valid for this time in
    /// seconds.
    pub(crate) fn start(http: u16, tls: u16, valid_s: u32) -> Option<Pebble> {
        let program = match evenkeel_lab::compat::pebble() {
            Ok(program) => program,
            Err(why) => {
                println!("skipped: {why:#}");
                return None;
            }
        };
        let certificates = Certificates::make()?;
        let directory = tempfile::tempdir().unwrap();
        let (port, management) = (free_port(), free_port());
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": certificates.at("server.crt"),
            "privateKey": certificates.at("server.key"),
            "httpPort": http,
            "tlsPort": tls,
            "keyAlgorithm": "ecdsa",
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": { "description": "", "validityPeriod": valid_s } },
        }});
        fs::write(directory.path().join("pebble.json"), config.to_string()).unwrap();
        let mut pebble = Pebble {
            program,
            certificates,
            directory,
            port,
            management,
            names: serve_names(),
            process: None,
        };
        pebble.resume();
        Some(pebble)
    }

    /// Ends the process, as if the authority were down.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts it again. It has forgotten accounts and orders.
    pub(crate) fn resume(&mut self) {
        let log = self.directory.path().join("log");
        let mut options = fs::OpenOptions::new();
        let log = options.create(true).append(true).open(log).unwrap();
        // It ends with the test, however that ends.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&self.program)
            .arg("-config")
            .arg(self.directory.path().join("pebble.json"))
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.names)])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
        peer::until("Pebble to listen", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    /// Returns `[acme]` with this authority.
    pub(crate) fn table(&self, storage: &str, more: &str) -> String {
        format!(
            "[acme]\nterms_agreed = true\ndirectory = \"https://localhost:{}/dir\"\n\
             ca = {:?}\nstorage = {storage:?}\n{more}\n",
            self.port,
            self.certificates.at("ca.crt")
        )
    }

    /// Returns the path of a file of its own authority.
    pub(crate) fn certificate(&self, name: &str) -> String {
        self.certificates.at(name)
    }

    /// Returns how many certificates it has signed.
    pub(crate) fn issued(&self) -> usize {
        self.count("Issued certificate serial")
    }

    /// Returns how many orders it has received.
    pub(crate) fn orders(&self) -> usize {
        self.count("POST /order-plz ->")
    }

    /// Returns what it says of the certificate with this serial number in hexadecimal digits.
    pub(crate) fn status(&self, serial: &str) -> String {
        let management = self.management;
        let url = format!("https://127.0.0.1:{management}/cert-status-by-serial/{serial}");
        let output = Command::new("curl").args(["-sk", &url]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn count(&self, what: &str) -> usize {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap();
        log.matches(what).count()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Answers questions for addresses of any name with that of loopback. Returns its port.
fn serve_names() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_questions(stream));
        }
    });
    port
}

/// Answers the questions of one connection (RFC 1035 §4).
fn answer_questions(mut stream: TcpStream) -> Option<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length).ok()?;
        let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut question).ok()?;
        let mut end = 12;
        while question[end] != 0 {
            end += usize::from(question[end]) + 1;
        }
        let asked = &question[12..end + 5];
        let is_ipv4 = question[end + 1..end + 3] == [0, 1];
        let counts = [0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0];
        let mut answer = [&question[..2], &[0x81, 0x80], &counts, asked].concat();
        if is_ipv4 {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
        }
        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat()).ok()?;
    }
}
