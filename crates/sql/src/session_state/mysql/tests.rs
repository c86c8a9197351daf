//! Tests sessions that share server connections against a model of a server.

use evenkeel_policy::pins::Pin;
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::trackers::Change;

use super::*;
use crate::session_state::settings::Interner;

mod following;
mod leaving;
mod model;
mod sharing;

use model::{Answer, Model};

const MARIADB: u32 = 101_119;

/// Clients and server connections, as in the proxy's sessions.
struct Scene {
    interner: Interner,
    observed_reads: ObservedResultReads,
    core: Vec<Lent>,
    clients: Vec<Client>,
}

struct Lent {
    model: Model,
    on: ServerSessionState,
}

struct Client {
    session_state: SessionState,
    /// Index of the server connection that the client has, or had last.
    at: usize,
    is_held: bool,
}

impl Scene {
    fn new(clients: usize, connections: usize) -> Scene {
        let interner = Interner::new();
        let core = (0..connections).map(|_| {
            let model = Model::default();
            let on = ServerSessionState::new(model.fresh(), None, &interner);
            Lent { model, on }
        });
        let core = core.collect();
        let mut scene = Scene {
            interner,
            observed_reads: ObservedResultReads::default(),
            core,
            clients: Vec::new(),
        };
        for _ in 0..clients {
            scene.join(0);
        }
        scene
    }

    fn join(&mut self, collation: u16) {
        self.join_at(MARIADB, collation);
    }

    fn join_at(&mut self, version: u32, collation: u16) {
        let begin = InitialSettings {
            collation,
            schema: Some(b"app"),
            mariadb: true,
            version,
        };
        let fresh = Model::default();
        let fresh: Vec<_> = fresh.fresh().collect();
        self.clients.push(Client {
            session_state: SessionState::new(fresh, begin, &self.interner),
            at: 0,
            is_held: false,
        });
    }

    fn is_bound(&self, client: usize) -> bool {
        !self.clients[client].session_state.pins.is_empty()
    }

    fn pins(&self, client: usize) -> String {
        self.clients[client].session_state.pins.to_string()
    }

    /// Returns the server connections that no client has.
    fn free(&self) -> Vec<usize> {
        let taken = |at: usize| {
            let mut clients = self.clients.iter();
            clients.any(|client| {
                client.at == at && (client.is_held || !client.session_state.pins.is_empty())
            })
        };
        (0..self.core.len()).filter(|at| !taken(*at)).collect()
    }

    /// Runs a client's text: on the connection that the client has, otherwise on the `any`th free
    /// one.
    fn run(&mut self, client: usize, text: &str, any: usize) -> Answer {
        let analysis = self.clients[client]
            .session_state
            .read(text.as_bytes(), None);
        self.observed_reads.note(analysis.needs);
        let needs = self.observed_reads.needs(&analysis);
        let keeps = self.clients[client]
            .session_state
            .keeps_results(&analysis, &self.observed_reads);
        let leaves = analysis.needs.is_empty() && !keeps;
        if leaves && std::mem::take(&mut self.clients[client].is_held) {
            self.ask(client);
        }
        if !self.is_bound(client) && !self.clients[client].is_held {
            let free = self.free();
            self.clients[client].at = free[any % free.len()];
            self.fit(client, needs);
        } else if !needs.is_empty() {
            self.fit(client, needs);
        }
        let answer = self.send(client, text, &analysis);
        let hold = self.clients[client]
            .session_state
            .hold(&self.observed_reads);
        self.clients[client].is_held = hold != HoldPolicy::Release;
        if hold == HoldPolicy::Release {
            self.ask(client);
        }
        answer
    }

    /// Prepares a connection for a statement that is not executed after all.
    fn give_up(&mut self, client: usize, any: usize) {
        if !self.is_bound(client) && !self.clients[client].is_held {
            let free = self.free();
            self.clients[client].at = free[any % free.len()];
            self.fit(client, ResultReads::NONE);
        }
    }

    fn fit(&mut self, client: usize, needs: ResultReads) {
        let client = &mut self.clients[client];
        let Lent { model, on } = &mut self.core[client.at];
        let mut sql = Vec::new();
        let SettingsDiff::Put { schema } =
            settings_diff(on, &mut client.session_state, needs, &mut sql)
        else {
            return;
        };
        if let Some(schema) = schema {
            let name = String::from_utf8(schema.into_vec()).unwrap();
            hear(&model.run(&format!("USE {name}")), on, None, &self.interner);
        }
        if client.session_state.must_count() {
            model.run("SELECT 0 LIMIT 0");
        }
        if !sql.is_empty() {
            let sql = String::from_utf8(sql).unwrap();
            let answer = model.run(&sql);
            assert_eq!(answer.error, None, "{sql}");
            hear(&answer, on, None, &self.interner);
        }
        client.session_state.restored(on, &self.interner);
    }

    fn send(&mut self, client: usize, text: &str, analysis: &TextAnalysis) -> Answer {
        let Client {
            session_state, at, ..
        } = &mut self.clients[client];
        let Lent { model, on } = &mut self.core[*at];
        session_state.sent(analysis, on);
        let answer = model.run(text);
        hear(&answer, on, Some(&mut *session_state), &self.interner);
        let mut status = None;
        match answer.error {
            Some(code) => session_state.failed(analysis, code, on),
            None => {
                let reply = StatementReply {
                    status: answer.status,
                    insert_id: answer.insert_id,
                    warnings: answer.warnings,
                    has_trackers: true,
                    is_result: false,
                    value: Some(true),
                };
                status = Some(answer.status);
                session_state.succeeded(analysis, 0, &reply, on, &self.interner);
            }
        }
        session_state.ready(status, on, &self.interner);
        answer
    }

    /// Queries the server for state that only it knows, before the connection is released.
    fn ask(&mut self, client: usize) {
        let pins = self.clients[client].session_state.pins;
        let is_open = |pin: &Pin| matches!(pin, Pin::Settings | Pin::InsertId);
        if !pins.iter().all(|pin| is_open(&pin)) {
            return;
        }
        let Client {
            session_state, at, ..
        } = &mut self.clients[client];
        let Lent { model, on } = &mut self.core[*at];
        let Some(question) = session_state.state_query(&self.observed_reads) else {
            return;
        };
        let answer = model.run(str::from_utf8(question.text()).unwrap());
        assert_eq!(answer.error, None);
        hear(&answer, on, Some(&mut *session_state), &self.interner);
        session_state.query_answered(on, &self.interner);
    }
}

fn hear(
    answer: &Answer,
    on: &mut ServerSessionState,
    session_state: Option<&mut SessionState>,
    interner: &Interner,
) {
    let changes = || {
        let variables = answer.variables.iter().map(|(name, value)| {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            Change::Variable { name, value }
        });
        let schema = answer.schema.iter();
        variables.chain(schema.map(|name| Change::Schema(name.as_bytes())))
    };
    changes().for_each(|change| on.record_report(&change, interner));
    if let Some(session_state) = session_state {
        changes().for_each(|change| session_state.record_report(&change, interner));
    }
}

fn status(in_transaction: bool, autocommit: bool) -> Status {
    let mut status = Status::default();
    if in_transaction {
        status = status.with(Status::IN_TRANSACTION);
    }
    if autocommit {
        status = status.with(Status::AUTOCOMMIT);
    }
    status
}
