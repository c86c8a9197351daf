//! Asks the servers.

use std::net::UdpSocket;
use std::time::Duration;

use evenkeel_config::plan::{Address, SqlProtocol};
use evenkeel_monitor::inspect::{self, Offer, TlsOffer};
use evenkeel_monitor::probe::{AccountSource, MonitorAccount, Target, Tls};

use super::{AskedServer, Group};

/// Limit for each step at one server.
const LIMIT: Duration = Duration::from_secs(5);

/// Ports that are tried where none is given.
const PORTS: [(SqlProtocol, u16); 2] = [(SqlProtocol::Postgres, 5432), (SqlProtocol::Mysql, 3306)];

/// Asks all servers for their protocol and TLS. Fails if an address is none.
pub(crate) async fn offers(
    texts: &[String],
    protocol: Option<SqlProtocol>,
) -> Result<Vec<AskedServer>, String> {
    let mut tasks = Vec::new();
    for text in texts {
        let candidates = candidates(text, protocol)?;
        tasks.push((text, tokio::spawn(first_offer(candidates))));
    }
    let mut servers = Vec::new();
    for (text, task) in tasks {
        let offer = task.await.map_err(|error| error.to_string())?;
        servers.push(AskedServer {
            text: text.clone(),
            offer: offer.map_err(|why| format!("{text}: {why}")),
            facts: Err("not asked".to_owned()),
        });
    }
    Ok(servers)
}

type Candidate = (Address, Option<SqlProtocol>);

/// Returns the addresses that a text may mean.
fn candidates(text: &str, protocol: Option<SqlProtocol>) -> Result<Vec<Candidate>, String> {
    let error = match text.parse::<Address>() {
        Ok(address) => return Ok(vec![(address, protocol)]),
        Err(error) => error,
    };
    let host = match text.parse::<std::net::Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]"),
        Err(_) => text.to_owned(),
    };
    let ports = PORTS
        .iter()
        .filter(|(of, _)| protocol.is_none_or(|protocol| protocol == *of));
    let with_ports: Option<Vec<_>> = ports
        .map(|(of, port)| {
            let address = format!("{host}:{port}").parse().ok()?;
            Some((address, Some(*of)))
        })
        .collect();
    with_ports.ok_or_else(|| format!("--from: {}: {}", error.message, error.help))
}

async fn first_offer(candidates: Vec<Candidate>) -> Result<(Address, Offer), String> {
    let mut reasons = Vec::new();
    for (address, protocol) in candidates {
        let offered = async {
            let target = target(&address).await?;
            inspect::offer(&target, &server_name(&address), protocol, LIMIT).await
        };
        match offered.await {
            Ok(offer) => return Ok((address, offer)),
            Err(why) => reasons.push(format!("{address}: {why}")),
        }
    }
    match reasons.as_slice() {
        [only] => Err(only
            .split_once(": ")
            .map_or(only.as_str(), |(_, why)| why)
            .to_owned()),
        _ => Err(reasons.join("; ")),
    }
}

async fn target(address: &Address) -> Result<Target, String> {
    let (host, port) = match address {
        Address::Unix(path) => return Ok(Target::unix(path.clone())),
        Address::Tcp { host, port } => (host.as_str(), *port),
    };
    let mut found = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| format!("cannot resolve host name {host}: {error}"))?;
    let first = found
        .next()
        .ok_or_else(|| format!("host name {host} has no address"))?;
    Ok(Target::tcp(first))
}

/// Returns the name that the server's certificate must contain.
fn server_name(address: &Address) -> String {
    match address {
        Address::Tcp { host, .. } => host.clone(),
        Address::Unix(_) => "localhost".to_owned(),
    }
}

/// Logs in to the servers of a protocol.
pub(crate) async fn ask(
    protocol: SqlProtocol,
    (user, password): (String, String),
    mut servers: Vec<AskedServer>,
) -> Group {
    let account = MonitorAccount {
        user: user.clone(),
        password: password.clone(),
        database: None,
        source: AccountSource::Service,
    };
    let mut own_address = None;
    for server in &mut servers {
        let Ok((address, offer)) = &server.offer else {
            continue;
        };
        let login = (account.clone(), tls(address, &offer.tls));
        server.facts = match target(address).await {
            Ok(target) => {
                own_address = own_address.or_else(|| own_address_towards(&target));
                let facts = inspect::facts(protocol, &target, login, LIMIT).await;
                facts.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
    }
    servers.sort_by_key(|server| server.known().is_none_or(|facts| facts.is_replica));
    Group {
        protocol,
        user,
        password,
        servers,
        own_address,
    }
}

/// Returns the TLS that the written configuration will use.
fn tls(address: &Address, offer: &TlsOffer) -> Tls {
    let verify = |fingerprints| Tls::Verify {
        ca: None,
        fingerprints,
        server_name: server_name(address),
        identity: None,
    };
    match offer {
        _ if address.is_local() => Tls::Off,
        TlsOffer::Off | TlsOffer::Unknown => Tls::Off,
        TlsOffer::Verified => verify(Vec::new()),
        TlsOffer::Untrusted(fingerprint) => verify(vec![*fingerprint]),
        TlsOffer::Unusable(_) => Tls::Encrypt(None),
    }
}

/// Returns the local address of connections to a server. Sends nothing.
fn own_address_towards(target: &Target) -> Option<String> {
    let evenkeel_monitor::probe::TargetAddress::Tcp(server) = &target.address else {
        return None;
    };
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_port_is_looked_for_at_the_usual_ones() {
        let found = |text: &str, protocol| -> Vec<String> {
            let candidates = candidates(text, protocol).expect("an address");
            candidates
                .iter()
                .map(|(address, _)| address.to_string())
                .collect()
        };
        assert_eq!(found("db1", None), ["db1:5432", "db1:3306"]);
        assert_eq!(found("db1", Some(SqlProtocol::Mysql)), ["db1:3306"]);
        assert_eq!(found("db1:7", None), ["db1:7"]);
        assert_eq!(
            found("fd00::1", Some(SqlProtocol::Postgres)),
            ["[fd00::1]:5432"]
        );
        assert_eq!(found("unix:/run/x", None), ["unix:/run/x"]);
        assert!(candidates("no name", None).is_err_and(|why| why.starts_with("--from: ")));
    }
}
