//! Starts HAProxy as in the studies: redispatch, three retries, a status page with a password.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, bail};

use super::super::experiment::{Balance, Mode, Speech, Target};
use super::super::versions;
use super::{Order, Process, Running, another_port};
use crate::program::Program;
use crate::rival::{Rival, WORKERS, files_max};
use crate::{rootfs, tool};

/// Starts the newest version available: from the rivals' root file system, or this machine's.
pub(super) fn start(order: &Order) -> Result<Option<Running>> {
    let (program, version) = match (rootfs::find("haproxy"), tool::find("haproxy")) {
        (Ok(program), _) => (program, versions::of_package("haproxy")),
        (_, Ok(path)) => {
            let version = versions::version_line(&path, &["-v"]);
            (Program::here(path), version)
        }
        _ => return Ok(None),
    };
    let writes = if order.has_two_ports() {
        another_port()
    } else {
        order.listen
    };
    let config = config(order, writes, program.root.is_some())?;
    let rival = Rival::haproxy(program, &config, order.endpoint.clone())?;
    Ok(Some(Running {
        reads: order.endpoint.address,
        writes,
        process: Process::Rival(Box::new(rival)),
        version,
        notes: Vec::new(),
    }))
}

fn config(order: &Order, writes: SocketAddr, in_rootfs: bool) -> Result<String> {
    let mode = match order.target.mode {
        Mode::Http => "http",
        _ => "tcp",
    };
    // Two sockets per connection, and some for HAProxy itself.
    let connections = files_max() / 2 - 100;
    let mut text = format!("global\n  nbthread {WORKERS}\n  maxconn {connections}\n");
    if order.follows_primary {
        text.push_str("  external-check\n  insecure-fork-wanted\n");
    }
    let _ = write!(
        text,
        "defaults\n  mode {mode}\n  retries 3\n  option redispatch\n  timeout connect 10s\n\
         \x20 timeout client 1m\n  timeout server 1m\n\
         listen stats\n  mode http\n  bind {}\n  stats enable\n  stats uri /\n\
         \x20 stats auth admin:admin\n",
        another_port()
    );
    text.push_str(&listen(
        order,
        "servers",
        order.listen,
        &of_http(order.target),
    ));
    if writes != order.listen {
        let check = if order.follows_primary {
            let script = check_script(order, in_rootfs)?;
            format!(
                "  option external-check\n  external-check path /usr/bin:/bin:/usr/sbin:/sbin\n\
                 \x20 external-check command {script}\n  default-server inter 1s fall 2 rise 1 \
                 on-marked-down shutdown-sessions\n"
            )
        } else {
            String::new()
        };
        text.push_str(&listen(order, "writes", writes, &check));
    }
    Ok(text)
}

/// Returns the lines of a target in HTTP mode: idle connections to servers are shared by all
/// clients.
fn of_http(target: &Target) -> String {
    let mut text = String::new();
    if target.mode == Mode::Http {
        text.push_str("  http-reuse always\n");
    }
    if target.forwarded {
        text.push_str(
            "  http-request set-src req.hdr_ip(x-forwarded-for,-1) if { src 127.0.0.0/8 }\n",
        );
    }
    if target.sticky {
        text.push_str("  cookie SERVER insert indirect nocache\n");
    }
    text
}

/// Returns a `listen` section. The port for writes has only the primary, unless a check determines
/// the primary.
fn listen(order: &Order, name: &str, listen: SocketAddr, further: &str) -> String {
    let balance = match order.target.balance {
        Some(Balance::LeastConnections) => "leastconn",
        Some(Balance::Source) => "source",
        Some(Balance::RandomTwo) => "random(2)",
        Some(Balance::First) => "first",
        Some(Balance::RoundRobin | Balance::LeastLatency) | None => "roundrobin",
    };
    let mut text = format!("listen {name}\n  bind {listen}\n  balance {balance}\n{further}");
    let only_primary = name == "writes" && further.is_empty();
    let cookie = |server: &str| match order.target.sticky {
        true => format!(" cookie {server}"),
        false => String::new(),
    };
    let count = if only_primary { 1 } else { order.servers.len() };
    for (name, address) in order.topology.named(&order.servers).take(count) {
        let _ = writeln!(text, "  server {name} {address} check{}", cookie(&name));
    }
    text
}

/// Writes a check script: HAProxy cannot send SQL, so a script queries whether a server accepts
/// writes, as usual with HAProxy.
fn check_script(order: &Order, in_rootfs: bool) -> Result<String> {
    let client = if in_rootfs { "mysql" } else { "mariadb" };
    let question = match order.topology.speech {
        Speech::Mysql => format!(
            "answer=$({client} --host=\"$3\" --port=\"$4\" --user=monitor --password=monitor \
             --connect-timeout=1 -Nse 'SELECT @@global.read_only' 2>/dev/null)\n\
             [ \"$answer\" = 0 ]\n"
        ),
        Speech::Postgres => "answer=$(PGPASSWORD=postgres PGCONNECT_TIMEOUT=1 psql --host=\"$3\" \
             --port=\"$4\" --username=postgres -Atc 'SELECT pg_is_in_recovery()' postgres \
             2>/dev/null)\n[ \"$answer\" = f ]\n"
            .to_owned(),
        Speech::Http => bail!("web servers have no primary"),
    };
    let path = order.work_dir.join("is-primary.sh");
    fs::write(&path, format!("#!/bin/sh\n{question}"))?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path.display().to_string())
}
