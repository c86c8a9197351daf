//! The steps that create the root file system: the base, the packages, the cleanup.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::mirror::Mirror;
use super::packages::{self, Outcome, RootfsSpec};
use super::rootfs_dir::RootfsDir;
use super::step;

/// Options of dpkg: no documentation, no translations, and no sync to the disk for each file.
const SPARE: &str = "force-unsafe-io\n\
    path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n\
    path-exclude=/usr/share/info/*\npath-exclude=/usr/share/locale/*\n";

/// Settings of apt, removed at the end: a proxy's address may contain a password.
const APT_SETTINGS: &str = "etc/apt/apt.conf.d/90evenkeel";

/// Creates Debian's minimal system.
pub(crate) fn base(rootfs: &RootfsDir, mirror: &Mirror) -> Result<(), String> {
    let staging_dir = rootfs.staging_dir();
    write(&rootfs.log(), "", 0o600)?;
    let mut command = step::apart(Path::new("/proc"));
    if let Some(proxy) = &mirror.proxy {
        command.env("http_proxy", proxy);
    }
    command.args(["debootstrap", "--variant=minbase"]);
    command
        .arg(format!("--keyring={}", step::KEYRING))
        .arg("sid");
    command.arg(&staging_dir).arg(&mirror.address);
    step::run(command, "debootstrap", &rootfs.log())?;
    prepare(&staging_dir, mirror)?;
    let apart = packages::ROOTFS_SPECS
        .iter()
        .filter(|spec| !spec.directory.is_empty());
    for spec in apart {
        copy_base(&staging_dir, &staging_dir.join(spec.directory))?;
    }
    Ok(())
}

/// Copies the base to a directory below /opt, which the base itself leaves empty.
fn copy_base(staging_dir: &Path, root: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot make {}: {error}", root.display());
    fs::create_dir_all(root).map_err(failed)?;
    let mut command = step::program("cp");
    command.args(["-a", "--reflink=auto", "--"]);
    for entry in fs::read_dir(staging_dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() != "opt" {
            command.arg(entry.path());
        }
    }
    let output = command.arg(root).output().map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(io::Error::other(String::from_utf8_lossy(
            &output.stderr,
        )))),
    }
}

/// Creates the files that must exist before the first package is installed.
fn prepare(staging_dir: &Path, mirror: &Mirror) -> Result<(), String> {
    // Exit code 101 means "action forbidden by policy": packages then start nothing.
    write(
        &staging_dir.join("usr/sbin/policy-rc.d"),
        "#!/bin/sh\nexit 101\n",
        0o755,
    )?;
    write(&staging_dir.join("etc/dpkg/dpkg.cfg.d/spare"), SPARE, 0o644)?;
    let clusters = staging_dir.join("etc/postgresql-common");
    fs::create_dir_all(&clusters).map_err(|error| error.to_string())?;
    let none = "create_main_cluster = false\n";
    write(&clusters.join("createcluster.conf"), none, 0o644)?;
    let mut settings = "Acquire::Retries \"3\";\nAPT::Keep-Downloaded-Packages \"false\";\n\
                        Acquire::Languages \"none\";\n"
        .to_owned();
    if let Some(proxy) = &mirror.proxy {
        settings.push_str(&format!("Acquire::http::Proxy \"{proxy}\";\n"));
    }
    write(&staging_dir.join(APT_SETTINGS), &settings, 0o600)?;
    // The mirror's name may be in the machine's hosts file only, or the mirror may need TLS.
    for file in ["etc/hosts", "etc/ssl/certs/ca-certificates.crt"] {
        let target = staging_dir.join(file);
        if let Some(parent) = target.parent().filter(|_| !target.exists()) {
            let _ = fs::create_dir_all(parent)
                .and_then(|()| fs::copy(Path::new("/").join(file), &target));
        }
    }
    Ok(())
}

/// Installs the packages of each root file system.
pub(crate) fn install(rootfs: &RootfsDir) -> Result<Outcome, String> {
    let index = index(&rootfs.staging_dir())?;
    let mut outcome = Outcome::default();
    for spec in &packages::ROOTFS_SPECS {
        let (found, not_packaged) = spec.available(&index);
        outcome.not_packaged.extend(not_packaged);
        outcome
            .broken
            .extend(install_packages(rootfs, spec, found)?);
    }
    Ok(outcome)
}

/// Installs all packages together; if that fails, one by one, so that most of them are installed.
/// Returns the packages that cannot be installed.
fn install_packages(
    rootfs: &RootfsDir,
    spec: &RootfsSpec,
    found: Vec<&'static str>,
) -> Result<Vec<&'static str>, String> {
    let all: Vec<&str> = [&packages::INSTEAD_OF_SYSTEMD[..], &found].concat();
    if apt_install(rootfs, spec, &all).is_ok() {
        return Ok(Vec::new());
    }
    apt_install(rootfs, spec, &packages::INSTEAD_OF_SYSTEMD)?;
    let mut broken = found;
    broken.retain(|name| {
        let installed = apt_install(rootfs, spec, &[name]);
        if let Err(error) = &installed {
            eprintln!("rivals: going on without {name}: {error}");
        }
        installed.is_err()
    });
    Ok(broken)
}

fn apt_install(rootfs: &RootfsDir, spec: &RootfsSpec, names: &[&str]) -> Result<(), String> {
    let mut command = inside(&rootfs.staging_dir().join(spec.directory), "apt-get");
    command
        .args(["install", "--yes", "--no-install-recommends"])
        .args(names);
    let what = format!("installing {}", names.join(" "));
    step::run(command, &what, &rootfs.log())
}

/// Returns the list of packages that debootstrap has left.
fn index(staging_dir: &Path) -> Result<String, String> {
    let lists = staging_dir.join("var/lib/apt/lists");
    let entries = fs::read_dir(&lists).map_err(|error| format!("{}: {error}", lists.display()))?;
    let file = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| name_ends(path, "_Packages"))
        .ok_or_else(|| format!("{} has no list of packages", lists.display()))?;
    fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
}

fn name_ends(path: &Path, end: &str) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| name.ends_with(end))
}

/// Removes files that only the creation needed, and records the installed packages.
pub(crate) fn tidy_up(rootfs: &RootfsDir, outcome: &Outcome) -> Result<(), String> {
    let roots = packages::ROOTFS_SPECS.each_ref();
    let roots = roots.map(|spec| rootfs.staging_dir().join(spec.directory));
    roots.iter().for_each(|root| remove_leftovers(root));
    let mut installed = roots.each_ref().map(|_| String::new());
    for (root, list) in roots.iter().zip(&mut installed) {
        *list = installed_in(root)?;
    }
    rootfs.write_stamp(&outcome.versions(&installed))
}

fn remove_leftovers(root: &Path) {
    let leftovers = [
        "var/lib/apt/lists",
        "var/cache/apt",
        // The data of a server that is never started.
        "var/lib/mysql",
        "usr/share/locale",
        "usr/share/doc",
    ];
    let _ = fs::remove_file(root.join(APT_SETTINGS));
    for leftover in leftovers {
        let _ = fs::remove_dir_all(root.join(leftover));
    }
}

/// Returns the name, version and status of each package.
fn installed_in(root: &Path) -> Result<String, String> {
    let mut query = inside(root, "dpkg-query");
    query.args([
        "--show",
        "--showformat=${Package} ${Version} ${db:Status-Status}\n",
    ]);
    let installed = query.output();
    let installed = installed.map_err(|error| format!("dpkg-query: {error}"))?;
    Ok(String::from_utf8_lossy(&installed.stdout).into_owned())
}

fn inside(root: &Path, program: &str) -> Command {
    let mut command = step::apart(&root.join("proc"));
    command.arg("chroot").arg(root).arg(program);
    command
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}
