//! Opens a connection to a server and logs in, in a client's name.

mod rows;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_wire::mysql::backend::{Report, SqlState};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frame::{self, Frame};
use evenkeel_wire::mysql::greeting::{self, First, Greeting};
use evenkeel_wire::mysql::login::{
    Channel, Credential, Hello, Join, JoinStep, Joined as LoggedIn, Refusal, ServerKey,
};
use evenkeel_wire::mysql::startup::Attributes;
use evenkeel_wire::mysql::{Parsed, build, rewrite};

use self::rows::{Answer, Rows};
use super::greeting::{Face, Version};
use super::login::wanted;
use super::server::ServerConnection;
use super::shared::Shared;
use crate::engine::worker::Worker;
use crate::random::secret;
use crate::server::{Endpoint, Server};
use crate::service::{Service, View};
use crate::state::mysql as state;
use crate::stream::Stream;
use crate::tls::Connector;
use crate::upstream::join::{ErrorCode, JoinError, Kind, in_time, reach};
use crate::upstream::lender::Pooled;

/// How long a packet of a server may be in a login, and in the answers to our first questions.
const PACKET_LENGTH_MAX: u32 = 64 * 1024;

/// utf8mb4: names are sent in it. What the client has instead is put in place later.
const COLLATION: u8 = 45;

/// What we say about ourselves.
const ATTRIBUTES: &[u8] = b"\x0cprogram_name\x08evenkeel";

/// A server has let us in, and its trackers are on.
pub(super) struct Joined {
    pub(super) stream: Stream,
    /// Between us and the server.
    pub(super) agreed: Capabilities,
    /// As KILL knows it.
    pub(super) id: u32,
    pub(super) version: Arc<Version>,
    pub(super) status: Status,
    pub(super) fresh: Arc<Fresh>,
}

/// A name and a value.
type Pair = (Box<[u8]>, Box<[u8]>);

/// What a connection has right behind its login.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// Of those that are followed, what the server has; names in lower case.
    pub(super) variables: Vec<Pair>,
    pub(super) version: Arc<Version>,
    /// Switches off what the server's own defaults would have the next client find; most have
    /// none.
    pub(super) calming: Option<Box<str>>,
}

impl Fresh {
    /// Names and values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let pairs = self.variables.iter();
        pairs.map(|(name, value)| (&**name, &**value))
    }

    pub(super) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let mut pairs = self.pairs();
        pairs
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }
}

/// Opens one, logged in.
pub(super) async fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    pooled: &Arc<Pooled>,
) -> Result<Box<ServerConnection>, JoinError> {
    let view = service.view_owned();
    let shared = service.database.as_ref().and_then(|own| own.of_mysql());
    let Some(shared) = shared else {
        return Err(JoinError::outdated());
    };
    let server = &pooled.server;
    let joining = async {
        let line = Line::reach(worker, service, server).await?;
        join(line, &view, shared, pooled).await
    };
    let joined = in_time(&view, server, joining).await?;
    let connection = ServerConnection::new(worker, joined, pooled);
    shared
        .logins
        .greetings
        .refresh(&pooled.who, &connection.fresh);
    server.counters.sessions.add(1);
    Ok(connection)
}

/// How a server greets.
pub(super) async fn greeted(
    worker: &Rc<Worker>,
    service: &Service,
    server: &Server,
) -> Result<Face, JoinError> {
    let view = service.view_owned();
    let looking = async {
        let mut line = Line::reach(worker, service, server).await?;
        let (_, payload) = line.packet().await?;
        match greeting::first(&payload) {
            Ok(First::Greeting(greeting)) => Ok(Face::of(&greeting)),
            Ok(First::Error(report)) => Err(refused(server, &report)),
            Err(fault) => Err(JoinError::unreachable(server, fault)),
        }
    };
    in_time(&view, server, looking).await
}

async fn join(
    mut line: Line<'_>,
    view: &View,
    shared: &Shared,
    pooled: &Pooled,
) -> Result<Joined, JoinError> {
    let server = line.server;
    let (_, payload) = line.packet().await?;
    let greeting = match greeting::first(&payload) {
        Ok(First::Greeting(greeting)) => greeting,
        Ok(First::Error(report)) => return Err(refused(server, &report)),
        Err(fault) => return Err(JoinError::unreachable(server, fault)),
    };
    let face = Face::of(&greeting);
    let version = Arc::clone(&face.version);
    shared.logins.faces.learn(server.id, face);
    let own = view.database.as_ref().ok_or_else(JoinError::outdated)?;
    if let Some(connector) = own.connector(server)? {
        line.encrypt(&greeting, connector, pooled).await?;
    }
    let logged_in = line.log_in(&greeting, shared, pooled).await?;
    if let Some(lacking) = lacking(pooled.who.identity, logged_in.agreed) {
        return Err(JoinError::unsuitable(server, Lacking(lacking)));
    }
    let variables = line.set_up(logged_in.agreed, &version).await?;
    let (tells, variables): (Vec<Pair>, Vec<Pair>) = variables
        .into_iter()
        .partition(|(name, _)| state::tells_of_others(name));
    let calming = state::calming(tells.iter().map(|(name, value)| (&**name, &**value)));
    if let Some(calming) = &calming {
        line.run(calming, logged_in.agreed).await?;
    }
    let fresh = Arc::new(Fresh {
        variables,
        version: Arc::clone(&version),
        calming: calming.map(String::into_boxed_str),
    });
    Ok(Joined {
        stream: line.stream,
        agreed: logged_in.agreed,
        id: greeting.connection,
        version,
        status: logged_in.status,
        fresh,
    })
}

/// How results and commands are written, by the names of the protocol's documentation: what clients
/// were promised when they logged in cannot be taken back.
const FORMATS: [(Capabilities, &str); 5] = [
    (Capabilities::DEPRECATE_EOF, "CLIENT_DEPRECATE_EOF"),
    (
        Capabilities::EXTENDED_METADATA,
        "MARIADB_CLIENT_EXTENDED_METADATA",
    ),
    (Capabilities::BULK, "MARIADB_CLIENT_STMT_BULK_OPERATIONS"),
    (
        Capabilities::BULK_UNIT_RESULTS,
        "MARIADB_CLIENT_BULK_UNIT_RESULTS",
    ),
    (Capabilities::QUERY_ATTRIBUTES, "CLIENT_QUERY_ATTRIBUTES"),
];

/// What the clients of a pool were promised and this server cannot do: it came, or was replaced by
/// an older one, after they had logged in.
fn lacking(identity: u64, agreed: Capabilities) -> Option<&'static str> {
    let mut promised = FORMATS
        .iter()
        .filter(|(format, _)| Capabilities(identity).has(*format));
    let lacking = promised.find(|(format, _)| !agreed.has(*format));
    lacking.map(|(_, name)| *name)
}

/// Said of the server.
#[derive(Debug)]
struct Lacking(&'static str);

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "does not know {name}, which this client was promised when it logged in: it can be \
             used by clients that log in from now on"
        )
    }
}

/// A connection on which we are not logged in yet.
struct Line<'a> {
    worker: &'a Rc<Worker>,
    server: &'a Server,
    stream: Stream,
    /// What has come and was not looked at.
    bytes: Vec<u8>,
    /// Nobody on the way can listen.
    is_secure: bool,
    /// The number of what we say next.
    next: u8,
}

impl<'a> Line<'a> {
    async fn reach(
        worker: &'a Rc<Worker>,
        service: &Service,
        server: &'a Server,
    ) -> Result<Self, JoinError> {
        Ok(Self {
            stream: reach(worker, service, server).await?,
            worker,
            server,
            bytes: Vec::new(),
            is_secure: matches!(server.endpoint(), Some(Endpoint::Unix(_))),
            next: 1,
        })
    }

    fn broken(&self, why: impl std::fmt::Display) -> JoinError {
        JoinError::unreachable(self.server, why)
    }

    async fn say(&mut self, bytes: &[u8]) -> Result<(), JoinError> {
        let sent = self.stream.send(self.worker, bytes).await;
        sent.map_err(|error| JoinError::unreachable(self.server, error))
    }

    /// The server's next packet: its number and its payload.
    async fn packet(&mut self) -> Result<(u8, Vec<u8>), JoinError> {
        loop {
            match frame::frame(&self.bytes, PACKET_LENGTH_MAX) {
                Parsed::Frame(frame, length) => {
                    let packet = (frame.sequence, frame.payload.to_vec());
                    self.bytes.drain(..length);
                    return Ok(packet);
                }
                Parsed::Invalid(fault) => return Err(self.broken(fault)),
                Parsed::Incomplete { .. } => {}
            }
            let received = self.stream.receive(self.worker, &mut self.bytes).await;
            match received {
                Ok(true) => {}
                Ok(false) => return Err(self.broken("closed the connection in the login")),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    async fn encrypt(
        &mut self,
        greeting: &Greeting<'_>,
        connector: &Connector,
        pooled: &Pooled,
    ) -> Result<(), JoinError> {
        if !greeting.capabilities.has(Capabilities::SSL) {
            let why = "does not speak TLS: see [service.server_tls] mode";
            return Err(self.broken(why));
        }
        let mut request = Vec::new();
        let offered = greeting.capabilities;
        // MySQL goes by these, not by those of the login behind it.
        let ours = self.wanted(pooled).both(offered);
        let ours = ours.with(Capabilities::PROTOCOL_41);
        build::ssl_request(&mut request, self.next, ours, COLLATION);
        self.say(&request).await?;
        let channel = connector.connect().map_err(|fault| self.broken(fault))?;
        self.stream.encrypt(channel);
        let worker = self.worker;
        let shaken = self.stream.shake_hands(worker, &[], &mut self.bytes).await;
        shaken.map_err(|error| self.broken(error))?;
        self.next += 1;
        self.is_secure = true;
        Ok(())
    }

    async fn log_in(
        &mut self,
        greeting: &Greeting<'_>,
        shared: &Shared,
        pooled: &Pooled,
    ) -> Result<LoggedIn, JoinError> {
        let hello = Hello {
            capabilities: self.wanted(pooled),
            collation: COLLATION,
            user: pooled.who.server_user.as_bytes(),
            schema: None,
            attributes: Attributes::of(ATTRIBUTES),
        };
        let channel = match self.is_secure {
            true => Channel::Secure,
            false => Channel::Plain,
        };
        // Without TLS to this server everything is open to who stands in between, by the
        // operator's choice: asking for its key adds nothing to that.
        let how = (credential(shared, pooled), channel, ServerKey::Ask);
        let mut out = Vec::new();
        let to = (self.next, &mut out);
        let begun = Join::begin(greeting, &hello, how, secret(), to);
        let mut join = begun.map_err(|refusal| self.not_possible(refusal))?;
        loop {
            self.say(&out).await?;
            out.clear();
            let (sequence, payload) = self.packet().await?;
            let payload = payload.as_slice();
            match join.message(Frame { sequence, payload }, &mut out) {
                JoinStep::More(next) => join = next,
                JoinStep::Done(joined) => return Ok(joined),
                JoinStep::Refused(Refusal::Server(_)) => {
                    let report = Report::read(payload);
                    let refused = report.map(|report| refused(self.server, &report));
                    return Err(refused.unwrap_or_else(|| self.not_possible(Refusal::Protocol)));
                }
                JoinStep::Refused(refusal) => return Err(self.not_possible(refusal)),
            }
        }
    }

    fn wanted(&self, pooled: &Pooled) -> Capabilities {
        let wanted = wanted(pooled.who.identity);
        match self.stream.is_encrypted() {
            true => wanted.with(Capabilities::SSL),
            false => wanted,
        }
    }

    /// The credential does not do, or the server is none.
    fn not_possible(&self, refusal: Refusal) -> JoinError {
        if refusal == Refusal::Protocol {
            return self.broken(refusal);
        }
        let code = ErrorCode {
            number: refusal.code(),
            sqlstate: refusal.sqlstate().0,
        };
        JoinError::refused(self.server, Kind::Refused, code, &refusal.to_string())
    }

    /// Asks what is so before anything is set, and switches the trackers on: at one go.
    async fn set_up(
        &mut self,
        agreed: Capabilities,
        version: &Version,
    ) -> Result<Vec<Pair>, JoinError> {
        let mut out = Vec::new();
        let question = question();
        for text in [
            question.as_str(),
            state::trackers(version.mariadb, version.number()),
        ] {
            rewrite::query(&mut out, &[], text.as_bytes(), agreed);
        }
        self.say(&out).await?;
        let mut variables = Vec::new();
        let found = self.answer(agreed).await?;
        for row in found {
            if let [Some(name), value] = row.as_slice() {
                let value = value.as_deref().unwrap_or_default();
                variables.push((name.to_ascii_lowercase().into(), value.into()));
            }
        }
        self.answer(agreed).await?;
        match self.bytes.is_empty() {
            true => Ok(variables),
            false => Err(self.broken("said more than it was asked")),
        }
    }

    async fn run(&mut self, text: &str, agreed: Capabilities) -> Result<(), JoinError> {
        let mut out = Vec::new();
        rewrite::query(&mut out, &[], text.as_bytes(), agreed);
        self.say(&out).await?;
        self.answer(agreed).await.map(drop)
    }

    /// The rows of one reply.
    async fn answer(&mut self, agreed: Capabilities) -> Result<Vec<rows::Row>, JoinError> {
        let mut rows = Rows::new(agreed);
        loop {
            let (_, payload) = self.packet().await?;
            match rows.packet(&payload) {
                Answer::More => {}
                Answer::Done => return Ok(rows.into_rows()),
                Answer::Malformed => return Err(self.broken("a malformed answer")),
                Answer::Refused => {
                    let report = Report::read(&payload);
                    let refused = report.map(|report| refused(self.server, &report));
                    return Err(refused.unwrap_or_else(|| self.broken("a malformed error")));
                }
            }
        }
    }
}

/// Before a server that has lost what it knew of the password everything else fails.
fn credential(shared: &Shared, pooled: &Pooled) -> Credential {
    let who = &pooled.who;
    let known = who.mysql().cloned().unwrap_or(Credential::Nothing);
    if !matches!(known, Credential::Sha2(_)) {
        return known;
    }
    let password = shared.logins.vault.password(&who.user, who.generation);
    password.map_or(known, Credential::Password)
}

fn question() -> String {
    let followed = state::FOLLOWED.join("','");
    let telling = state::TELLING.join("','");
    format!("SHOW SESSION VARIABLES WHERE Variable_name IN ('{followed}','{telling}')")
}

/// The server says why.
fn refused(server: &Server, report: &Report<'_>) -> JoinError {
    let code = ErrorCode {
        number: report.code,
        sqlstate: report.sqlstate.unwrap_or(SqlState::GENERAL).0,
    };
    let text = String::from_utf8_lossy(report.message);
    JoinError::refused(server, kind_of(report), code, &text)
}

fn kind_of(report: &Report<'_>) -> Kind {
    match report.code {
        _ if report.is_full() => Kind::Full,
        // ER_SERVER_SHUTDOWN, ER_NORMAL_SHUTDOWN, and what a node of Galera says that is not
        // ready; ER_HOST_IS_BLOCKED, which an operator ends.
        1053 | 1077 | 1047 | 1129 | 3169 => Kind::TurnedAway,
        _ => Kind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u16) -> Kind {
        let mut payload = vec![0xff];
        payload.extend_from_slice(&code.to_le_bytes());
        payload.extend_from_slice(b"#08004no");
        kind_of(&Report::read(&payload).unwrap())
    }

    #[test]
    fn a_server_that_is_full_or_going_is_no_refusal_of_the_user() {
        for full in [1040, 1203, 1226] {
            assert_eq!(kind(full), Kind::Full, "{full}");
        }
        for away in [1053, 1047, 1129] {
            assert_eq!(kind(away), Kind::TurnedAway, "{away}");
        }
        for refused in [1044, 1045, 1130, 1698, 1862, 3118, 4151] {
            assert_eq!(kind(refused), Kind::Refused, "{refused}");
        }
    }

    #[test]
    fn a_server_that_lacks_what_clients_were_promised_does_not_serve_them() {
        let agreed = Capabilities::DEPRECATE_EOF.with(Capabilities::BULK);
        let promised = agreed.with(Capabilities::EXTENDED_METADATA);
        let missed = Some("MARIADB_CLIENT_EXTENDED_METADATA");
        assert_eq!(lacking(promised.0, agreed), missed);
        assert_eq!(lacking(agreed.0, promised), None, "more is no harm");
        let attributes = agreed.with(Capabilities::QUERY_ATTRIBUTES);
        let missed = Some("CLIENT_QUERY_ATTRIBUTES");
        assert_eq!(lacking(attributes.0, agreed), missed);
    }

    #[test]
    fn a_connection_asks_for_what_its_clients_have_and_for_nothing_that_they_may_not_have() {
        let identity = Capabilities::FOUND_ROWS.with(Capabilities::SSL);
        let with = wanted(identity.0);
        assert!(with.has(Capabilities::FOUND_ROWS) && !with.has(Capabilities::LOCAL_FILES));
        assert!(!with.has(Capabilities::SSL) && !with.has(Capabilities::CONNECT_WITH_DB));
        assert!(with.has(Capabilities::SESSION_TRACK) && !with.has(Capabilities::DEPRECATE_EOF));
        assert!(with.has(Capabilities::MULTI_STATEMENTS));
        assert!(
            !wanted(0).has(Capabilities::MULTI_RESULTS),
            "as an old client"
        );
    }
}
