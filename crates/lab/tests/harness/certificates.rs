//! Creates certificates for tests, and files of users.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

const SCRIPT: &str =
    "set -e; openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt \
                      -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE
    for name in server client; do
        subject=$name; [ $name = client ] && subject=sbtest
        openssl req -newkey rsa:2048 -nodes -keyout $name.key -out $name.csr -subj /CN=$subject
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\n' > ext
        openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
            -extfile ext -out $name.crt
    done
    chmod 600 *.key";

const EXPIRED: &str = "set -e; openssl req -newkey rsa:2048 -nodes -keyout expired.key \
                           -out expired.csr -subj /CN=localhost
    printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\n' > cnf
    printf 'policy=p\n[p]\ncommonName=supplied\n[e]\n' >> cnf
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >> cnf
    : > index
    openssl ca -batch -config cnf -rand_serial -cert ca.crt -keyfile ca.key -in expired.csr \
        -out expired.crt -startdate 200101000000Z -enddate 200201000000Z -extensions e -notext
    chmod 600 *.key";

/// A certificate authority `ca`, and the certificates that it has signed: `server` for localhost,
/// `client` for sbtest. Each is a `.crt` and a `.key`.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    /// Creates them with the program `openssl`; prints a message and returns `None` if that fails.
    pub(crate) fn make() -> Option<Certificates> {
        let work_dir = tempfile::tempdir().expect("a directory");
        let made = Command::new("/bin/sh")
            .args(["-c", SCRIPT])
            .current_dir(work_dir.path())
            .output()
            .expect("a shell");
        if !made.status.success() {
            let printed = String::from_utf8_lossy(&made.stderr).into_owned();
            println!("skipped: openssl: {printed}");
            return None;
        }
        Some(Certificates(work_dir))
    }

    /// Adds the certificate of a server of that DNS name, as `NAME.crt` and `NAME.key`.
    pub(crate) fn add_server(&self, name: &str, dns_name: &str) {
        let script = format!(
            "set -e; openssl req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr \
                 -subj /CN={dns_name}
             printf 'subjectAltName=DNS:{dns_name}\\n' > {name}.ext
             openssl x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile {name}.ext -out {name}.crt; chmod 600 {name}.key"
        );
        self.run(&script);
    }

    /// Adds a certificate of a server for localhost that has expired, as `expired.crt` and
    /// `expired.key`.
    pub(crate) fn add_expired(&self) {
        self.run(EXPIRED);
    }

    fn run(&self, script: &str) {
        let mut shell = Command::new("/bin/sh");
        let made = shell.args(["-c", script]).current_dir(self.0.path());
        let made = made.output().expect("a shell");
        assert!(made.status.success(), "{made:?}");
    }

    /// Returns the fingerprint of a certificate, as `openssl` prints it.
    pub(crate) fn fingerprint(&self, name: &str) -> String {
        let printed = Command::new("openssl")
            .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
            .arg(self.0.path().join(name))
            .output()
            .expect("openssl");
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let (_, fingerprint) = printed.split_once('=').expect("a fingerprint");
        fingerprint.trim().to_owned()
    }

    /// Returns the path of one of its files.
    pub(crate) fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// Writes a file that only its owner may read, as required for passwords.
pub(crate) fn write_private(path: impl AsRef<Path>, text: &str) {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).expect("a file can be made");
    file.write_all(text.as_bytes()).expect("it has room");
}

/// Returns a file with the lab's only user, and one that tests create, made once per test program.
pub(crate) fn file_of_sbtest() -> &'static str {
    static FILE: OnceLock<String> = OnceLock::new();
    FILE.get_or_init(|| {
        let name = concat!(env!("CARGO_CRATE_NAME"), "-users.toml");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let users = "[users.sbtest]\npassword = \"sbtest\"\n[users.fresh]\npassword = \"fresh\"\n";
        write_private(&path, users);
        path.display().to_string()
    })
}
