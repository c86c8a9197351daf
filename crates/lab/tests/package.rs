//! Tests of the Debian package: its contents, and its administration on a temporary machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use evenkeel_lab::balancer::find_binary;

/// Package of the tests' own binary, since a release build takes minutes. `None` if there is no
/// dpkg.
static PACKAGE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    for tool in ["dpkg-deb", "dpkg-shlibdeps", "strip"] {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("not run: no {tool} here");
            return None;
        }
    }
    let mut xtask = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    xtask.args(["run", "--quiet", "--package", "xtask", "--", "package"]);
    xtask.arg("--binary").arg(find_binary().expect("a binary"));
    xtask.args(["--out", env!("CARGO_TARGET_TMPDIR")]);
    // The default takes half a minute for a program with debug assertions.
    xtask.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip");
    xtask.env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let path = printed(xtask.current_dir(repository()));
    Some(PathBuf::from(path.trim_end()))
});

#[test]
fn the_package_holds_what_it_should() {
    let Some(package) = PACKAGE.as_ref() else {
        return;
    };
    let field = |name: &str| printed(deb().arg("--field").arg(package).arg(name));
    assert_eq!(field("Package"), "evenkeel\n");
    let version = format!("{}-1\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(field("Version"), version);
    assert!(
        field("Depends").starts_with("libc6 (>= "),
        "{}",
        field("Depends")
    );
    let list = printed(deb().arg("--contents").arg(package));
    for (mode, file) in [
        ("-rwxr-xr-x root/root", "./usr/bin/evenkeel"),
        ("-rw-r--r-- root/root", "./etc/evenkeel/evenkeel.toml"),
        (
            "-rw-r--r-- root/root",
            "./usr/lib/systemd/system/evenkeel.service",
        ),
        ("-rw-r--r-- root/root", "./usr/share/doc/evenkeel/copyright"),
        (
            "-rw-r--r-- root/root",
            "./usr/share/man/man1/evenkeel-run.1.gz",
        ),
    ] {
        let found = list
            .lines()
            .find(|line| line.ends_with(&format!(" {file}")));
        assert!(
            found.is_some_and(|line| line.starts_with(mode)),
            "{file}: {list}"
        );
    }
    // The manual comes from the program itself; its `help` has no pages.
    assert!(!list.contains("evenkeel-help"), "{list}");
    assert!(!list.contains("evenkeel-manual"), "{list}");
}

#[test]
fn the_unpacked_program_takes_the_example_of_its_config() {
    let Some(package) = PACKAGE.as_ref() else {
        return;
    };
    let work_dir = tempfile::tempdir().expect("it works");
    printed(deb().arg("--extract").arg(package).arg(work_dir.path()));
    let config = work_dir.path().join("etc/evenkeel/evenkeel.toml");
    let text = std::fs::read_to_string(&config).expect("it works");
    let check = || {
        let mut evenkeel = Command::new(work_dir.path().join("usr/bin/evenkeel"));
        evenkeel
            .arg("check")
            .arg("-c")
            .arg(&config)
            .output()
            .expect("it runs")
    };
    assert!(
        words(&check()).contains("defines no service"),
        "{}",
        words(&check())
    );
    let is_comment = |line: &str| line.starts_with("# ") || line.starts_with("#:schema ");
    let is_example = |line: &&str| line.starts_with('#') && !is_comment(line);
    let example: Vec<&str> = text.lines().filter(is_example).collect();
    let lines = example.iter().map(|line| format!("{}\n", &line[1..]));
    std::fs::write(&config, lines.collect::<String>()).expect("it works");
    assert!(
        words(&check()).contains("OK: 1 service, 2 servers"),
        "{}",
        words(&check())
    );
}

/// `packaging/tests/steps` contains an administrator's steps; each of its lines is an assertion.
#[test]
fn a_machine_installs_runs_upgrades_and_purges_it() {
    let Some(package) = PACKAGE.as_ref() else {
        return;
    };
    let tests = repository().join("packaging/tests");
    let mut boot = Command::new(tests.join("boot"));
    let output = boot
        .arg(package)
        .arg(tests.join("steps"))
        .output()
        .expect("it runs");
    let words = words(&output);
    if words.starts_with("not run: ") {
        eprint!("{words}");
        return;
    }
    assert!(words.contains("\nall is as it should be\n"), "{words}");
}

fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("crates/lab is in it")
}

fn deb() -> Command {
    Command::new("dpkg-deb")
}

/// Returns the output of a command that must succeed.
fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", words(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn words(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr];
    both.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}
