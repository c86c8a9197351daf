//! The door of a client that replicates: it has a connection to the primary of its own at once, and
//! is greeted with what the server says there.

use std::rc::Rc;

use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_policy::waiting::Trouble;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::startup::Replication;

use super::super::account::Account;
use super::super::complaint::Complaint;
use super::super::server::ServerConnection;
use super::credential::Proof;
use super::greeting::Greeted;
use super::{Door, Outside, Wish};
use crate::session::borrower::{Borrower, Denial};
use crate::session::card::{Card, Doing};
use crate::session::placing::At;
use crate::session::visit::{self, Guest};
use crate::state::PinSource;
use crate::state::settings::Journal;
use crate::stream::Stream;
use crate::upstream::lender::Parameters;

/// Whatever comes of its login, what is opened for it is lent to nobody else.
struct Alone<'a>(&'a Account);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.retire();
    }
}

impl Wish {
    /// What a server is told of a client that replicates: a walsender without a database takes no
    /// SET, so all must be there from the start.
    pub(super) fn for_replication(&self) -> Option<Parameters> {
        if self.replication == Replication::No {
            return None;
        }
        let is_ours =
            |name: &[u8]| matches!(name, b"user" | b"database") || name.starts_with(b"_pq_.");
        let parameters = self.parameters.iter();
        let told = parameters.filter(|(name, _)| !is_ours(name));
        Some(told.cloned().collect())
    }
}

impl Door<'_> {
    /// Logs a client that replicates in to the primary, and greets it.
    pub(super) async fn greet_replication(
        &self,
        stream: &mut Stream,
        wish: &Wish,
        proof: Proof,
    ) -> Result<Greeted, Outside> {
        let mut out = proof.last_word.clone();
        let account = self.account(wish, proof);
        let (mut guest, at) = self.own_connection(&account).await?;
        let server = guest.server.as_ref().ok_or(Outside::Gone)?;
        build::authentication_ok(&mut out);
        for (name, value) in &server.reported {
            build::parameter_status(&mut out, name, value);
        }
        let journal = self.own_journal(server);
        let key = self.end_greeting(wish, &mut out)?;
        stream.send(self.worker, &out).await?;
        let own = guest.server.take().map(|server| (server, at));
        Ok(Greeted {
            account,
            journal,
            key,
            own,
        })
    }

    async fn own_connection(
        &self,
        account: &Rc<Account>,
    ) -> Result<(Guest<'_, ServerConnection>, At), Complaint> {
        let _alone = Alone(account);
        let nobody = || Complaint::of_trouble(Trouble::NoPrimary { waited_ms: 0 });
        let found = visit::awaited_primary(self.seat.service()).await;
        let (view, primary) = found.ok_or_else(nobody)?;
        let own = view.database.as_ref().ok_or_else(nobody)?;
        let server = &view.servers[primary];
        let borrowed = visit::borrow(&self.lending, account, server, own).await;
        let guest = borrowed.map_err(|denial| self.denied(&denial))?;
        let at = At::new(&view, primary, false).ok_or_else(nobody)?;
        Ok((guest, at))
    }

    fn denied(&self, denial: &Denial) -> Complaint {
        if let Denial::NotJoined(error) = denial
            && error.is_passing()
        {
            self.shared.knowledge.doubt(error.server_id);
        }
        Complaint::of_denial(denial)
    }

    /// Its session begins with the connection that its login got.
    pub(super) fn bind(
        &self,
        (server, at): (Box<ServerConnection>, At),
        borrower: &mut Borrower<'_, ServerConnection>,
        card: &Card,
    ) -> Box<ServerConnection> {
        borrower.at = Some(at);
        card.has(&server.lent);
        card.set_pins(Pins::of(&[Pin::Replication]), |_| PinSource::default());
        card.does(Doing::Bound, self.worker);
        server
    }

    /// Nothing is followed in it but what binds.
    fn own_journal(&self, server: &ServerConnection) -> Journal {
        let told = server.settings.login().clone();
        let startup = self.worker.interner().empty();
        let mut journal = Journal::new(startup, told, &server.settings);
        journal.pins.add(Pin::Replication);
        journal
    }
}
