//! Finds the programs that the lab uses; names the Debian package of a missing one.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Programs and their Debian packages.
const PACKAGES: &[(&str, &str)] = &[
    ("mariadbd", "mariadb-server-core"),
    ("mariadb-install-db", "mariadb-server-core"),
    ("mariadb", "mariadb-client-core"),
    ("postgres", "postgresql"),
    ("initdb", "postgresql"),
    ("pg_basebackup", "postgresql"),
    ("pg_rewind", "postgresql"),
    ("pg_controldata", "postgresql"),
    ("psql", "postgresql"),
    ("nginx", "nginx"),
    ("apache2", "apache2-bin"),
    ("haproxy", "haproxy"),
    ("keepalived", "keepalived"),
    ("sysbench", "sysbench"),
    ("wrk", "wrk"),
    ("ab", "apache2-utils"),
    ("httperf", "httperf"),
    ("pgbench", "postgresql"),
    ("ip", "iproute2"),
    ("bridge", "iproute2"),
    ("tc", "iproute2"),
    ("wsrep_sst_rsync", "mariadb-server"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    ("mvn", "maven"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("go", "golang-go"),
    ("varnishd", "varnish"),
];

/// Returns the program's full path, from PATH and Debian's directories of servers.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    if let Some(found) = search_directories()
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
    {
        return Ok(found);
    }
    let package = PACKAGES
        .iter()
        .find(|(program, _)| *program == name)
        .map_or(name, |entry| entry.1);
    bail!("{name} not found: apt-get install {package}");
}

/// Returns the compiler of Go, which its own packages install outside PATH.
pub(crate) fn find_go() -> Result<PathBuf> {
    let own = PathBuf::from("/usr/local/go/bin/go");
    match find("go") {
        Err(_) if own.is_file() => Ok(own),
        found => found,
    }
}

/// Returns a PostgreSQL server program: Debian has them outside PATH, one directory per version.
pub(crate) fn find_postgres(name: &str) -> Result<PathBuf> {
    match newest_postgres_bin() {
        Some(bin) if bin.join(name).is_file() => Ok(bin.join(name)),
        _ => find(name),
    }
}

/// Returns nginx's stream module, which is a separate package in Debian.
pub(crate) fn find_nginx_stream_module() -> Result<PathBuf> {
    let path = Path::new("/usr/lib/nginx/modules/ngx_stream_module.so");
    if path.is_file() {
        return Ok(path.to_owned());
    }
    bail!(
        "{} not found: apt-get install libnginx-mod-stream",
        path.display()
    );
}

fn search_directories() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own: Vec<PathBuf> = env::split_paths(&path).collect();
    own.into_iter()
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
}

fn newest_postgres_bin() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|version| {
            Path::new(&format!("/usr/lib/postgresql/{version}/bin/postgres")).is_file()
        })
        .max()
        .map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")))
}
