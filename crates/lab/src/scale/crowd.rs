//! Many scripted TCP servers: every address of two ports of the loopback network is one server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use socket2::{Domain, Socket, Type};

use super::admin::Admin;
use crate::free_port;

/// Connections that wait to be accepted: the probes of all servers may come together.
const BACKLOG: i32 = 4_096;

/// Part of the servers that can be ended together.
const MORTAL: usize = 10;

/// Number of hosts in each network of 127.0.0.0/8 that the servers use.
const HOSTS: usize = 250;

/// Servers that send each client their address and close the connection.
pub(super) struct Crowd {
    count: usize,
    lasting: Listeners,
    mortal: Listeners,
}

impl Crowd {
    pub(super) fn start(count: usize) -> Result<Crowd> {
        Ok(Crowd {
            count,
            lasting: Listeners::start()?,
            mortal: Listeners::start()?,
        })
    }

    /// Returns the address of a server. Every tenth server, the last of ten, can be ended.
    pub(super) fn address(&self, number: usize) -> SocketAddrV4 {
        let port = match number % MORTAL == MORTAL - 1 {
            true => self.mortal.port,
            false => self.lasting.port,
        };
        let (network, host) = (number / HOSTS, number % HOSTS);
        let octets = [1 + network / HOSTS, network % HOSTS, host + 1];
        let [second, third, fourth] = octets.map(|octet| octet as u8);
        SocketAddrV4::new(Ipv4Addr::new(127, second, third, fourth), port)
    }

    /// Ends every tenth server, and returns their number.
    pub(super) fn end_a_tenth(&mut self) -> usize {
        self.mortal.end();
        self.count / MORTAL
    }

    /// Checks that a worker uses a change once its command has returned: with `balance = "first"`,
    /// clients get the first server, and the second one while the first is drained.
    pub(super) fn check_change(&self, admin: &Admin, (host, port): (&str, u16)) -> Result<()> {
        let served = || -> Result<String> {
            let mut text = String::new();
            TcpStream::connect((host, port))?.read_to_string(&mut text)?;
            Ok(text)
        };
        let [first, second] = [0, 1].map(|number| self.address(number).to_string());
        for _ in 0..20 {
            ensure!(served()? == first, "a client did not get the first server");
            admin.post(&format!("/api/v1/servers/{first}/drain"))?;
            ensure!(
                served()? == second,
                "a client did not get the second server"
            );
            admin.post(&format!("/api/v1/servers/{first}/undrain"))?;
        }
        Ok(())
    }
}

/// Listener on one port of all addresses, and its thread.
struct Listeners {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listeners {
    fn start() -> Result<Listeners> {
        let port = free_port();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        socket.bind(&address.into()).context("scripted servers")?;
        socket.listen(BACKLOG)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (listener, over) = (TcpListener::from(socket), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || answer(&listener, &over));
        Ok(Listeners {
            port,
            is_over,
            thread: Some(thread),
        })
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Ends the wait for a client.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.end();
    }
}

fn answer(listener: &TcpListener, is_over: &AtomicBool) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // A probe may have gone already.
        if let Ok(mut stream) = stream
            && let Ok(address) = stream.local_addr()
        {
            let _ = stream.write_all(address.to_string().as_bytes());
        }
    }
}
