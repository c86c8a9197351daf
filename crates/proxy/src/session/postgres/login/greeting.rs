//! What a client is told once it has proved who it is: what a server would tell it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_policy::lending::Condition;
use evenkeel_wire::postgres::conversation::Sending;
use evenkeel_wire::postgres::requests::Requests;
use evenkeel_wire::postgres::{TransactionStatus, build, login};

use super::super::account::Account;
use super::super::complaint::Complaint;
use super::super::join;
use super::super::server::ServerConnection;
use super::super::{Session, Stage, TEXT_LENGTH_MAX, Unit};
use super::credential::Proof;
use super::{Door, Outside, Wish};
use crate::cancel;
use crate::clock;
use crate::server::Server;
use crate::service::View;
use crate::service::database::DatabaseView;
use crate::session::card::Card;
use crate::state::settings::{self, Journal, Settings, StartupError, spelling};
use crate::stream::Stream;
use crate::upstream::join::JoinError;
use crate::upstream::lender::{Credential, Who};
use crate::upstream::lending::{Borrowed, Delivery, Lending, Place};

/// How long a server may take to tell how it greets, while there are others.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a session begins with.
pub(super) struct Greeted {
    account: Rc<Account>,
    journal: Journal,
    secret: cancel::Secret,
}

/// Waits for a connection, and is out of the line when it is dropped.
struct InLine<'a> {
    lending: &'a Rc<Lending<ServerConnection>>,
    place: Rc<Place<ServerConnection>>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.lending.leave_line(&self.place);
        if let Some(Delivery::Connection(server)) = self.place.take_late() {
            self.lending.give_back(server, Condition::Clean);
        }
    }
}

/// Any server will do: the primary if there is one, else whoever reads; and each once more, since
/// its connection may have ended while it was idle.
fn candidates(view: &View, own: &DatabaseView) -> Vec<usize> {
    let others = (0..view.servers.len()).filter(|index| own.replicas[*index]);
    let once: Vec<usize> = own.primary.into_iter().chain(others).collect();
    once.repeat(2)
}

/// Whether it is about a server that is away, starts or ends, and not about the client.
fn is_of_server(complaint: &Complaint) -> bool {
    let class = &complaint.sqlstate.0[..2];
    class == b"08" || class == b"57"
}

/// A connection that goes back whatever becomes of the login.
struct Lent<'a> {
    lending: &'a Rc<Lending<ServerConnection>>,
    server: Option<Box<ServerConnection>>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.lending.give_back(server, Condition::Unclean);
        }
    }
}

impl<'a> Door<'a> {
    /// Greets a client who has proved who it is.
    pub(super) async fn greet(
        &self,
        stream: &mut Stream,
        view: &Arc<View>,
        wish: &Wish,
        proof: Proof,
    ) -> Result<Greeted, Outside> {
        let interner = self.worker.interner();
        let parameters = wish.parameters.iter();
        let startup = settings::from_startup(
            parameters.map(|(name, value)| (&**name, &**value)),
            interner,
        )
        .map_err(|error| refused_settings(&error))?;
        let mut out = proof.last_word.clone();
        let account = self.account(wish, proof);
        let journal = self.journal(view, &account, startup).await?;
        let keyring = self.worker.shared.keyring.get().ok_or(Outside::Gone)?;
        let secret = keyring.secret();
        build::authentication_ok(&mut out);
        account.write_greeting(&journal, &mut out);
        let place = cancel::Place {
            worker: u16::try_from(self.worker.index).unwrap_or(u16::MAX),
            slot: u32::try_from(self.slot).unwrap_or(u32::MAX),
        };
        let shown = keyring.show(place, secret, wish.minor);
        let key = shown.key();
        build::backend_key_data(&mut out, key.process, key.secret);
        build::ready_for_query(&mut out, TransactionStatus::Idle);
        stream.send(self.worker, &out).await?;
        Ok(Greeted {
            account,
            journal,
            secret,
        })
    }

    fn account(&self, wish: &Wish, proof: Proof) -> Rc<Account> {
        let lender = &self.shared.lender;
        let credential = proof.credential.unwrap_or(login::Credential::Nothing);
        let who = Who {
            user: wish.user.as_str().into(),
            server_user: proof.server_user.into(),
            database: wish.database.as_str().into(),
            credential: Credential::Postgres(credential),
            generation: proof.generation,
            identity: 0,
            user_number: lender.number(wish.user.as_bytes()),
            database_number: lender.number(wish.database.as_bytes()),
        };
        self.lending.account(who, &self.shared)
    }

    /// What the client begins with; a server is asked only for what none of them has said yet.
    async fn journal(
        &self,
        view: &Arc<View>,
        account: &Rc<Account>,
        startup: Settings,
    ) -> Result<Journal, Outside> {
        if let Some(journal) = account.journal(&startup, self.worker.interner()) {
            return Ok(journal);
        }
        let own = view.database.as_ref().ok_or(Outside::Gone)?;
        let candidates = candidates(view, own);
        let mut last = Complaint::new(b"57P03", "no server can be asked: try again");
        for (place, index) in candidates.iter().enumerate() {
            // One that hangs must not keep clients out whom another one can greet.
            let patience = match place + 1 < candidates.len() {
                true => PATIENCE,
                false => own.times.login.max(PATIENCE),
            };
            let server = &view.servers[*index];
            let learnt = self.learn_at(account, (server, own), &startup, patience);
            match learnt.await {
                Ok(()) => break,
                Err(complaint) if is_of_server(&complaint) => last = complaint,
                Err(complaint) => return Err(complaint.into()),
            }
        }
        let journal = account.journal(&startup, self.worker.interner());
        journal.ok_or(Outside::Told(last))
    }

    async fn learn_at(
        &self,
        account: &Account,
        (server, view): (&Arc<Server>, &DatabaseView),
        startup: &Settings,
        patience: Duration,
    ) -> Result<(), Complaint> {
        let silent = || {
            let text = format!("server {} does not answer: try again", server.name);
            Complaint::new(b"57P03", text)
        };
        let waiting = compio::time::timeout(patience, self.wait(account, server, view));
        let server = match waiting.await {
            Ok(Ok(server)) => server,
            Ok(Err(error)) => return Err(Complaint::of_join(&error)),
            Err(_) => return Err(silent()),
        };
        let mut lent = Lent {
            lending: &self.lending,
            server: Some(server),
        };
        if let Some(server) = &mut lent.server {
            let asking = compio::time::timeout(patience, self.ask(account, server, startup));
            asking.await.unwrap_or_else(|_| Err(silent()))?;
        }
        if let Some(server) = lent.server.take() {
            self.lending.give_back(server, Condition::Clean);
        }
        Ok(())
    }

    /// Puts the settings in place on a server connection, and learns what it makes of them.
    async fn ask(
        &self,
        account: &Account,
        server: &mut ServerConnection,
        startup: &Settings,
    ) -> Result<(), Complaint> {
        let interner = self.worker.interner();
        account.learn_greeting(server);
        let told = server.settings.login().clone();
        let journal = Journal::new(startup.clone(), told, &server.settings);
        let mut sql = Vec::new();
        if let Some(wanted) = server.settings.prepare(&journal, interner, &mut sql) {
            server.run(self.worker, &[&sql]).await?;
            server.settings.placed(wanted, self.worker.interner());
        }
        account.learn(startup, &server.settings);
        Ok(())
    }

    async fn wait(
        &self,
        account: &Account,
        server: &Arc<Server>,
        view: &DatabaseView,
    ) -> Result<Box<ServerConnection>, Arc<JoinError>> {
        let in_line = InLine {
            lending: &self.lending,
            place: Place::new(),
        };
        loop {
            // It may be another one after each waiting.
            let pooled = account.pooled(server, view);
            let until_ms = match self.lending.borrow(&pooled, &in_line.place) {
                Borrowed::Now(server) => return Ok(server),
                Borrowed::Later(until_ms) => until_ms,
                Borrowed::Refused(_) if pooled.pool.is_outdated() => continue,
                Borrowed::Refused(refusal) => {
                    return Err(Arc::new(join::not_lent(refusal)));
                }
            };
            let wait = Duration::from_millis(until_ms.saturating_sub(clock::now_ms()));
            let place = &in_line.place;
            let delivered = std::future::poll_fn(|context| match place.take(context) {
                Some(delivery) => std::task::Poll::Ready(delivery),
                None => std::task::Poll::Pending,
            });
            match compio::time::timeout(wait, delivered).await {
                Ok(Delivery::Connection(server)) => return Ok(server),
                Ok(Delivery::Failed(error)) => return Err(error),
                Ok(Delivery::Again) => {}
                Err(_) => return Err(Arc::new(join::waited())),
            }
        }
    }

    /// The client is in.
    pub(super) fn enter(&self, client: Stream, greeted: Greeted) -> Session<'a> {
        let who = &greeted.account.who;
        let (user, database) = (Arc::clone(&who.user), Arc::clone(&who.database));
        let card = Card::new(
            Card::draw_id(),
            user,
            database,
            Some(greeted.secret),
            self.peer,
        );
        Session {
            worker: self.worker,
            seat: self.seat,
            live: self.live,
            shared: Arc::clone(&self.shared),
            own: Arc::clone(&self.own),
            lending: Rc::clone(&self.lending),
            account: greeted.account,
            client,
            walker: Requests::new(TEXT_LENGTH_MAX),
            passing: Sending::Forward,
            held: Vec::new(),
            goes_on: false,
            stalled: false,
            segment: 0,
            answers: Vec::new(),
            server: None,
            at: None,
            place: Place::new(),
            stage: Stage::Ready,
            resumed: None,
            names: super::super::Names::default(),
            unnamed: super::super::Unnamed::default(),
            bound: super::super::Bound::default(),
            journal: greeted.journal,
            effects: super::super::Effects::default(),
            clears: false,
            releases: false,
            leaving: false,
            in_flight: 0,
            restoring: false,
            owes_restore: false,
            drew: false,
            token: evenkeel_policy::causality::Token::new(),
            changes_catalog: false,
            changed_catalog_us: 0,
            unit: Unit::new(),
            refusal: None,
            refused_setting: ([0; 5], String::new()),
            card,
        }
    }
}

/// As servers refuse them.
fn refused_settings(error: &StartupError) -> Complaint {
    let sqlstate = match error {
        StartupError::Switch(_) | StartupError::NoValue(_) => b"42601",
        StartupError::Unreadable(_) => b"22023",
    };
    Complaint::new(sqlstate, error.to_string())
}

impl Account {
    /// What a server would report to a client with these settings.
    fn write_greeting(&self, journal: &Journal, out: &mut Vec<u8>) {
        self.with_greeting(|of_server| {
            for (name, value) in of_server {
                build::parameter_status(out, name, value);
            }
        });
        for (name, value) in journal.reported.told().iter() {
            build::parameter_status(out, spelling(name), value);
        }
    }
}
