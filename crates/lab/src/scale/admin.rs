//! Requests on a balancer's control socket, and their duration.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Balancer;

/// Limit for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Number of servers in all services up to which a status lists each of them.
const SERVERS_LISTED_MAX: u64 = 500;

/// The control socket of a balancer.
pub(super) struct Admin {
    socket: PathBuf,
}

impl Admin {
    pub(super) fn of(balancer: &Balancer) -> Admin {
        Admin {
            socket: balancer.socket().to_owned(),
        }
    }

    /// Returns the body of the answer to a GET.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        self.exchange(&format!("GET {path} HTTP/1.1\r\n"))
    }

    /// Sends a command without a body.
    pub(super) fn post(&self, path: &str) -> Result<String> {
        self.exchange(&format!(
            "POST {path} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 0\r\n"
        ))
    }

    fn exchange(&self, head: &str) -> Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let request = format!("{head}host: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        ensure!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
        Ok(body.to_owned())
    }

    /// Checks that the status lists servers that are down, at most 20 of a service, and all servers
    /// of a service that is asked for. Call while servers are down.
    pub(super) fn check_listing(&self) -> Result<()> {
        let states = |service: &Value| -> Vec<String> {
            let servers = service["servers"].as_array().into_iter().flatten();
            let states = servers.filter_map(|server| server["state"].as_str());
            states.map(str::to_owned).collect()
        };
        let all = self.services("/api/v1/status")?;
        let total: u64 = all.iter().map(total_of).sum();
        for service in &all {
            let listed = states(service);
            let counts = &service["server_counts"];
            let expect = match total > SERVERS_LISTED_MAX {
                true => counts["down"].as_u64().unwrap_or_default().min(20),
                false => counts["total"].as_u64().unwrap_or_default(),
            };
            ensure!(listed.len() as u64 == expect, "{listed:?} of {counts}");
            let only_down = listed.iter().all(|state| state == "down");
            ensure!(only_down || total <= SERVERS_LISTED_MAX, "{listed:?}");
        }
        let one = self.services("/api/v1/status?service=s0")?;
        let one = one.first().context("no service s0")?;
        ensure!(
            states(one).len() as u64 == total_of(one),
            "not all servers are listed"
        );
        Ok(())
    }

    /// Returns the services of a status.
    fn services(&self, path: &str) -> Result<Vec<Value>> {
        let status: Value = serde_json::from_str(&self.get(path)?)?;
        let services = status["services"].as_array().context("no services")?;
        Ok(services.clone())
    }

    /// Returns the number of servers of all services in a state. Adds the time of the answer to
    /// `waits`.
    pub(super) fn in_state(&self, state: &str, waits: &mut Vec<Duration>) -> Result<u64> {
        let began = Instant::now();
        let services = self.services("/api/v1/status?servers=none")?;
        waits.push(began.elapsed());
        let numbers = services.iter().map(|one| &one["server_counts"][state]);
        Ok(numbers.filter_map(Value::as_u64).sum())
    }
}

fn total_of(service: &Value) -> u64 {
    service["server_counts"]["total"]
        .as_u64()
        .unwrap_or_default()
}
