//! Reads `[admin]`: the status page, the API and the control socket.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::plan::{Admin, Listen};
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, wrong_type};
use crate::socket::default_socket;
use crate::sources::Sources;

impl Default for Admin {
    fn default() -> Admin {
        Admin {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9_000))),
            postgres: None,
            mysql: None,
            socket: default_socket(),
            token: None,
            allowed_hosts: Vec::new(),
        }
    }
}

/// `[admin]`
pub(crate) fn read_admin(table: &Table<'_>, sources: &Sources, problems: &mut Problems) -> Admin {
    let mut admin = Admin::default();
    if let Some(text) = table.text("listen", problems) {
        admin.listen = read_listen(text, &table.value_span("listen"), problems);
    }
    for (key, console) in [
        ("postgres", &mut admin.postgres),
        ("mysql", &mut admin.mysql),
    ] {
        if let Some(text) = table.text(key, problems) {
            *console = read_listen(text, &table.value_span(key), problems);
        }
    }
    if let Some(text) = table.text("socket", problems) {
        admin.socket = read_socket(text, table, sources, problems);
    }
    admin.token = sources.secret(table, "token", "token_file", problems);
    admin.allowed_hosts = read_hosts(table, problems);
    let ports = [
        ("listen", admin.listen),
        ("postgres", admin.postgres),
        ("mysql", admin.mysql),
    ];
    for (key, address) in ports {
        let elsewhere = address.filter(|address| !address.ip().is_loopback());
        let Some(address) = elsewhere.filter(|_| admin.token.is_none()) else {
            continue;
        };
        let message = format!(
            "{address} is reachable from other machines, but without a token they are refused"
        );
        let help = "set `token_file = \"…\"`, or listen on 127.0.0.1";
        problems.warning(&table.value_span(key), "W_NO_TOKEN", message, help);
    }
    admin
}

fn read_listen(text: &str, span: &SourceSpan, problems: &mut Problems) -> Option<SocketAddr> {
    let (message, help) = match parse_listen(text) {
        Ok(listen) => return listen,
        Err(wrong) => wrong,
    };
    problems.error(span, "E_ADDRESS", message, help);
    None
}

/// Parses `off`, or one IP address and port. The error contains its description and advice.
pub(crate) fn parse_listen(text: &str) -> Result<Option<SocketAddr>, (String, String)> {
    if text == "off" {
        return Ok(None);
    }
    match text.parse::<Listen>() {
        Ok(Listen::Tcp(address)) => Ok(Some(address)),
        Ok(Listen::Any(port)) => {
            let help = format!("use `0.0.0.0:{port}` or `[::]:{port}`");
            Err(("the admin port needs one specific address".to_owned(), help))
        }
        Ok(Listen::Unix(path)) => {
            let help = format!("set `socket = \"{}\"`; `listen` is for TCP", path.display());
            Err((
                "the control socket is set with its own key".to_owned(),
                help,
            ))
        }
        Err(wrong) => Err((wrong.message, wrong.help)),
    }
}

fn read_socket(
    text: &str,
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> PathBuf {
    let path = sources.path(text.strip_prefix("unix:").unwrap_or(text));
    let bytes = path.as_os_str().len();
    if bytes > 107 {
        let message = format!("the path of the control socket has {bytes} bytes");
        let help = "the kernel allows 107: use a shorter path";
        problems.error(&table.value_span("socket"), "E_ADDRESS", message, help);
    }
    path
}

fn read_hosts(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    let mut hosts = Vec::new();
    for value in table.elements("allowed_hosts") {
        match value.get_ref().as_str() {
            Some(host) if !host.is_empty() && !host.contains(['/', ':', ' ']) => {
                hosts.push(host.to_ascii_lowercase());
            }
            Some(host) => {
                let message = format!("`{host}` is not a host name");
                let help = "only the name, without scheme and port: `balancer.example.org`";
                problems.error(&Some(value.span()), "E_VALUE", message, help);
            }
            None => {
                let help = "write `allowed_hosts = [\"balancer.example.org\"]`";
                wrong_type("allowed_hosts", "host names", value, help, problems);
            }
        }
    }
    hosts
}
