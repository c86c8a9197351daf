//! Provides scripted clients and servers on plain sockets: their data, their ends, their failures.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use evenkeel_lab::{Balancer, eventually, free_port};
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

mod script;

#[allow(unused_imports, reason = "each test program uses its own part of this")]
pub(crate) use script::{Scripted, name_of};

/// Limit for every wait; a timeout fails with the name of the awaited event.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    V4,
    V6,
    Unix,
}

/// A server's listening socket; the test accepts connections explicitly.
pub(crate) struct Listening {
    pub(crate) socket: Socket,
    /// Address in the notation of the configuration.
    pub(crate) address: String,
    file: Option<PathBuf>,
}

impl Listening {
    pub(crate) fn new(kind: Kind) -> Listening {
        Listening::with_backlog(kind, 1024)
    }

    pub(crate) fn with_backlog(kind: Kind, backlog: i32) -> Listening {
        Listening::open(own_address(kind), backlog)
    }

    /// Listens on an address that was free a moment ago.
    pub(crate) fn at(address: &str) -> Listening {
        Listening::open(address.to_owned(), 1024)
    }

    fn open(address: String, backlog: i32) -> Listening {
        let (at, domain) = parse(&address);
        let socket = Socket::new(domain, Type::STREAM, None).unwrap();
        if domain != Domain::UNIX {
            socket.set_reuse_address(true).unwrap();
        }
        socket.bind(&at).unwrap();
        socket.listen(backlog).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let file = address.strip_prefix("unix:").map(PathBuf::from);
        Listening {
            socket,
            address,
            file,
        }
    }

    pub(crate) fn accept(&self) -> Socket {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => return with_limits(socket),
                // A process that was stopped and continued: signal(7).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no connection to the server: {error}"),
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Wakes a thread that waits in accept.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Returns a free address of this kind, in the notation of the configuration.
pub(crate) fn own_address(kind: Kind) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    match kind {
        Kind::V4 => format!("127.0.0.1:{}", free_port()),
        Kind::V6 => format!("[::1]:{}", free_port()),
        Kind::Unix => {
            let number = NEXT.fetch_add(1, Relaxed);
            let name = format!("evenkeel-peer-{}-{number}.sock", std::process::id());
            format!("unix:{}", PathBuf::from("/tmp").join(name).display())
        }
    }
}

/// Connects to an address in the notation of the configuration.
pub(crate) fn connect(address: &str) -> Socket {
    try_connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
}

pub(crate) fn try_connect(address: &str) -> io::Result<Socket> {
    let (to, domain) = parse(address);
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.connect_timeout(&to, LIMIT)?;
    Ok(with_limits(socket))
}

/// Connects with a receive buffer of this size, from the first window on.
pub(crate) fn connect_with_room(address: &str, room_bytes: usize) -> Socket {
    let (to, domain) = parse(address);
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(room_bytes).unwrap();
    socket.connect(&to).unwrap();
    with_limits(socket)
}

/// Connects from another address of the loopback network, such as 127.0.0.9.
pub(crate) fn connect_from(source: [u8; 4], address: &str) -> Socket {
    let (to, domain) = parse(address);
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&to).unwrap();
    with_limits(socket)
}

fn with_limits(socket: Socket) -> Socket {
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.set_write_timeout(Some(LIMIT)).unwrap();
    // Small packets are sent immediately; a Unix socket has no such delay.
    let _ = socket.set_tcp_nodelay(true);
    socket
}

fn parse(address: &str) -> (SockAddr, Domain) {
    if let Some(path) = address.strip_prefix("unix:") {
        return (SockAddr::unix(path).unwrap(), Domain::UNIX);
    }
    let tcp: SocketAddr = address.parse().unwrap();
    (tcp.into(), Domain::for_address(tcp))
}

/// Closes with a reset.
pub(crate) fn reset(socket: Socket) {
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(socket);
}

/// Closes with or without a reset; the peer's kernel knows of it before this returns.
///
/// Dropping a socket is not enough: a child that another test has just forked holds a copy of it
/// until exec. It closes all its copies in the order of their numbers.
pub(crate) fn leave(socket: Socket, with_reset: bool) {
    let own = socket.local_addr().unwrap().as_socket().unwrap();
    if with_reset {
        reset(socket);
    } else {
        socket.shutdown(Shutdown::Both).unwrap();
    }
    until("the peer to know of the end", || !is_connected_to(own));
}

/// Returns whether a socket of this machine has an established connection to the address; IPv4
/// only.
fn is_connected_to(address: SocketAddr) -> bool {
    const ESTABLISHED: &str = "01";
    let IpAddr::V4(ip) = address.ip() else {
        panic!("{address} is not IPv4")
    };
    let number = u32::from_ne_bytes(ip.octets());
    let wanted = format!("{number:08X}:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut rows = table.lines().map(|row| row.split_whitespace().skip(2));
    rows.any(|mut row| row.next() == Some(&*wanted) && row.next() == Some(ESTABLISHED))
}

pub(crate) fn send(mut socket: &Socket, bytes: &[u8]) {
    socket.write_all(bytes).expect("the peer takes it");
}

pub(crate) fn end_sending(socket: &Socket) {
    socket.shutdown(Shutdown::Write).unwrap();
}

/// Reads exactly `count` bytes.
pub(crate) fn receive(mut socket: &Socket, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    socket.read_exact(&mut bytes).expect("that many bytes");
    bytes
}

/// Reads to the end, which must be clean.
pub(crate) fn receive_all(mut socket: &Socket) -> Vec<u8> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("a clean end");
    bytes
}

/// End of a connection as its reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Reset,
}

/// Discards input until the end.
pub(crate) fn end_of(mut socket: &Socket) -> End {
    let mut ignored = [0; 4096];
    loop {
        match socket.read(&mut ignored) {
            Ok(0) => return End::Clean,
            Ok(_) => {}
            Err(error) if is_reset(&error) => return End::Reset,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("neither an end nor a reset: {error}"),
        }
    }
}

pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Waits for the condition; the test fails after a timeout.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(LIMIT, what, || Ok(holds().then_some(()))).unwrap();
}

/// Asserts that something stays true for this long.
#[track_caller]
pub(crate) fn stays(what: &str, time: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(holds(), "{what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Starts a balancer of two workers on one of the drivers.
pub(crate) fn balancer(io: &str, services: &str) -> Balancer {
    let config = format!("[engine]\nio = {io:?}\nworkers = 2\n{services}");
    Balancer::start(&config).unwrap()
}

/// Returns a `[[service]]`; `more` are further keys and tables.
pub(crate) fn service(listen: &str, servers: &[&str], more: &str) -> String {
    named_service("s", listen, servers, more)
}

pub(crate) fn named_service(name: &str, listen: &str, servers: &[&str], more: &str) -> String {
    let health = if more.contains("[service.health]") {
        ""
    } else {
        "[service.health]\nprobe = \"off\"\n"
    };
    // An entry may be a table.
    let entry = |server: &&str| match server.starts_with('{') {
        true => (*server).to_owned(),
        false => format!("{server:?}"),
    };
    let servers: Vec<String> = servers.iter().map(entry).collect();
    let servers = servers.join(", ");
    format!(
        "[[service]]\nname = {name:?}\nlisten = {listen:?}\nservers = [{servers}]\n{more}\n{health}"
    )
}

/// Waits until the only service's status meets the condition.
#[track_caller]
pub(crate) fn until_service(balancer: &Balancer, what: &str, holds: impl Fn(&Value) -> bool) {
    until(what, || holds(&balancer.status().unwrap()["services"][0]));
}

/// Returns the number of open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

/// Returns the number of descriptors after it was constant for a while: the workers open their
/// listeners one by one.
pub(crate) fn settled_descriptors(pid: u32) -> usize {
    let (mut count, mut since) = (descriptors(pid), Instant::now());
    until("a settled number of descriptors", || {
        let now = descriptors(pid);
        if now != count {
            (count, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(300)
    });
    count
}

/// Returns whether the kernel supports this driver; containers often have no io_uring.
pub(crate) fn is_available(io: &str) -> bool {
    if io == "epoll" {
        return true;
    }
    #[expect(unsafe_code, reason = "io_uring_setup has no wrapper in libc")]
    // SAFETY: a null pointer is refused by the kernel, or the call does not exist.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null::<u8>()) };
    let fault = io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
    result < 0 && fault
}

/// Creates two tests of each `name(io)`: one for each driver.
#[macro_export]
macro_rules! on_both_drivers {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn on_io_uring() {
                if $crate::peer::is_available("io_uring") {
                    super::$name("io_uring");
                } else {
                    eprintln!("not run: the kernel offers no io_uring here");
                }
            }

            #[test]
            fn on_epoll() {
                super::$name("epoll");
            }
        }
    )*};
}
