//! Creates network namespaces for servers, joined by a bridge: each can be isolated.
//!
//! Names contain the lab's process id, so that the next lab recognizes and removes leftovers of a
//! lab that was killed together with its reaper.

mod arrival;

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{process, procfs, tool};
pub(crate) use arrival::{Arrival, has_address};

const NAMESPACES: &str = "/run/netns";
const NAMESPACE_PREFIX: &str = "evenkeel-lab-";
const BRIDGE_PREFIX: &str = "ekb";

thread_local! {
    /// Network namespace of this thread, if it is not that of the process.
    static OWN: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// A bridge of this machine with the address 10.77.N.1, and the links to the servers.
pub(crate) struct Network {
    number: u8,
    bridge: String,
    work_dir: PathBuf,
    last_host: AtomicU8,
    /// Reserves the number against other labs.
    _reservation: UnixListener,
}

impl Network {
    /// Creates the bridge, which is removed at the end of the lab in `work_dir`.
    pub(crate) fn new(work_dir: &Path) -> Result<Network> {
        if !process::is_root() {
            bail!("network namespaces need root: run the lab as root, or without namespaces");
        }
        remove_stale()?;
        // The kernel removes the links of an ended lab with a delay.
        let taken = run("ip", "-4 -o address")? + &run("ip", "-o link")?;
        let free = (1..=254).find_map(|number| {
            let is_taken = taken.contains(&format!(" 10.77.{number}."))
                || taken.contains(&format!(" ekv{number}-"));
            Some((number, reserve(number)?)).filter(|_| !is_taken)
        });
        let (number, reservation) =
            free.context("all of 10.77.1.0/24 to 10.77.254.0/24 are in use")?;
        let bridge = format!("{BRIDGE_PREFIX}{number}-{:x}", std::process::id());
        remove_at_end(work_dir, &format!("link delete {bridge}"))?;
        // A fixed address. By default a bridge has the address of one of its links, which changes
        // when that link is removed. The hosts would then send to the old address for 5 s, until
        // their next ARP request.
        let address = format!("02:45:4b:00:{number:02x}:01");
        run(
            "ip",
            &format!("link add {bridge} address {address} type bridge"),
        )
        .context(
            "the kernel does not allow creating a bridge, which is needed to cut servers \
             off",
        )?;
        run(
            "ip",
            &format!("address add 10.77.{number}.1/24 dev {bridge}"),
        )?;
        run("ip", &format!("link set {bridge} up"))?;
        Ok(Network {
            number,
            bridge,
            work_dir: work_dir.to_owned(),
            last_host: AtomicU8::new(1),
            _reservation: reservation,
        })
    }

    /// Returns the link of another server; it is created when the server starts.
    pub(crate) fn link(&self) -> Link {
        Link {
            number: self.number,
            host: self.another_host(),
            bridge: self.bridge.clone(),
            work_dir: self.work_dir.clone(),
            is_cut_off: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Returns an additional, unused address.
    pub(crate) fn spare_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, self.another_host())
    }

    fn another_host(&self) -> u8 {
        self.last_host.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn range(&self) -> String {
        format!("10.77.{}.0/24", self.number)
    }

    pub(crate) fn hosts_pattern(&self) -> String {
        format!("10.77.{}.%", self.number)
    }
}

/// A server's namespace and its link to the bridge.
#[derive(Clone)]
pub(crate) struct Link {
    number: u8,
    host: u8,
    bridge: String,
    work_dir: PathBuf,
    is_cut_off: Arc<AtomicBool>,
}

impl Link {
    pub(crate) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, self.host)
    }

    /// Returns the file through which the namespace is entered.
    pub(crate) fn namespace(&self) -> PathBuf {
        Path::new(NAMESPACES).join(self.name())
    }

    /// Creates namespace and link, unless they exist.
    pub(crate) fn make(&self) -> Result<()> {
        if self.namespace().exists() {
            return Ok(());
        }
        let (name, end, bridge) = (self.name(), self.bridge_end(), &self.bridge);
        let (address, station) = (self.address(), self.station());
        remove_at_end(&self.work_dir, &format!("netns delete {name}"))?;
        for step in [
            format!("netns add {name}"),
            format!("link add {end} type veth peer name eth0 address {station} netns {name}"),
            format!("link set {end} master {bridge} up"),
            format!("-netns {name} address add {address}/24 dev eth0"),
            format!("-netns {name} link set lo up"),
            format!("-netns {name} link set eth0 up"),
            // With a neighbor entry that must be resolved, an isolation would be noticed: no route
            // to host.
            format!("neighbor replace {address} lladdr {station} dev {bridge} nud permanent"),
        ] {
            run("ip", &step)?;
        }
        Ok(())
    }

    /// Isolates the server: the bridge's port drops all frames, and both ends keep their carrier.
    pub(crate) fn cut_off(&self) -> Result<()> {
        self.set_port("disabled")?;
        self.is_cut_off.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn join_again(&self) -> Result<()> {
        self.set_port("forwarding")?;
        self.is_cut_off.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// Removes an address that a program has not removed itself, if present.
    pub(crate) fn forget_address(&self, address: Ipv4Addr) {
        let name = self.name();
        let _ = run(
            "ip",
            &format!("-netns {name} address delete {address}/24 dev eth0"),
        );
    }

    pub(crate) fn delay(&self, delay: Duration) -> Result<()> {
        let device = format!("-netns {} qdisc", self.name());
        if delay.is_zero() {
            run("tc", &format!("{device} delete dev eth0 root"))?;
            return Ok(());
        }
        let delay_us = delay.as_micros();
        run(
            "tc",
            &format!("{device} replace dev eth0 root netem delay {delay_us}us"),
        )
        .context(
            "packets cannot be delayed: does this kernel have netem (CONFIG_NET_SCH_NETEM)?",
        )?;
        Ok(())
    }

    fn set_port(&self, state: &str) -> Result<()> {
        run(
            "bridge",
            &format!("link set dev {} state {state}", self.bridge_end()),
        )?;
        Ok(())
    }

    fn name(&self) -> String {
        let Link { number, host, .. } = self;
        format!("{NAMESPACE_PREFIX}{}-{number}-{host}", std::process::id())
    }

    fn bridge_end(&self) -> String {
        format!("ekv{}-{}", self.number, self.host)
    }

    fn station(&self) -> String {
        format!("02:45:4b:00:{:02x}:{:02x}", self.number, self.host)
    }
}

/// Runs `work` on this thread in another network namespace.
pub(crate) fn within<T>(namespace: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let home = File::open("/proc/thread-self/ns/net")?;
    enter(&File::open(namespace)?)?;
    let done = work();
    enter(&home).expect("a thread can return to the namespace it came from");
    done
}

fn enter(namespace: &File) -> io::Result<()> {
    #[expect(unsafe_code, reason = "setns has no wrapper in the standard library")]
    // SAFETY: setns takes no pointer, and the descriptor is open.
    let failed = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Moves this thread, and the programs that it starts from now on, to a new network namespace that
/// has a loopback interface only: interfaces of this machine that come and go do not concern them.
///
/// # Errors
/// The process may not create a namespace (`unshare(2)`: not root), or there is no program `ip`.
pub fn enter_own_loopback() -> Result<()> {
    process::prepare_to_start();
    // Without it, the interface would stay down.
    run("ip", "-V")?;
    #[expect(unsafe_code, reason = "unshare has no wrapper in the standard library")]
    // SAFETY: unshare takes no pointer, and the flag concerns the network only.
    let failed = unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0;
    if failed {
        return Err(io::Error::last_os_error()).context("cannot create a network namespace");
    }
    run("ip", "link set lo up")?;
    let thread = Path::new("/proc").join(fs::read_link("/proc/thread-self")?);
    OWN.set(Some(thread.join("ns/net")));
    Ok(())
}

/// Returns the network namespace that this thread has entered by [`enter_own_loopback`].
pub(crate) fn own_namespace() -> Option<PathBuf> {
    OWN.with_borrow(Clone::clone)
}

/// Removes leftovers of labs that were killed together with their reapers.
fn remove_stale() -> Result<()> {
    for entry in fs::read_dir(NAMESPACES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let rest = name.strip_prefix(NAMESPACE_PREFIX);
        let pid = rest.and_then(|rest| rest.split('-').next()?.parse().ok());
        if pid.is_some_and(|pid| !procfs::is_alive(pid)) {
            // Another lab may have been faster.
            let _ = run("ip", &format!("netns delete {name}"));
        }
    }
    for entry in fs::read_dir("/sys/class/net")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let rest = name.strip_prefix(BRIDGE_PREFIX);
        let pid = rest.and_then(|rest| u32::from_str_radix(rest.split_once('-')?.1, 16).ok());
        if pid.is_some_and(|pid| !procfs::is_alive(pid)) {
            let _ = run("ip", &format!("link delete {name}"));
        }
    }
    Ok(())
}

/// Makes the reaper run this `ip` command at the end.
fn remove_at_end(work_dir: &Path, command: &str) -> Result<()> {
    let mut list = OpenOptions::new()
        .create(true)
        .append(true)
        .open(work_dir.join(".network"))?;
    Ok(writeln!(list, "{command}")?)
}

fn reserve(number: u8) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("evenkeel-lab-network-{number}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

fn run(program: &str, arguments: &str) -> Result<String> {
    let mut command = Command::new(tool::find(program)?);
    process::plain_environment(&mut command);
    let output = command.args(arguments.split(' ')).output()?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {arguments}: {}", printed.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}
