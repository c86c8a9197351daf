//! Builds the server and the client of grpc-go.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use evenkeel_lab::free_port;

/// Version that is fetched from the proxy of Go's modules.
const GRPC: &str = "google.golang.org/grpc@v1.85.0";

/// Returns the program, which is built once. `None`: there is no Go, or no way to its modules.
pub(crate) fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpc-go");
    std::fs::create_dir_all(&directory).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc/main.go");
    std::fs::copy(source, directory.join("main.go")).unwrap();
    let script = format!(
        "PATH=$PATH:/usr/local/go/bin; test -f go.mod || go mod init evenkeel/grpc && grep -q grpc \
         go.mod || go get {GRPC} && go build -o grpc ."
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(&directory)
        .env("GOFLAGS", "-mod=mod")
        .output()
        .unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("skipped: grpc-go cannot be built: {why}");
        return None;
    }
    Some(directory.join("grpc"))
}

/// A server of grpc-go.
pub(crate) struct Server {
    pub(crate) address: String,
    process: Child,
}

impl Server {
    /// Starts a server. `None`: there is no Go.
    pub(crate) fn start() -> Option<Server> {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(program()?);
        command.args(["serve", &address]).stdout(Stdio::piped());
        Some(Server::spawn(&mut command, address))
    }

    /// Starts the command of a server, and waits until it prints a line.
    pub(crate) fn spawn(command: &mut Command, address: String) -> Server {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        std::thread::spawn(move || lines.for_each(drop));
        Server { address, process }
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a command that must succeed, and returns what it prints.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {output:?}");
    printed
}

/// Runs the client of grpc-go with these arguments, and returns what it prints.
#[track_caller]
pub(crate) fn client(arguments: &[&str]) -> String {
    run(Command::new(program().unwrap()).args(arguments))
}
