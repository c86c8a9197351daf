//! Starts nginx: its stream module in front of databases, its HTTP proxy in front of web servers.

use std::net::SocketAddr;

use anyhow::Result;

use super::super::experiment::{Balance, Mode};
use super::super::versions;
use super::{Order, Process, Running, another_port};
use crate::rival::{Rival, nginx_frame};
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
    format!(
        "http {{\n  access_log off;\n  proxy_temp_path {{room}}/t1;\n\
         \x20 client_body_temp_path {{room}}/t2;\n  fastcgi_temp_path {{room}}/t3;\n\
         \x20 uwsgi_temp_path {{room}}/t4;\n  scgi_temp_path {{room}}/t5;\n{}\
         \x20 server {{\n    listen {} reuseport backlog=4096;\n\
         \x20   location / {{ proxy_pass http://servers; }}\n  }}\n}}\n",
        upstream(order, "servers", &order.servers),
        order.listen
    )
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
    let balance = match order.target.balance {
        Some(Balance::LeastConnections) => "least_conn; ",
        Some(Balance::Source) => "hash $remote_addr; ",
        Some(Balance::RandomTwo) => "random two least_conn; ",
        Some(Balance::RoundRobin | Balance::LeastLatency | Balance::First) | None => "",
    };
    let servers: String = servers
        .iter()
        .map(|server| format!("server {server}; "))
        .collect();
    format!("  upstream {name} {{ zone {name} 64k; {balance}{servers}}}\n")
}
