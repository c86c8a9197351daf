//! Describes the machine and measures how busy it was during a run.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::available_parallelism;

use super::outcome::Machine;
use super::versions::version_line;

/// Number of sockets above which their peers are examined, which takes time.
const MANY_SOCKETS: u32 = 10_000;

/// Describes this machine.
pub(crate) fn describe() -> Machine {
    let release = read("/etc/os-release");
    let pretty = value(&release, "PRETTY_NAME=").trim_matches('"').to_owned();
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let ports = read("/proc/sys/net/ipv4/ip_local_port_range");
    let mut ports = ports
        .split_whitespace()
        .filter_map(|word| word.parse().ok());
    let load = read("/proc/loadavg");
    let memory = read("/proc/meminfo");
    Machine {
        processor: named(&read("/proc/cpuinfo"), "model name"),
        cores: cores(),
        memory_mb: kilobytes(&memory, "MemTotal") / 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        system: pretty,
        virtualization: virtualization(),
        governor: governor.trim().to_owned(),
        load_average: load
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0.0),
        local_ports: (ports.next().unwrap_or(32768), ports.next().unwrap_or(60999)),
        further: further(),
    }
}

pub(crate) fn cores() -> u32 {
    available_parallelism().map_or(1, |count| count.get() as u32)
}

fn virtualization() -> String {
    crate::tool::find("systemd-detect-virt")
        .map_or_else(|_| String::new(), |path| printed_word(&path))
}

/// Returns the program's answer if it is one word without a digit.
fn printed_word(program: &Path) -> String {
    let output = std::process::Command::new(program).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn further() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let limits = read("/proc/self/limits");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    if let Some(files) = files.and_then(|line| line.split_whitespace().nth(4)) {
        found.insert("open files at most".to_owned(), files.to_owned());
    }
    let root = if crate::process::is_root() {
        "yes"
    } else {
        "no"
    };
    found.insert("run as root".to_owned(), root.to_owned());
    if let Ok(path) = crate::tool::find("ip") {
        found.insert("iproute2".to_owned(), version_line(&path, &["-V"]));
    }
    found
}

/// A reading of the machine's counters; the difference of two readings gives a rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    all: u64,
    idle: u64,
    steal: u64,
}

impl Reading {
    pub(crate) fn now() -> Reading {
        Reading::of(&read("/proc/stat"))
    }

    fn of(stat: &str) -> Reading {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        Reading {
            // Guest time is already part of user and nice.
            all: ticks.iter().take(8).sum(),
            idle: at(3) + at(4),
            steal: at(7),
        }
    }

    /// Returns the busy and stolen shares since an earlier reading, in per cent of all cores.
    pub(crate) fn percent_since(self, earlier: Reading) -> (f64, f64) {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let idle = self.idle.saturating_sub(earlier.idle) as f64;
        let steal = self.steal.saturating_sub(earlier.steal) as f64;
        let busy = (all - idle - steal).max(0.0);
        (busy / all * 100.0, steal / all * 100.0)
    }
}

/// Returns the memory in use, in per cent of the total.
pub(crate) fn memory_percent() -> f64 {
    let text = read("/proc/meminfo");
    let all = kilobytes(&text, "MemTotal").max(1) as f64;
    let free = kilobytes(&text, "MemAvailable") as f64;
    (all - free) / all * 100.0
}

/// Returns the local ports in use towards the address with most of them; 0 if there are few
/// sockets.
pub(crate) fn ports_used(addresses: &[SocketAddr]) -> u32 {
    let sockstat = read("/proc/net/sockstat");
    let sockets = sockstat.lines().find(|line| line.starts_with("TCP:"));
    let words: Vec<&str> = sockets.unwrap_or_default().split_whitespace().collect();
    let after = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        words.get(place + 1)?.parse::<u32>().ok()
    };
    let all = after("inuse").unwrap_or(0) + after("tw").unwrap_or(0);
    if all < MANY_SOCKETS {
        return all;
    }
    let table = read("/proc/net/tcp");
    let towards = |address: &SocketAddr| {
        let port = format!(":{:04X}", address.port());
        let lines = table.lines().skip(1);
        let remote = lines.filter_map(|line| line.split_whitespace().nth(2));
        remote.filter(|remote| remote.ends_with(&port)).count() as u32
    };
    addresses.iter().map(towards).max().unwrap_or(all)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the text after `word` on its line.
fn value<'a>(text: &'a str, word: &str) -> &'a str {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(word));
    lines.next().unwrap_or_default()
}

/// Returns the value of the first line `name : value`.
fn named(text: &str, name: &str) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

fn kilobytes(meminfo: &str, name: &str) -> u64 {
    let value = named(meminfo, name);
    let number = value.split_whitespace().next();
    number.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_stolen_time_are_parts_of_all_cores() {
        let before = Reading::of("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1\n");
        let after = Reading::of("cpu  150 0 130 900 0 0 0 20 0 0\n");
        assert_eq!(after.percent_since(before), (40.0, 10.0));
    }

    #[test]
    fn this_machine_describes_itself() {
        let machine = describe();
        assert!(machine.cores > 0 && machine.memory_mb > 0);
        assert!(!machine.kernel.is_empty());
        assert!(machine.local_ports.0 < machine.local_ports.1);
    }
}
