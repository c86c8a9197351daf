//! The steps that create the root file system: the base, the packages, the cleanup.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::mirror::Mirror;
use super::packages::{self, Outcome, Room};
use super::rootfs_dir::RootfsDir;
use super::step;

/// Options of dpkg: no documentation, no translations, and no sync to the disk for each file.
const SPARE: &str = "force-unsafe-io\n\
    path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n\
    path-exclude=/usr/share/info/*\npath-exclude=/usr/share/locale/*\n";

/// Settings of apt, removed at the end: a proxy's address may contain a password.
const APT_SETTINGS: &str = "etc/apt/apt.conf.d/90evenkeel";

/// Creates Debian's minimal system.
pub(crate) fn base(place: &RootfsDir, mirror: &Mirror) -> Result<(), String> {
    let workshop = place.workshop();
    write(&place.log(), "", 0o600)?;
    let mut command = step::apart(Path::new("/proc"));
    if let Some(proxy) = &mirror.proxy {
        command.env("http_proxy", proxy);
    }
    command.args(["debootstrap", "--variant=minbase"]);
    command
        .arg(format!("--keyring={}", step::KEYRING))
        .arg("sid");
    command.arg(&workshop).arg(&mirror.address);
    step::run(command, "debootstrap", &place.log())?;
    prepare(&workshop, mirror)?;
    let apart = packages::ROOMS
        .iter()
        .filter(|room| !room.directory.is_empty());
    for room in apart {
        copy_base(&workshop, &workshop.join(room.directory))?;
    }
    Ok(())
}

/// Copies the base to a directory below /opt, which the base itself leaves empty.
fn copy_base(workshop: &Path, room: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot make {}: {error}", room.display());
    fs::create_dir_all(room).map_err(failed)?;
    let mut command = step::program("cp");
    command.args(["-a", "--reflink=auto", "--"]);
    for entry in fs::read_dir(workshop).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() != "opt" {
            command.arg(entry.path());
        }
    }
    let output = command.arg(room).output().map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(io::Error::other(String::from_utf8_lossy(
            &output.stderr,
        )))),
    }
}

/// Creates the files that must exist before the first package is installed.
fn prepare(workshop: &Path, mirror: &Mirror) -> Result<(), String> {
    // Exit code 101 means "action forbidden by policy": packages then start nothing.
    write(
        &workshop.join("usr/sbin/policy-rc.d"),
        "#!/bin/sh\nexit 101\n",
        0o755,
    )?;
    write(&workshop.join("etc/dpkg/dpkg.cfg.d/spare"), SPARE, 0o644)?;
    let clusters = workshop.join("etc/postgresql-common");
    fs::create_dir_all(&clusters).map_err(|error| error.to_string())?;
    let none = "create_main_cluster = false\n";
    write(&clusters.join("createcluster.conf"), none, 0o644)?;
    let mut settings = "Acquire::Retries \"3\";\nAPT::Keep-Downloaded-Packages \"false\";\n\
                        Acquire::Languages \"none\";\n"
        .to_owned();
    if let Some(proxy) = &mirror.proxy {
        settings.push_str(&format!("Acquire::http::Proxy \"{proxy}\";\n"));
    }
    write(&workshop.join(APT_SETTINGS), &settings, 0o600)?;
    // The mirror's name may be in the machine's hosts file only, or the mirror may need TLS.
    for file in ["etc/hosts", "etc/ssl/certs/ca-certificates.crt"] {
        let target = workshop.join(file);
        if let Some(parent) = target.parent().filter(|_| !target.exists()) {
            let _ = fs::create_dir_all(parent)
                .and_then(|()| fs::copy(Path::new("/").join(file), &target));
        }
    }
    Ok(())
}

/// Installs the packages of each root file system.
pub(crate) fn install(place: &RootfsDir) -> Result<Outcome, String> {
    let index = index(&place.workshop())?;
    let mut outcome = Outcome::default();
    for room in &packages::ROOMS {
        let (found, not_packaged) = room.available(&index);
        outcome.not_packaged.extend(not_packaged);
        outcome.broken.extend(furnish(place, room, found)?);
    }
    Ok(outcome)
}

/// Installs all packages together; if that fails, one by one, so that most of them are installed.
/// Returns the packages that cannot be installed.
fn furnish(
    place: &RootfsDir,
    room: &Room,
    found: Vec<&'static str>,
) -> Result<Vec<&'static str>, String> {
    let all: Vec<&str> = [&packages::INSTEAD_OF_SYSTEMD[..], &found].concat();
    if apt_install(place, room, &all).is_ok() {
        return Ok(Vec::new());
    }
    apt_install(place, room, &packages::INSTEAD_OF_SYSTEMD)?;
    let mut broken = found;
    broken.retain(|name| {
        let installed = apt_install(place, room, &[name]);
        if let Err(error) = &installed {
            eprintln!("rivals: going on without {name}: {error}");
        }
        installed.is_err()
    });
    Ok(broken)
}

fn apt_install(place: &RootfsDir, room: &Room, names: &[&str]) -> Result<(), String> {
    let mut command = inside(&place.workshop().join(room.directory), "apt-get");
    command
        .args(["install", "--yes", "--no-install-recommends"])
        .args(names);
    let what = format!("installing {}", names.join(" "));
    step::run(command, &what, &place.log())
}

/// Returns the list of packages that debootstrap has left.
fn index(workshop: &Path) -> Result<String, String> {
    let lists = workshop.join("var/lib/apt/lists");
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
pub(crate) fn tidy_up(place: &RootfsDir, outcome: &Outcome) -> Result<(), String> {
    let rooms = packages::ROOMS.each_ref();
    let rooms = rooms.map(|room| place.workshop().join(room.directory));
    rooms.iter().for_each(|room| remove_leftovers(room));
    let mut installed = rooms.each_ref().map(|_| String::new());
    for (room, list) in rooms.iter().zip(&mut installed) {
        *list = installed_in(room)?;
    }
    place.write_stamp(&outcome.versions(&installed))
}

fn remove_leftovers(room: &Path) {
    let leftovers = [
        "var/lib/apt/lists",
        "var/cache/apt",
        // The data of a server that is never started.
        "var/lib/mysql",
        "usr/share/locale",
        "usr/share/doc",
    ];
    let _ = fs::remove_file(room.join(APT_SETTINGS));
    for leftover in leftovers {
        let _ = fs::remove_dir_all(room.join(leftover));
    }
}

/// Returns the name, version and status of each package.
fn installed_in(room: &Path) -> Result<String, String> {
    let mut query = inside(room, "dpkg-query");
    query.args([
        "--show",
        "--showformat=${Package} ${Version} ${db:Status-Status}\n",
    ]);
    let installed = query.output();
    let installed = installed.map_err(|error| format!("dpkg-query: {error}"))?;
    Ok(String::from_utf8_lossy(&installed.stdout).into_owned())
}

fn inside(room: &Path, program: &str) -> Command {
    let mut command = step::apart(&room.join("proc"));
    command.arg("chroot").arg(room).arg(program);
    command
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}
