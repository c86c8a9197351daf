//! Measures the control plane with many servers: start, changes, status, metrics and memory, each
//! against a limit.

mod admin;
mod crowd;
mod figure;

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{Balancer, eventually, free_port, raise_open_files_limit};
use admin::Admin;
use crowd::Crowd;
pub use figure::Figure;
use figure::{Bar, longest_ms, median_ms};

/// Limit for the start of the balancer, the adoption of all servers and their first probes.
const UP_LIMIT: Duration = Duration::from_secs(120);

/// Limit until servers that went down together are all seen down.
const DOWN_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two requests for the number of servers in each state.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Number of times that a short request is repeated.
const REPEATS: usize = 21;

/// Time for which the processor time of a quiet balancer is measured.
const QUIET: Duration = Duration::from_secs(5);

/// Number of services and of their servers.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of services.
    pub services: usize,
    /// Number of servers of each service.
    pub servers: usize,
}

impl Size {
    fn total(self) -> usize {
        self.services * self.servers
    }

    /// Returns the configuration: `balance` in every service, each at an address of its own.
    fn config(self, crowd: &Crowd, port: u16, balance: &str) -> String {
        let mut text = String::new();
        for service in 0..self.services {
            let first = service * self.servers;
            let servers = (first..first + self.servers).map(|number| crowd.address(number));
            let servers: Vec<_> = servers.map(|address| format!("\"{address}\"")).collect();
            text.push_str(&format!(
                "[[service]]\nname = \"s{service}\"\nlisten = \"{}:{port}\"\nbalance = \
                 \"{balance}\"\nservers = [{}]\n",
                listen_host(service),
                servers.join(",\n")
            ));
        }
        text
    }
}

fn listen_host(service: usize) -> String {
    format!("127.250.{}.{}", service / 250, service % 250 + 1)
}

/// Starts the servers and the balancer `binary` (`None`: the one beside this program), and returns
/// the figures. Those with a bar can be missed.
pub fn measure(size: Size, binary: Option<PathBuf>) -> Result<Vec<Figure>> {
    raise_open_files_limit();
    let binary = match binary {
        Some(binary) => binary,
        None => crate::balancer::find_binary()?,
    };
    let mut crowd = Crowd::start(size.total())?;
    let port = free_port();
    let began = Instant::now();
    let config = size.config(&crowd, port, "round-robin");
    let balancer = Balancer::start_binary(binary, &config)?;
    let admin = Admin::of(&balancer);
    let mut figures = vec![Figure::new("start, until it answers", began.elapsed())];
    figures.extend(all_up(&admin, size)?);
    figures.extend(requests(&balancer, &admin)?);
    figures.push(Figure::kilobytes("memory", balancer.memory_kb()));
    let per_server = balancer.memory_kb() as f64 / size.total() as f64;
    figures.push(Figure::number("memory of a server", per_server, "kB"));
    figures.extend(quiet(&balancer));
    figures.push(changes(&admin, &crowd, "round-robin")?);
    if size.services == 1 {
        for balance in ["first", "source", "least-connections"] {
            let began = Instant::now();
            balancer.reload(&size.config(&crowd, port, balance))?;
            figures.push(Figure::new(&format!("reload ({balance})"), began.elapsed()));
            figures.push(changes(&admin, &crowd, balance)?);
            if balance == "first" {
                crowd.check_change(&admin, (&listen_host(0), port))?;
            }
        }
    }
    figures.extend(together_down(&balancer, &admin, &mut crowd)?);
    Ok(figures)
}

/// Waits until all servers are up. The requests for their number meanwhile show how long the
/// control plane is busy with other work.
fn all_up(admin: &Admin, size: Size) -> Result<[Figure; 2]> {
    let began = Instant::now();
    let mut waits = Vec::new();
    while admin.in_state("up", &mut waits)? < size.total() as u64 {
        ensure!(began.elapsed() < UP_LIMIT, "not all servers are up");
        sleep(POLL_INTERVAL);
    }
    Ok([
        Figure::new("all servers up, from its first answer", began.elapsed())
            .bar(Bar::AtMostMs(5_000.0)),
        Figure::number(
            "longest wait for an answer meanwhile",
            longest_ms(&waits),
            "ms",
        ),
    ])
}

fn requests(balancer: &Balancer, admin: &Admin) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, path, bar) in [
        ("GET /api/v1/status", "/api/v1/status", Some(100.0)),
        ("GET /metrics", "/metrics", Some(200.0)),
        ("GET /healthz", "/healthz", None),
        (
            "GET /api/v1/status?servers=all",
            "/api/v1/status?servers=all",
            None,
        ),
        ("GET /metrics?servers=all", "/metrics?servers=all", None),
    ] {
        let (mut times, mut size) = (Vec::new(), 0);
        for _ in 0..repeats(bar) {
            let began = Instant::now();
            size = admin.get(path)?.len();
            times.push(began.elapsed());
        }
        let figure = Figure::number(name, median_ms(&mut times), "ms");
        let figure = figure.note(format!("{} kB", size / 1_000));
        figures.push(match bar {
            Some(bar) => figure.bar(Bar::AtMostMs(bar)),
            None => figure,
        });
    }
    for (arguments, bar) in [(&["status"][..], Some(100.0)), (&["status", "--all"], None)] {
        let mut times = Vec::new();
        for _ in 0..repeats(bar) {
            let began = Instant::now();
            let output = balancer.command(arguments)?;
            times.push(began.elapsed());
            ensure!(output.status.success(), "evenkeel {arguments:?} failed");
        }
        let name = format!("evenkeel {}", arguments.join(" "));
        let figure = Figure::number(&name, median_ms(&mut times), "ms");
        figures.push(match bar {
            Some(bar) => figure.bar(Bar::AtMostMs(bar)),
            None => figure,
        });
    }
    Ok(figures)
}

/// Returns how often a request is repeated: those without a limit have long answers.
fn repeats(bar: Option<f64>) -> usize {
    match bar {
        Some(_) => REPEATS,
        None => 3,
    }
}

/// Measures the processor time of a balancer that only probes.
fn quiet(balancer: &Balancer) -> [Figure; 1] {
    let (began, before_us) = (Instant::now(), balancer.cpu_us());
    sleep(QUIET);
    let used_ms = (balancer.cpu_us() - before_us) as f64 / 1e3;
    let per_second = used_ms / began.elapsed().as_secs_f64();
    [Figure::number(
        "processor time of probes",
        per_second,
        "ms/s",
    )]
}

/// Measures the time of a drain and of its end, which return once the change is published.
fn changes(admin: &Admin, crowd: &Crowd, balance: &str) -> Result<Figure> {
    let mut times = Vec::new();
    for number in 0..REPEATS {
        let address = crowd.address(number);
        for verb in ["drain", "undrain"] {
            let began = Instant::now();
            admin.post(&format!("/api/v1/servers/{address}/{verb}"))?;
            times.push(began.elapsed());
        }
    }
    let name = format!("one change published ({balance})");
    let figure = Figure::number(&name, median_ms(&mut times), "ms");
    Ok(figure.bar(Bar::AtMostMs(5.0)))
}

/// Ends a tenth of the servers together.
fn together_down(balancer: &Balancer, admin: &Admin, crowd: &mut Crowd) -> Result<Vec<Figure>> {
    let (began, before_us) = (Instant::now(), balancer.cpu_us());
    let ended = crowd.end_a_tenth();
    let mut waits = Vec::new();
    eventually(DOWN_LIMIT, "the end of servers", || {
        let down = admin.in_state("down", &mut waits)?;
        Ok((down == ended as u64).then_some(()))
    })?;
    let took = began.elapsed();
    admin.check_listing()?;
    let cpu_ms = (balancer.cpu_us() - before_us) as f64 / 1e3;
    let name = format!("{ended} servers down together, until all are seen");
    Ok(vec![
        Figure::new(&name, took),
        Figure::number(
            "processor time meanwhile",
            cpu_ms / took.as_secs_f64(),
            "ms/s",
        ),
        Figure::number(
            "longest wait for an answer meanwhile",
            longest_ms(&waits),
            "ms",
        ),
    ])
}
