//! Creates the package's files: their paths and modes, and dpkg's control files.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{done, printed};

/// Files of the repository, and their paths in the package.
const FILES: [(&str, &str); 20] = [
    (
        "packaging/evenkeel.service",
        "usr/lib/systemd/system/evenkeel.service",
    ),
    (
        "packaging/evenkeel.sysusers",
        "usr/lib/sysusers.d/evenkeel.conf",
    ),
    ("packaging/evenkeel.toml", CONFIG),
    ("docs/api.md", "usr/share/doc/evenkeel/api.md"),
    ("docs/clusters.md", "usr/share/doc/evenkeel/clusters.md"),
    (
        "docs/configuration.md",
        "usr/share/doc/evenkeel/configuration.md",
    ),
    (
        "docs/configuration-reference.md",
        "usr/share/doc/evenkeel/configuration-reference.md",
    ),
    (
        "docs/configuration-http.md",
        "usr/share/doc/evenkeel/configuration-http.md",
    ),
    (
        "docs/configuration-database.md",
        "usr/share/doc/evenkeel/configuration-database.md",
    ),
    ("docs/operating.md", "usr/share/doc/evenkeel/operating.md"),
    ("docs/upgrading.md", "usr/share/doc/evenkeel/upgrading.md"),
    (
        "docs/differences-mysql.md",
        "usr/share/doc/evenkeel/differences-mysql.md",
    ),
    (
        "docs/differences-postgres.md",
        "usr/share/doc/evenkeel/differences-postgres.md",
    ),
    ("docs/logins.md", "usr/share/doc/evenkeel/logins.md"),
    ("docs/pooling.md", "usr/share/doc/evenkeel/pooling.md"),
    ("docs/split.md", "usr/share/doc/evenkeel/split.md"),
    (
        "examples/mariadb.toml",
        "usr/share/doc/evenkeel/examples/mariadb.toml",
    ),
    (
        "docs/evenkeel.schema.json",
        "usr/share/evenkeel/evenkeel.schema.json",
    ),
    (
        "examples/postgres.toml",
        "usr/share/doc/evenkeel/examples/postgres.toml",
    ),
    (
        "examples/web.toml",
        "usr/share/doc/evenkeel/examples/web.toml",
    ),
];

/// The completions as `evenkeel manual` names them, and the paths where shells search for them.
const COMPLETIONS: [(&str, &str); 3] = [
    (
        "evenkeel.bash",
        "usr/share/bash-completion/completions/evenkeel",
    ),
    (
        "evenkeel.fish",
        "usr/share/fish/vendor_completions.d/evenkeel.fish",
    ),
    ("_evenkeel", "usr/share/zsh/vendor-completions/_evenkeel"),
];

/// Configuration file, which dpkg keeps as the administrator left it when a new version has
/// another.
const CONFIG: &str = "etc/evenkeel/evenkeel.toml";

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

const PROGRAM: &str = "usr/bin/evenkeel";
const DOCUMENTS: &str = "usr/share/doc/evenkeel";

/// The directory tree that becomes the package.
pub(super) struct Layout<'a> {
    /// The repository.
    root: &'a Path,
    work_dir: &'a Path,
    /// Time of every file and of the changelog, in seconds since 1970.
    date: u64,
}

impl<'a> Layout<'a> {
    pub(super) fn new(root: &'a Path, work_dir: &'a Path, date: u64) -> Self {
        Self {
            root,
            work_dir,
            date,
        }
    }

    /// Adds the program without its debug information, which is most of its size.
    pub(super) fn program(&self, binary: &Path) -> Result<()> {
        let stripped = self.target_path(PROGRAM)?;
        let mut strip = Command::new("strip");
        strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]);
        done(strip.arg(&stripped).arg(binary))?;
        set_mode(&stripped, 0o755)
    }

    pub(super) fn files(&self, version: &str) -> Result<()> {
        for (from, to) in FILES {
            self.write(to, &self.source(from)?)?;
        }
        let copyright = self.source("packaging/deb/copyright")?;
        let mit = paragraphs(&self.source("LICENSE-MIT")?);
        let copyright = copyright.replace("{mit}", &mit);
        self.write(&format!("{DOCUMENTS}/copyright"), &copyright)?;
        self.gzip(
            &format!("{DOCUMENTS}/changelog"),
            &self.source("CHANGELOG.md")?,
        )?;
        let debian = changelog(version, &rfc_date(self.date)?);
        self.gzip(&format!("{DOCUMENTS}/changelog.Debian"), &debian)
    }

    /// Adds man pages and completions, which the program itself generates.
    pub(super) fn manual(&self, binary: &Path) -> Result<()> {
        let work_dir = self.work_dir.with_extension("manual");
        let _ = fs::remove_dir_all(&work_dir);
        fs::create_dir_all(&work_dir)?;
        done(Command::new(binary).arg("manual").arg(&work_dir))?;
        for (name, to) in COMPLETIONS {
            self.write(to, &fs::read_to_string(work_dir.join(name))?)?;
        }
        for entry in fs::read_dir(&work_dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "1") {
                let page = path.file_name().unwrap_or_default().display();
                self.gzip(
                    &format!("usr/share/man/man1/{page}"),
                    &fs::read_to_string(&path)?,
                )?;
            }
        }
        Ok(fs::remove_dir_all(work_dir)?)
    }

    /// Adds the files of DEBIAN/. Must be the last step, as it needs the size and checksum of all
    /// other files.
    pub(super) fn control(&self, version: &str, architecture: &str) -> Result<()> {
        let mut files = Vec::new();
        list(self.work_dir, &mut files)?;
        files.sort();
        let size_kb = files.iter().map(|file| size_kb(file)).sum::<u64>();
        let control = self.source("packaging/deb/control")?;
        let control = control
            .replace("{version}", version)
            .replace("{architecture}", architecture)
            .replace("{size_kb}", &size_kb.to_string())
            .replace("{depends}", &self.libraries()?);
        let sums = self.sums(&files)?;
        self.write("DEBIAN/control", &control)?;
        self.write("DEBIAN/md5sums", &sums)?;
        self.write("DEBIAN/conffiles", &format!("/{CONFIG}\n"))?;
        for script in SCRIPTS {
            let path = format!("DEBIAN/{script}");
            self.write(&path, &self.source(&format!("packaging/deb/{script}"))?)?;
            set_mode(&self.work_dir.join(path), 0o755)?;
        }
        Ok(())
    }

    /// Builds the package; all files belong to root, whichever user builds it.
    pub(super) fn pack(&self, package: &Path) -> Result<()> {
        let mut pack = Command::new("dpkg-deb");
        pack.args(["--root-owner-group", "--build"])
            .stdout(Stdio::null());
        pack.env("SOURCE_DATE_EPOCH", self.date.to_string());
        done(pack.arg(self.work_dir).arg(package))
    }

    /// Adds a compressed file with the suffix `.gz`.
    pub(super) fn gzip(&self, to: &str, text: &str) -> Result<()> {
        let place = self.target_path(&format!("{to}.gz"))?;
        let mut gzip = Command::new("gzip");
        gzip.args(["-9n"])
            .stdin(Stdio::piped())
            .stdout(fs::File::create(&place)?);
        let mut child = gzip.spawn().context("cannot run gzip")?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes())?;
        }
        if !child.wait()?.success() {
            bail!("gzip failed");
        }
        set_mode(&place, 0o644)
    }

    fn write(&self, to: &str, text: &str) -> Result<()> {
        let place = self.target_path(to)?;
        fs::write(&place, text)?;
        set_mode(&place, 0o644)
    }

    /// Returns the path for a file of the package, and creates its directories.
    fn target_path(&self, to: &str) -> Result<PathBuf> {
        let mut directory = self.work_dir.to_owned();
        fs::create_dir_all(&directory)?;
        for part in Path::new(to).parent().into_iter().flatten() {
            directory.push(part);
            if !directory.exists() {
                fs::create_dir(&directory)?;
                set_mode(&directory, 0o755)?;
            }
        }
        set_mode(self.work_dir, 0o755)?;
        Ok(self.work_dir.join(to))
    }

    fn source(&self, from: &str) -> Result<String> {
        let path = self.root.join(from);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the packages that contain the program's libraries, with their versions.
    fn libraries(&self) -> Result<String> {
        // dpkg-shlibdeps must run in a source package.
        let work_dir = self.work_dir.with_extension("shlibs");
        let _ = fs::remove_dir_all(&work_dir);
        fs::create_dir_all(work_dir.join("debian"))?;
        fs::write(
            work_dir.join("debian/control"),
            "Source: evenkeel\n\nPackage: evenkeel\nArchitecture: any\n",
        )?;
        let mut command = Command::new("dpkg-shlibdeps");
        command.arg("-O").arg(self.work_dir.join(PROGRAM));
        let depends = printed(command.current_dir(&work_dir))?;
        fs::remove_dir_all(work_dir)?;
        let depends = depends.strip_prefix("shlibs:Depends=").map(str::to_owned);
        depends.context("dpkg-shlibdeps names no libraries")
    }

    fn sums(&self, files: &[PathBuf]) -> Result<String> {
        let relative = files
            .iter()
            .filter_map(|file| file.strip_prefix(self.work_dir).ok());
        let configless = relative.filter(|file| *file != Path::new(CONFIG));
        let mut md5sum = Command::new("md5sum");
        let sums = printed(md5sum.args(configless).current_dir(self.work_dir))?;
        Ok(sums + "\n")
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let set = fs::set_permissions(path, Permissions::from_mode(mode));
    set.with_context(|| format!("cannot change the mode of {}", path.display()))
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn size_kb(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |found| found.len().div_ceil(1024))
}

/// Formats a text as a field of Debian's copyright file: indented, with a dot for each empty line.
fn paragraphs(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim_end().lines() {
        let line = if line.is_empty() { "." } else { line };
        let _ = writeln!(out, " {line}");
    }
    out.trim_end().to_owned()
}

fn changelog(version: &str, date: &str) -> String {
    format!(
        "evenkeel ({version}) unstable; urgency=medium\n\n  \
         * What is new is in changelog.gz beside this file.\n\n \
         -- The Evenkeel authors <maintainers@evenkeel.invalid>  {date}\n"
    )
}

fn rfc_date(seconds: u64) -> Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", "--rfc-email", "--date"])
        .env("LC_ALL", "C");
    printed(date.arg(format!("@{seconds}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_indented_and_keeps_its_empty_lines() {
        assert_eq!(paragraphs("MIT\n\nPermission\n"), " MIT\n .\n Permission");
    }

    #[test]
    fn the_changelog_is_one_that_dpkg_reads() {
        let work_dir = std::env::temp_dir().join(format!("xtask-changelog-{}", std::process::id()));
        fs::write(&work_dir, changelog("1.2.3-4", &rfc_date(0).unwrap())).unwrap();
        let mut parse = Command::new("dpkg-parsechangelog");
        parse.arg("-l").arg(&work_dir).args(["-S", "Version"]);
        let version = printed(&mut parse);
        fs::remove_file(work_dir).unwrap();
        assert_eq!(version.unwrap(), "1.2.3-4");
    }
}
