//! Starts nginx: its stream module in front of databases, its HTTP proxy in front of web servers.

use std::net::SocketAddr;

use anyhow::Result;

use super::super::experiment::{Balance, Mode};
use super::super::versions;
use super::{Order, Process, Running, another_port};
use crate::rival::{Rival, nginx_frame, nginx_http};
use crate::tool;

pub(super) fn start(order: &Order) -> Result<Option<Running>> {
    let Ok(program) = tool::find("nginx") else {
        return Ok(None);
    };
    let mut text = String::new();
    if order.target.mode != Mode::Http {
        let Ok(module) = tool::find_nginx_stream_module() else {
            return Ok(None);
        };
        text = format!("load_module {};\n", module.display());
    }
    text.push_str(&nginx_frame());
    let writes = if order.has_two_ports() {
        another_port()
    } else {
        order.listen
    };
    match order.target.mode {
        Mode::Http => text.push_str(&http(order)),
        _ => text.push_str(&stream(order, writes)),
    }
    let rival = Rival::nginx(&text, order.endpoint.clone())?;
    Ok(Some(Running {
        reads: order.endpoint.address,
        writes,
        process: Process::Rival(Box::new(rival)),
        version: versions::version_line(&program, &["-v"]),
        notes: Vec::new(),
    }))
}

fn http(order: &Order) -> String {
    let clients = match order.target.forwarded {
        true => "  set_real_ip_from 127.0.0.0/8;\n  real_ip_header X-Forwarded-For;\n",
        false => "",
    };
    let balance = format!("zone servers 64k; {}", balance(order));
    nginx_http(clients, &balance, &order.servers, order.listen)
}

fn stream(order: &Order, writes: SocketAddr) -> String {
    let mut text = format!(
        "stream {{\n{}{}",
        upstream(order, "servers", &order.servers),
        server(order.listen, "servers")
    );
    if writes != order.listen {
        // The first is the primary; nginx cannot follow a change.
        text.push_str(&upstream(order, "writes", &order.servers[..1]));
        text.push_str(&server(writes, "writes"));
    }
    text + "}\n"
}

fn server(listen: SocketAddr, upstream: &str) -> String {
    format!("  server {{ listen {listen} reuseport backlog=4096; proxy_pass {upstream}; }}\n")
}

fn upstream(order: &Order, name: &str, servers: &[SocketAddr]) -> String {
    let balance = balance(order);
    let servers: String = servers
        .iter()
        .map(|server| format!("server {server}; "))
        .collect();
    format!("  upstream {name} {{ zone {name} 64k; {balance}{servers}}}\n")
}

fn balance(order: &Order) -> &'static str {
    match order.target.balance {
        Some(Balance::LeastConnections) => "least_conn; ",
        Some(Balance::Source) => "hash $remote_addr; ",
        Some(Balance::RandomTwo) => "random two least_conn; ",
        Some(Balance::RoundRobin | Balance::LeastLatency | Balance::First) | None => "",
    }
}
