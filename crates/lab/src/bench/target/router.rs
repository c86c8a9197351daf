//! Starts MySQL Router with static routes: reads round robin over all servers, writes to the first
//! that is up.

use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::Result;

use super::super::versions;
use super::{Order, Process, Running, another_port};
use crate::rival::{Rival, WORKERS, files_max, joined};

pub(super) fn start(order: &Order) -> Result<Option<Running>> {
    let writes = if order.has_two_ports() {
        another_port()
    } else {
        order.listen
    };
    let mut text = format!(
        "[DEFAULT]\nruntime_folder = {{room}}\ndata_folder = {{room}}\nlogging_folder =\n\
         [logger]\nlevel = WARNING\n[io]\nthreads = {WORKERS}\n"
    );
    text.push_str(&route("reads", order.listen, &order.servers, "round-robin"));
    if writes != order.listen {
        text.push_str(&route("writes", writes, &order.servers, "first-available"));
    }
    let Some(rival) = Rival::mysql_router(&text, order.listen)? else {
        return Ok(None);
    };
    let mut notes = Vec::new();
    if order.follows_primary {
        notes.push(
            "static routes: writes go to the first server that is up; it does not know the group"
                .to_owned(),
        );
    }
    Ok(Some(Running {
        reads: order.listen,
        writes,
        process: Process::Rival(Box::new(rival)),
        version: versions::of_package("mysql-router"),
        notes,
    }))
}

fn route(name: &str, listen: SocketAddr, servers: &[SocketAddr], strategy: &str) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "[routing:{name}]\nbind_address = {}\nbind_port = {}\ndestinations = {}\n\
         routing_strategy = {strategy}\nprotocol = classic\nmax_connections = {}\n\
         client_ssl_mode = PASSTHROUGH\nserver_ssl_mode = AS_CLIENT",
        listen.ip(),
        listen.port(),
        joined(servers, ","),
        files_max() / 2 - 100
    );
    text
}
