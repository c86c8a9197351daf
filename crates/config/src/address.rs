//! Parses the addresses of servers and the addresses to listen on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Address of a server. Two spellings of one IP address are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// IP address (IPv6 without brackets), or a name that is resolved repeatedly.
    Tcp {
        /// Host in lower case.
        host: String,
        /// Port, never 0.
        port: u16,
    },
    /// Unix socket; the path is absolute.
    Unix(PathBuf),
}

impl Address {
    /// Returns the IP address and port. `None` for a name or a Unix socket.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp { host, port } => Some(SocketAddr::new(host.parse().ok()?, *port)),
            Address::Unix(_) => None,
        }
    }

    /// Returns whether traffic stays on this machine: loopback, `localhost` or a Unix socket.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } if host == "localhost" => true,
            Address::Tcp { host, .. } => host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if let Some(path) = unix_path(text)? {
            return Ok(Address::Unix(path));
        }
        let (host, port) = split(text)?;
        if host == "*" {
            return Err(AddressError::new(
                "`*` is not a server",
                "name the server: `10.0.0.1:3306`",
            ));
        }
        if port == 0 {
            return Err(AddressError::new(
                "port 0 is not a server's port",
                "use 1 to 65535",
            ));
        }
        let host = match host.parse::<IpAddr>() {
            Ok(ip) => ip.to_string(),
            Err(_) => checked_name(host)?,
        };
        Ok(Address::Tcp { host, port })
    }
}

/// Address on which a service listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listen {
    /// One address. `[::]` means every IPv6 address and no IPv4 address. Port 0 takes any free
    /// port.
    Tcp(SocketAddr),
    /// `*:port`: every address of this machine, IPv4 and (if available) IPv6.
    Any(u16),
    /// Unix socket; the path is absolute.
    Unix(PathBuf),
}

impl Listen {
    /// Returns true if the two addresses cannot be listened on at the same time.
    pub fn overlaps(&self, other: &Listen) -> bool {
        match (self, other) {
            (Listen::Unix(a), Listen::Unix(b)) => a == b,
            (Listen::Unix(_), _) | (_, Listen::Unix(_)) => false,
            (a, b) if a.port() != b.port() || a.port() == Some(0) => false,
            (Listen::Tcp(a), Listen::Tcp(b)) => {
                let covers = |ip: IpAddr, other: IpAddr| ip == other || ip.is_unspecified();
                a.is_ipv4() == b.is_ipv4() && (covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
            }
            (Listen::Any(_), _) | (_, Listen::Any(_)) => true,
        }
    }

    fn port(&self) -> Option<u16> {
        match self {
            Listen::Tcp(address) => Some(address.port()),
            Listen::Any(port) => Some(*port),
            Listen::Unix(_) => None,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "{address}"),
            Listen::Any(port) => write!(f, "*:{port}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Listen {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Listen, AddressError> {
        if let Some(path) = unix_path(text)? {
            return Ok(Listen::Unix(path));
        }
        let (host, port) = split(text)?;
        let ip = match host {
            "*" => return Ok(Listen::Any(port)),
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            _ => host.parse().map_err(|_| {
                AddressError::new(
                    format!("`{host}` is not an IP address"),
                    format!(
                        "listen on an IP address of this machine, or on all of them: `*:{port}`"
                    ),
                )
            })?,
        };
        Ok(Listen::Tcp(SocketAddr::new(ip, port)))
    }
}

/// Error in an address, with advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {help}")]
pub struct AddressError {
    /// Description of the error.
    pub message: String,
    /// Advice for a correction.
    pub help: String,
}

impl AddressError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> AddressError {
        AddressError {
            message: message.into(),
            help: help.into(),
        }
    }
}

/// Parses `unix:/path`, also with the slashes of a URL. Returns `None` for other addresses.
fn unix_path(text: &str) -> Result<Option<PathBuf>, AddressError> {
    let Some(rest) = text.strip_prefix("unix:") else {
        if text.starts_with('/') {
            let help = format!("a Unix socket is written `unix:{text}`");
            return Err(AddressError::new("this is a path, not an address", help));
        }
        return Ok(None);
    };
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if !path.starts_with('/') {
        let help = "write the whole path: `unix:/run/server.sock`";
        return Err(AddressError::new(
            "the path of a Unix socket must begin with `/`",
            help,
        ));
    }
    // `sun_path` holds 108 bytes including the terminating zero byte.
    if path.len() > 107 {
        let message = format!("the path of a Unix socket has {} bytes", path.len());
        return Err(AddressError::new(
            message,
            "the kernel allows 107: use a shorter path",
        ));
    }
    Ok(Some(PathBuf::from(path)))
}

/// Splits an address into the host, without brackets, and the port.
fn split(text: &str) -> Result<(&str, u16), AddressError> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let message = format!("`{scheme}://` is not part of an address");
        return Err(AddressError::new(message, format!("write `{rest}`")));
    }
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        let help = format!("write an IPv6 address in brackets: `[{ip}]:PORT`");
        return Err(AddressError::new(format!("`{text}` has no port"), help));
    }
    let Some((host, port)) = text.rsplit_once(':').filter(|_| !text.ends_with(']')) else {
        let help = format!("add the port: `{text}:3306`");
        return Err(AddressError::new(format!("`{text}` has no port"), help));
    };
    let port = port.parse().map_err(|_| {
        AddressError::new(
            format!("`{port}` is not a port"),
            "use a number from 1 to 65535",
        )
    })?;
    Ok((unbracketed(host, port)?, port))
}

fn unbracketed(host: &str, port: u16) -> Result<&str, AddressError> {
    if host.is_empty() {
        let help = format!(
            "put an address before the colon: `127.0.0.1:{port}`, or `*:{port}` to listen on all"
        );
        return Err(AddressError::new(format!("`:{port}` has no host"), help));
    }
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return match inner.parse::<Ipv6Addr>() {
            Ok(_) => Ok(inner),
            Err(_) => {
                let message = format!("`{inner}` is not an IPv6 address");
                Err(AddressError::new(
                    message,
                    "only an IPv6 address can be in brackets",
                ))
            }
        };
    }
    if host.contains(':') {
        let help = format!("write an IPv6 address in brackets: `[{host}]:{port}`");
        return Err(AddressError::new(
            format!("`{host}:{port}` is ambiguous"),
            help,
        ));
    }
    Ok(host)
}

fn checked_name(host: &str) -> Result<String, AddressError> {
    let numbers_only = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if numbers_only {
        let message = format!("`{host}` is not an IPv4 address");
        return Err(AddressError::new(
            message,
            "four numbers from 0 to 255: `10.0.0.1`",
        ));
    }
    let good_label = |label: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(good) && !label.starts_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.len() > 253 || !name.split('.').all(good_label) {
        let message = format!("`{host}` is not a host name");
        return Err(AddressError::new(
            message,
            "letters, digits, `-` and dots: `db1.example.org`",
        ));
    }
    Ok(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
