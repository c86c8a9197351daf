//! Asks servers of which only the address is known, and writes a configuration for them.

mod ask;
mod sql;
mod text;

use std::path::PathBuf;

use evenkeel_config::plan::{Address, SqlProtocol};
use evenkeel_monitor::inspect::{Facts, LoginFunction, Offer, TlsOffer};

pub(crate) use ask::{ask, offers};
pub(crate) use text::write;

/// A server, and what is known of it so far.
pub(crate) struct AskedServer {
    /// Address as typed.
    text: String,
    pub(crate) offer: Result<(Address, Offer), String>,
    /// Facts that the account has read, or why it has not. Only for servers with an offer.
    facts: Result<Facts, String>,
}

/// Servers of one protocol, which become one service.
pub(crate) struct Group {
    protocol: SqlProtocol,
    user: String,
    password: String,
    /// Servers that have an offer; primaries come first.
    servers: Vec<AskedServer>,
    /// Address at which the servers see this machine.
    own_address: Option<String>,
}

/// Names of the files that are written.
pub(crate) struct Names {
    pub(crate) config: PathBuf,
    pub(crate) stem: String,
}

/// Texts of the files, and what the user should do next.
pub(crate) struct Written {
    pub(crate) config: String,
    /// Names and texts of files with secrets, and of SQL.
    pub(crate) private_files: Vec<(String, String)>,
    pub(crate) next_steps: Vec<String>,
}

/// Takes the servers of a protocol.
pub(crate) fn of_protocol(
    servers: &mut Vec<AskedServer>,
    protocol: SqlProtocol,
) -> Vec<AskedServer> {
    let is_of = |server: &mut AskedServer| {
        let offer = server.offer.as_ref();
        offer.is_ok_and(|(_, offer)| offer.protocol == protocol)
    };
    servers.extract_if(.., is_of).collect()
}

impl AskedServer {
    /// Returns the address as the configuration has it.
    fn address(&self) -> String {
        match &self.offer {
            Ok((address, _)) => address.to_string(),
            Err(_) => self.text.clone(),
        }
    }

    fn is_local(&self) -> bool {
        self.offer
            .as_ref()
            .is_ok_and(|(address, _)| address.is_local())
    }

    fn tls(&self) -> &TlsOffer {
        self.offer
            .as_ref()
            .map_or(&TlsOffer::Off, |(_, offer)| &offer.tls)
    }

    /// Returns the product and version, as far as they are known.
    fn product(&self) -> &str {
        match (&self.facts, &self.offer) {
            (Ok(facts), _) => &facts.product,
            (Err(_), Ok((_, offer))) => &offer.product,
            (Err(_), Err(_)) => "",
        }
    }

    fn known(&self) -> Option<&Facts> {
        self.facts.as_ref().ok()
    }
}

/// Way in which password hashes of users are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    /// The system's table.
    Table,
    /// The function `public.evenkeel_login`.
    Function,
}

impl Group {
    /// Returns problems that the user should know of.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for server in &self.servers {
            let address = server.address();
            match &server.facts {
                Err(why) => problems.push(format!("{address}: {why}")),
                Ok(facts) => problems.extend(
                    facts
                        .missing
                        .iter()
                        .map(|grant| format!("{address}: missing: {grant}")),
                ),
            }
            match server.tls() {
                TlsOffer::Off if !server.is_local() => problems.push(format!(
                    "{address} does not support TLS: everyone on the network between can read and \
                     change the data; turn it on there and run init again"
                )),
                TlsOffer::Unusable(why) if !server.is_local() => {
                    problems.push(format!("{address}: {why}"));
                }
                _ => {}
            }
        }
        let needs_function = self.lookup() == Lookup::Function && !self.has_function();
        if self.logs_in() && (needs_function || self.lacks_hashes()) {
            problems.push(format!(
                "'{}' cannot read password hashes, so that no client can log in: run the SQL, or \
                 use `source = \"login\"` as the config file says",
                self.user
            ));
        }
        problems
    }

    fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.servers.iter().filter_map(AskedServer::known)
    }

    /// Returns whether the account can log in at a server.
    fn logs_in(&self) -> bool {
        self.facts().next().is_some()
    }

    fn is_superuser(&self) -> bool {
        self.facts().any(|facts| facts.is_superuser)
    }

    fn lookup(&self) -> Lookup {
        match self.protocol {
            SqlProtocol::Mysql => Lookup::Table,
            SqlProtocol::Postgres if self.facts().any(|facts| facts.reads_hashes) => Lookup::Table,
            SqlProtocol::Postgres => Lookup::Function,
        }
    }

    /// Returns whether a server refuses the account the password hashes of MySQL or MariaDB.
    fn lacks_hashes(&self) -> bool {
        let mut missing = self.facts().flat_map(|facts| &facts.missing);
        self.protocol == SqlProtocol::Mysql
            && missing
                .any(|grant| grant.contains("mysql.global_priv") || grant.contains("mysql.user"))
    }

    fn has_function(&self) -> bool {
        self.facts()
            .any(|facts| facts.function == LoginFunction::Usable)
    }

    /// Returns whether the SQL must run before clients can log in.
    fn needs_sql(&self) -> bool {
        let lacks = self.facts().any(|facts| !facts.missing.is_empty());
        let needs_function = self.lookup() == Lookup::Function && !self.has_function();
        !self.logs_in() || lacks || needs_function
    }

    /// Returns the server at which accounts are created.
    fn primary(&self) -> Option<&AskedServer> {
        let is_primary =
            |server: &&AskedServer| server.known().is_some_and(|facts| !facts.is_replica);
        self.servers
            .iter()
            .find(is_primary)
            .or(self.servers.first())
    }
}
