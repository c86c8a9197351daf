//! Starts nginx as a TLS server, and clients of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use evenkeel_lab::free_port;
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::peer;

/// Header of a TLS record.
const RECORD_HEADER: usize = 5;

/// An nginx with a certificate for one name, which it also answers with.
pub(crate) struct Origin {
    pub(crate) address: String,
    process: Child,
    _directory: TempDir,
}

impl Origin {
    /// Starts it. `options` of `listen` are for example `proxy_protocol`.
    pub(crate) fn start(certificates: &Certificates, name: &str, options: &str) -> Origin {
        certificates.add_server(name, name);
        let directory = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let (certificate, key) = (
            certificates.at(&format!("{name}.crt")),
            certificates.at(&format!("{name}.key")),
        );
        let at = directory.path().display();
        let config = format!(
            "daemon off; worker_processes 1; pid {at}/pid; error_log stderr;
             events {{ }}
             http {{
                 access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
                 fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi;
                 scgi_temp_path {at}/scgi;
                 server {{
                     listen {address} ssl {options}; ssl_certificate {certificate};
                     ssl_certificate_key {key};
                     location / {{ return 200 '{name} for $ssl_server_name $proxy_protocol_addr'; }}
                 }}
             }}"
        );
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, config).unwrap();
        let process = Command::new("nginx")
            .args(["-e", "stderr", "-c"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        peer::until("nginx to listen", || TcpStream::connect(&address).is_ok());
        Origin {
            address,
            process,
            _directory: directory,
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // The worker ends with its master, unless that is killed.
        let id = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.process.wait();
    }
}

/// Returns what `curl` receives from a name at an address; the certificate must be that of the
/// name.
pub(crate) fn curl(
    certificates: &Certificates,
    (name, address): (&str, &str),
    options: &[&str],
) -> String {
    let (ip, port) = address.rsplit_once(':').unwrap();
    let output = Command::new("curl")
        .args(["-s", "--max-time", "10", "--cacert"])
        .arg(certificates.at("ca.crt"))
        .args(["--resolve", &format!("{name}:{port}:{ip}")])
        .args(options)
        .arg(format!("https://{name}:{port}/"))
        .output()
        .unwrap();
    match output.status.success() {
        true => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        false => format!("curl ends with {}", output.status),
    }
}

/// A TLS client of `openssl`, which may send several requests.
pub(crate) struct Openssl(Child);

impl Openssl {
    pub(crate) fn connect(address: &str, options: &[&str]) -> Openssl {
        let child = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", address])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Openssl(child)
    }

    /// Sends a request, and returns the last line of the answer.
    pub(crate) fn ask(&mut self) -> String {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        self.0.stdin.as_mut().unwrap().write_all(request).unwrap();
        let output = self.0.stdout.as_mut().unwrap();
        let mut answer = String::new();
        loop {
            let mut byte = [0];
            if output.read(&mut byte).unwrap() == 0 {
                return format!("end after {answer:?}");
            }
            answer.push(char::from(byte[0]));
            let Some((head, body)) = answer.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            if length == Some(body.len().to_string().as_str()) {
                return body.trim().to_owned();
            }
        }
    }

    /// Waits until the client has lost its connection.
    pub(crate) fn wait(mut self) {
        peer::until("the end of the client", || {
            self.0.try_wait().unwrap().is_some()
        });
    }
}

impl Drop for Openssl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Listens for one client, and connects it to an address. Its first TLS record is split into
/// records of at most `size` bytes, which are sent byte by byte.
pub(crate) fn splitter(to: &str, size: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.to_owned();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(to).unwrap();
        server.set_nodelay(true).unwrap();
        let mut header = [0; RECORD_HEADER];
        client.read_exact(&mut header).unwrap();
        let mut record = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        client.read_exact(&mut record).unwrap();
        for part in record.chunks(size) {
            let length = u16::try_from(part.len()).unwrap().to_be_bytes();
            for byte in [&header[..3], &length, part].concat() {
                server.write_all(&[byte]).unwrap();
                thread::sleep(Duration::from_micros(200));
            }
        }
        let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let up = thread::spawn(move || {
            let _ = std::io::copy(&mut client, &mut server);
            let _ = server.shutdown(Shutdown::Write);
        });
        let _ = std::io::copy(&mut from, &mut back);
        let _ = back.shutdown(Shutdown::Both);
        let _ = up.join();
    });
    address
}
