//! Writes a config file with the values of flags, from which a user can go on.

use std::fmt::Write as _;

use super::{Flags, address_of};
use crate::plan::{Plan, ServicePlan};

/// Returns the file that results in the plan of these flags. The password is in a file of its own.
pub(super) fn file(flags: &Flags, plan: &Plan) -> String {
    let mut text = String::new();
    for service in &plan.services {
        write_service(flags, service, &mut text);
    }
    write_admin(flags, &mut text);
    text
}

fn write_service(flags: &Flags, service: &ServicePlan, text: &mut String) {
    let list = |items: Vec<String>| match items.as_slice() {
        [only] => quoted(only),
        items => array(items),
    };
    let listen = list(service.listen.iter().map(ToString::to_string).collect());
    let servers: Vec<_> = service
        .servers
        .iter()
        .map(|one| one.address.to_string())
        .collect();
    let _ = write!(
        text,
        "[[service]]\nname     = {}\nprotocol = {}\nlisten   = {listen}\nservers  = {}\n",
        quoted(&service.name),
        quoted(service.protocol_info().name),
        array(&servers)
    );
    if let Some(balance) = &flags.balance {
        let _ = writeln!(text, "balance  = {}", quoted(balance));
    }
    if let Some(monitor) = &service.monitor {
        let _ = write!(
            text,
            "\n[service.monitor]\nuser          = {}\n",
            quoted(&monitor.user)
        );
        if !monitor.password.expose().is_empty() {
            text.push_str("password_file = \"evenkeel.password\" # write the password there\n");
        }
    }
    text.push_str(&tls_tables(flags));
}

/// Returns the tables of TLS. Empty if no flag sets any.
pub(super) fn tls_tables(flags: &Flags) -> String {
    let mut keys = String::new();
    if let Some(mode) = &flags.server_tls {
        let _ = writeln!(keys, "mode = {}", quoted(mode));
    }
    if let Some(ca) = &flags.server_ca {
        let _ = writeln!(keys, "ca = {}", quoted(&ca.to_string_lossy()));
    }
    if !flags.server_fingerprints.is_empty() {
        let _ = writeln!(keys, "fingerprints = {}", array(&flags.server_fingerprints));
    }
    let mut text = String::new();
    if !keys.is_empty() {
        let _ = write!(text, "\n[service.server_tls]\n{keys}");
    }
    if let Some((certificate, key)) = &flags.tls {
        let [certificate, key] = [certificate, key].map(|path| quoted(&path.to_string_lossy()));
        let _ = write!(
            text,
            "\n[service.tls]\ncertificate = {certificate}\nkey = {key}\n"
        );
    }
    text
}

fn write_admin(flags: &Flags, text: &mut String) {
    let listen = flags.admin.as_deref().and_then(address_of);
    if listen.is_none() && flags.socket.is_none() {
        return;
    }
    text.push_str("\n[admin]\n");
    if let Some(listen) = listen {
        let _ = writeln!(text, "listen = {}", quoted(listen));
    }
    if let Some(socket) = &flags.socket {
        let _ = writeln!(text, "socket = {}", quoted(&socket.to_string_lossy()));
    }
}

fn array(items: &[String]) -> String {
    let items: Vec<_> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
