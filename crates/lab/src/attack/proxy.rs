//! Starts proxies that stand between the clients and the balancer, as lenient as they can be set.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::origin::{Part, front, launch, start_all};
use crate::process::{Launch, Process};
use crate::program::Program;
use crate::scratch::Scratch;
use crate::{free_port, rootfs, tool};

const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Program of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProxyKind {
    /// HAProxy, which also passes on messages that violate the protocol.
    Haproxy,
    /// nginx, which also passes on invalid fields, and does not wait for bodies.
    Nginx,
    /// Apache with `HttpProtocolOptions Unsafe`.
    Apache,
    /// Squid as an accelerator.
    Squid,
    /// Caddy.
    Caddy,
    /// Varnish, without its cache.
    Varnish,
    /// The class `ReverseProxy` of Go.
    Go,
}

impl ProxyKind {
    /// All programs.
    pub const ALL: [ProxyKind; 7] = [
        ProxyKind::Haproxy,
        ProxyKind::Nginx,
        ProxyKind::Apache,
        ProxyKind::Squid,
        ProxyKind::Caddy,
        ProxyKind::Varnish,
        ProxyKind::Go,
    ];

    fn name(self) -> &'static str {
        match self {
            ProxyKind::Haproxy => "haproxy",
            ProxyKind::Nginx => "nginx",
            ProxyKind::Apache => "apache2",
            ProxyKind::Squid => "squid",
            ProxyKind::Caddy => "caddy",
            ProxyKind::Varnish => "varnishd",
            ProxyKind::Go => "go",
        }
    }

    fn program(self) -> Result<Program> {
        match self {
            // Debian unstable does not have it.
            ProxyKind::Varnish => tool::find(self.name()).map(Program::here),
            ProxyKind::Go => tool::find_go().map(Program::here),
            _ => rootfs::find_of_web(self.name()),
        }
    }
}

/// A running proxy.
pub struct Proxy {
    /// Address for clients.
    pub address: String,
    processes: Vec<Process>,
    _scratch: Scratch,
}

impl Proxy {
    /// Starts the proxy in front of a server at this port, and waits until it accepts connections.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start(kind: ProxyKind, server: u16) -> Result<Proxy> {
        let scratch = Scratch::new("proxy")?;
        let port = free_port();
        let launch = prepare(kind, scratch.path(), port, server)?;
        let processes = start_all(kind.name(), &scratch, vec![Part { launch, port }])?;
        let address = format!("127.0.0.1:{port}");
        Ok(Proxy {
            address,
            processes,
            _scratch: scratch,
        })
    }
}

impl Drop for Proxy {
    /// Lets the program remove its shared memory.
    fn drop(&mut self) {
        for process in &self.processes {
            let _ = process.stop(STOP_LIMIT);
        }
    }
}

fn prepare(kind: ProxyKind, directory: &Path, port: u16, server: u16) -> Result<Launch> {
    let program = kind.program()?;
    let text = match kind {
        ProxyKind::Haproxy => haproxy(port, server),
        ProxyKind::Nginx => nginx(directory, port, server),
        ProxyKind::Apache => apache(directory, port, server),
        ProxyKind::Squid => squid(port, server),
        ProxyKind::Caddy => caddy(port, server),
        ProxyKind::Varnish => varnish(server),
        ProxyKind::Go => include_str!("programs/proxy.go").to_owned(),
    };
    let file = directory.join(if kind == ProxyKind::Go {
        "proxy.go"
    } else {
        "config"
    });
    fs::write(&file, text)?;
    let config = file.display().to_string();
    Ok(match kind {
        ProxyKind::Haproxy => launch::launch(program, ["-db", "-f", &config]),
        ProxyKind::Squid => {
            // Its shared memory has the name.
            let name = format!("evenkeel{port}");
            launch::launch(program, ["-N", "-n", &name, "-f", &config])
        }
        ProxyKind::Varnish => {
            let listen = format!("127.0.0.1:{port}");
            let work = directory.join("varnish").display().to_string();
            let own = [
                "-F", "-j", "none", "-n", &work, "-a", &listen, "-f", &config,
            ];
            let limits = [
                "timeout_idle=1",
                "idle_send_timeout=1",
                "between_bytes_timeout=2",
            ];
            let limits = limits.into_iter().flat_map(|limit| ["-p", limit]);
            launch::launch(program, own.into_iter().chain(limits))
        }
        ProxyKind::Go => {
            let own = [port.to_string(), server.to_string()];
            launch::launch(launch::build(&program, directory, &config)?, own)
        }
        _ => launch::launch(program, front::arguments(kind.name(), &file)),
    })
}

fn haproxy(port: u16, server: u16) -> String {
    format!(
        "global\n  maxconn 1000\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 1s\n  timeout server 10s\n\
         \x20 timeout http-request 1s\n  timeout http-keep-alive 1s\n  http-reuse always\n\
         frontend f\n  bind 127.0.0.1:{port}\n  option accept-unsafe-violations-in-http-request\n\
         \x20 default_backend b\n\
         backend b\n  server s 127.0.0.1:{server}\n"
    )
}

fn nginx(directory: &Path, port: u16, server: u16) -> String {
    let head =
        front::nginx_head(directory).replace("keepalive_timeout 60s", "keepalive_timeout 1s");
    format!(
        "{head}  access_log off;\n  client_header_timeout 1s;\n  client_body_timeout 1s;\n\
         \x20 lingering_close off;\n  underscores_in_headers on;\n  ignore_invalid_headers off;\n\
         \x20 merge_slashes off;\n\
         \x20 upstream balancer {{ server 127.0.0.1:{server}; keepalive 16; }}\n\
         \x20 server {{\n    listen 127.0.0.1:{port} backlog=1024;\n\
         \x20   location / {{ proxy_pass http://balancer; proxy_http_version 1.1;\n\
         \x20     proxy_request_buffering off; proxy_set_header Connection \"\";\n\
         \x20     proxy_set_header Host $http_host; }}\n  }}\n}}\n"
    )
}

fn apache(directory: &Path, port: u16, server: u16) -> String {
    let more = format!(
        "HttpProtocolOptions Unsafe\nRequestReadTimeout header=1 body=1\nProxyPreserveHost On\n\
         ProxyPass / http://127.0.0.1:{server}/ nocanon enablereuse=on keepalive=on\n"
    );
    front::apache(
        directory,
        port,
        &["proxy", "proxy_http", "reqtimeout"],
        &more,
    )
    .replace("KeepAliveTimeout 60", "KeepAliveTimeout 1")
}

fn squid(port: u16, server: u16) -> String {
    format!(
        "http_port 127.0.0.1:{port} accel vhost\n\
         cache_peer 127.0.0.1 parent {server} 0 no-query originserver no-digest name=balancer\n\
         never_direct allow all\nhttp_access allow all\ncache deny all\npinger_enable off\n\
         pid_filename none\naccess_log none\ncache_log /dev/null\n\
         cache_effective_user www-data\ncache_effective_group www-data\nvisible_hostname a\n\
         client_idle_pconn_timeout 1 seconds\nrequest_timeout 1 seconds\n\
         request_start_timeout 1 seconds\nread_timeout 5 seconds\nclient_lifetime 20 seconds\n\
         relaxed_header_parser on\nserver_persistent_connections on\nshutdown_lifetime 0 seconds\n"
    )
}

fn caddy(port: u16, server: u16) -> String {
    let site = format!("reverse_proxy 127.0.0.1:{server}\n");
    let limits =
        "persist_config off\nservers {\ntimeouts {\nread_header 1s\nread_body 1s\nidle 1s\n}\n}";
    front::caddy(port, &site).replace("persist_config off", limits)
}

fn varnish(server: u16) -> String {
    format!(
        "vcl 4.1;\nbackend balancer {{ .host = \"127.0.0.1\"; .port = \"{server}\"; }}\n\
         sub vcl_recv {{ return (pass); }}\n"
    )
}
