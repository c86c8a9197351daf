//! Starts Apache as one of the web servers: the same pages as nginx's, by worker threads of one
//! child.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::lab::ServerSlot;
use crate::process::{self, Launch};
use crate::tool;

/// Debian's directory of the modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// Modules that the pages need; `unixd`, `log` and `so` are compiled in.
const NEEDED: &[&str] = &[
    "mpm_event",
    "authz_core",
    "dir",
    "env",
    "filter",
    "deflate",
    "ratelimit",
    "status",
];

/// Maximum of concurrent requests: more than a load keeps open, or it would measure Apache's queue.
const THREADS: u32 = 256;

/// Writes its configuration beside the pages, and returns how to start it. A clean stop ends its
/// children; a kill would leave them.
pub(super) fn prepare(slot: &ServerSlot) -> Result<(PathBuf, Launch)> {
    let program = tool::find("apache2")?;
    let config = slot.directory.join("apache.conf");
    fs::write(
        slot.directory.join("files/index.html"),
        slot.name.as_bytes(),
    )?;
    fs::write(&config, configuration(slot)?)?;
    let launch = Launch {
        program,
        arguments: ["-D", "FOREGROUND", "-f", &config.display().to_string()]
            .map(str::to_owned)
            .into(),
        stop_signal: libc::SIGTERM,
        children_outlive_it: true,
        ..Launch::default()
    };
    Ok((config, launch))
}

fn configuration(slot: &ServerSlot) -> Result<String> {
    let ServerSlot {
        name,
        address,
        directory,
        ..
    } = slot;
    let directory = directory.display();
    let modules: String = NEEDED
        .iter()
        .map(|module| Ok(format!("LoadModule {module}_module {}\n", file(module)?)))
        .collect::<Result<String>>()?;
    Ok(format!(
        "{modules}ServerName {name}\nServerRoot {directory}\nDefaultRuntimeDir {directory}\n\
         PidFile {directory}/pid\nErrorLog /dev/stderr\nLogLevel error\n{user}\
         Listen {address}\nListenBacklog 4096\n\
         StartServers 1\nServerLimit 1\nThreadLimit {THREADS}\nThreadsPerChild {THREADS}\n\
         MaxRequestWorkers {THREADS}\nMinSpareThreads 1\nMaxSpareThreads {THREADS}\n\
         AsyncRequestWorkerFactor 16\nMaxConnectionsPerChild 0\n\
         KeepAlive On\nKeepAliveTimeout 3600\nMaxKeepAliveRequests 0\nTimeout 3600\n\
         EnableSendfile On\nExtendedStatus On\nDeflateCompressionLevel 9\n\
         DocumentRoot {directory}/files\nDirectoryIndex index.html\n\
         <Location \"/work\">\n  SetOutputFilter DEFLATE\n</Location>\n\
         <Location \"/slow\">\n  SetOutputFilter RATE_LIMIT\n  SetEnv rate-limit 1\n</Location>\n\
         <Location \"/status\">\n  SetHandler server-status\n</Location>\n",
        user = user(),
    ))
}

fn file(module: &str) -> Result<String> {
    let path = Path::new(MODULES).join(format!("mod_{module}.so"));
    if !path.is_file() {
        bail!("{} not found: apt-get install apache2-bin", path.display());
    }
    Ok(path.display().to_string())
}

/// Returns the user of the configuration, since Apache serves no pages as root.
fn user() -> &'static str {
    if !process::is_root() {
        return "";
    }
    let accounts = process::accounts();
    if accounts.iter().any(|account| account.name == "www-data") {
        "User www-data\nGroup www-data\n"
    } else {
        "User nobody\nGroup nogroup\n"
    }
}
