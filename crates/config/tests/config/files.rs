//! Tests files on disk: the examples, missing and unreadable files, and the files that a config
//! names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use evenkeel_config::plan::{Probe, TlsMode};
use evenkeel_config::{load, socket_of};
use tempfile::TempDir;

use super::{code_and_place, service};

fn write(directory: &TempDir, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, text).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set the mode");
    path
}

fn problems(path: &Path) -> Vec<String> {
    load(path)
        .problems
        .reported()
        .iter()
        .map(code_and_place)
        .collect()
}

#[test]
fn the_examples_are_good() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in fs::read_dir(examples).expect("the examples") {
        let path = entry.expect("an example").path();
        let loaded = load(&path);
        assert_eq!(loaded.problems.reported(), [], "{}", path.display());
        assert!(loaded.plan.is_some());
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn a_missing_file_a_directory_and_bytes_that_are_no_text_are_told_apart() {
    let directory = TempDir::new().expect("a directory");
    let message = |path: &Path| load(path).problems.reported().remove(0);
    let missing = message(&directory.path().join("x.toml"));
    assert_eq!((missing.code.as_str(), missing.line), ("E_FILE", None));
    assert!(
        missing.message.contains("no such file"),
        "{}",
        missing.message
    );
    assert!(message(directory.path()).message.contains("is a directory"));
    let path = write(&directory, "latin.toml", b"a = 1\nb = '\xfc'", 0o600);
    assert_eq!(problems(&path), ["E_NOT_UTF8 2:6"]);
}

#[test]
fn secrets_are_read_from_files_beside_the_config() {
    let directory = TempDir::new().expect("a directory");
    write(&directory, "password", "hunter2\n", 0o600);
    let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).expect("a certificate");
    write(&directory, "ca.pem", made.cert.pem(), 0o644);
    let tables = "[service.health]\nprobe='mysql'\n\
        [service.monitor]\nuser='m'\npassword_file='password'\n\
        [service.server_tls]\nca='ca.pem'\n[admin]\nsocket='s.sock'";
    let path = write(&directory, "evenkeel.toml", service(tables), 0o644);
    let loaded = load(&path);
    assert_eq!(loaded.problems.reported(), []);
    let plan = loaded.plan.expect("a plan");
    let service = &plan.services[0];
    let monitor = service.monitor.as_ref().expect("a monitor");
    assert_eq!(monitor.password.expose(), "hunter2");
    assert_eq!(service.health.probe, Probe::named("mysql"));
    let ca = service.server_tls.ca.as_ref().expect("authorities");
    assert_eq!(ca.path, directory.path().join("ca.pem"));
    assert_eq!(ca.text.expose(), made.cert.pem());
    assert_eq!(
        service.server_tls.mode_for(&service.servers[0].address),
        TlsMode::Verify
    );
    assert_eq!(plan.admin.socket, directory.path().join("s.sock"));
}

#[test]
fn a_renewed_certificate_of_the_servers_authority_is_another_plan() {
    let directory = TempDir::new().expect("a directory");
    let tables = "[service.health]\nprobe='mysql'\n[service.monitor]\nuser='m'\n\
        [service.server_tls]\nca='ca.pem'";
    let path = write(&directory, "evenkeel.toml", service(tables), 0o600);
    let [old, new] = [(), ()].map(|()| {
        let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).expect("a certificate");
        write(&directory, "ca.pem", made.cert.pem(), 0o644);
        let plan = load(&path).plan.expect("a plan");
        plan.services[0].server_tls.clone()
    });
    assert_ne!(old, new);
}

#[test]
fn files_that_are_missing_empty_or_open_to_all_are_told() {
    let directory = TempDir::new().expect("a directory");
    write(&directory, "empty", "\n", 0o600);
    write(&directory, "open", "x", 0o644);
    let check = |tables: &str, mode: u32, expected: &str| {
        let path = write(&directory, "evenkeel.toml", service(tables), mode);
        assert_eq!(problems(&path), [expected], "{tables}");
    };
    check("[admin]\ntoken_file='none'", 0o644, "E_FILE 6:12");
    check("[admin]\ntoken_file='empty'", 0o644, "E_FILE 6:12");
    check(
        "[admin]\ntoken_file='open'",
        0o644,
        "E_SECRET_READABLE 6:12",
    );
    check("[admin]\ntoken='x'", 0o644, "W_SECRET_READABLE 6:1");
    check("[admin]\ntoken='x'\ntoken_file='open'", 0o600, "E_BOTH 7:1");
    let tls = "[service.health]\nprobe='postgres'\n[service.monitor]\nuser='m'\n\
        [service.server_tls]\nca='none'";
    check(tls, 0o644, "E_FILE 10:4");
    check(&tls.replace("none", "open"), 0o644, "E_FILE 10:4");
    check(
        &tls.replace("ca='none'", "ca='open'\nmode='off'"),
        0o644,
        "W_NO_EFFECT 10:1",
    );
}

#[test]
fn the_socket_is_found_in_a_file_that_is_wrong_elsewhere() {
    let directory = TempDir::new().expect("a directory");
    let path = write(
        &directory,
        "evenkeel.toml",
        "[admin]\nsocket='/run/x.sock'\nfoo=1\n[a",
        0o600,
    );
    assert_eq!(socket_of(&path), Ok(PathBuf::from("/run/x.sock")));
    assert!(socket_of(&directory.path().join("none")).is_err());
}
