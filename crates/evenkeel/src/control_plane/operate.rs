//! Executes operator commands on database services: lists clients, terminates them, pauses and
//! resumes services.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_config::plan::SqlProtocol;
use evenkeel_proxy::data_plane::operate::SessionFilter;
use tokio::sync::oneshot;

use super::ControlPlane;
use super::database::{digests, report};
use super::service::ManagedService;
use crate::status::{Connections, DigestStatus, KillWhich};

/// Time limit of the workers' responses. Missing responses are left out.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Wait after a termination, which every worker executes within one iteration of its loop.
const KILL_LIMIT: Duration = Duration::from_millis(20);

impl ControlPlane {
    /// Requests the connections from the workers and replies later. The control plane continues
    /// meanwhile.
    pub(super) fn send_connections(
        &self,
        service: &str,
        answer: oneshot::Sender<Result<Connections, String>>,
    ) {
        let managed = match self.find_service(service) {
            Ok(managed) => managed,
            Err(message) => {
                let _ = answer.send(Err(message));
                return;
            }
        };
        let connections = self.connections(managed);
        tokio::spawn(async move {
            let _ = answer.send(Ok(connections.await));
        });
    }

    /// Returns the connections that the workers report within the time limit.
    fn connections(&self, managed: &ManagedService) -> impl Future<Output = Connections> + use<> {
        let plan = managed.plan.clone();
        let answers = self.data_plane.describe(managed.service.id);
        async move {
            let mut parts = Vec::new();
            let collecting = async {
                while let Ok(part) = answers.recv_async().await {
                    parts.push(part);
                }
            };
            let _ = tokio::time::timeout(ANSWER_LIMIT, collecting).await;
            report::connections(&plan, parts)
        }
    }

    /// Returns the statement digests of a service, by total time in descending order.
    pub(super) fn digests(&self, service: &str) -> Result<Vec<DigestStatus>, String> {
        self.find_service(service).map(digests::all)
    }

    /// Returns the number of open server connections to a database.
    pub(super) fn open_connections(
        &self,
        service: &str,
        database: Option<&str>,
    ) -> Result<u64, String> {
        let managed = self.find_service(service)?;
        let shared = managed.service.database();
        Ok(shared.map_or(0, |shared| shared.open_connections(database)))
    }

    pub(super) fn pause_service(
        &self,
        service: &str,
        database: Option<&str>,
    ) -> Result<String, String> {
        let managed = self.find_database(service, database)?;
        if self.upgrades.is_upgrading() {
            // Clients of the new process would not be paused.
            return Err(
                "not paused: an upgrade is in progress, and the new process would not be paused"
                    .to_owned(),
            );
        }
        self.data_plane.pause(&managed.service, database);
        let object = object_name(service, database);
        Ok(format!("{object} is paused, new transactions wait"))
    }

    /// Returns whether an operator has paused exactly this: the service, or the database.
    pub(super) fn is_paused(&self, service: &str, database: Option<&str>) -> bool {
        let managed = self.find_service(service).ok();
        let shared = managed.and_then(|managed| managed.service.database());
        let paused = shared.map(|shared| shared.paused()).unwrap_or_default();
        match database {
            Some(database) => paused.databases.contains(database),
            None => paused.all,
        }
    }

    pub(super) fn resume_service(
        &self,
        service: &str,
        database: Option<&str>,
    ) -> Result<String, String> {
        let managed = self.find_database(service, database)?;
        let object = object_name(service, database);
        if self.data_plane.resume(&managed.service, database) {
            return Ok(format!("{object} resumed"));
        }
        let database_service = managed.service.database();
        if database.is_some() && database_service.is_some_and(|shared| shared.paused().all) {
            return Err(format!(
                "service {service} is paused as a whole, not only this database: resume without a \
                 database"
            ));
        }
        Err(format!("{object} is not paused"))
    }

    pub(super) fn reconnect_service(
        &self,
        service: &str,
        database: Option<&str>,
    ) -> Result<String, String> {
        let managed = self.find_database(service, database)?;
        self.data_plane.reconnect(&managed.service, database);
        let object = object_name(service, database);
        Ok(format!(
            "server connections of {object} are closed as they become idle"
        ))
    }

    pub(super) async fn kill_clients(
        &self,
        service: &str,
        which: &KillWhich,
    ) -> Result<String, String> {
        let managed = self.find_service(service)?;
        if let KillWhich::ServerPid(pid) = which {
            check_single_server(*pid, &self.connections(managed).await)?;
        }
        let matching = match which {
            KillWhich::Client(id) => SessionFilter::Session(*id),
            KillWhich::ServerPid(pid) => SessionFilter::ServerProcess(*pid),
            KillWhich::Database(database) => SessionFilter::Database(database.clone()),
        };
        let count = self.data_plane.kill(&managed.service, &matching);
        tokio::time::sleep(KILL_LIMIT).await;
        match (which, count.get()) {
            (KillWhich::Client(id), 0) => Err(format!(
                "{service} has no client {id}, see `evenkeel clients {service}`"
            )),
            (KillWhich::ServerPid(pid), 0) => {
                Err(format!("no client of {service} uses server process {pid}"))
            }
            (_, killed) => Ok(format!("clients of {service} terminated: {killed}")),
        }
    }

    /// Returns the name of a service that an operator has paused.
    pub(super) fn paused_service(&self) -> Option<&str> {
        let is_paused = |one: &&ManagedService| {
            let shared = one.service.database();
            shared.is_some_and(|shared| !shared.paused().is_empty())
        };
        let paused = self.services.iter().find(is_paused);
        paused.map(|one| one.plan.name.as_str())
    }

    /// Returns a service, and checks that `database`, if given, can be selected alone.
    fn find_database(
        &self,
        wanted: &str,
        database: Option<&str>,
    ) -> Result<&ManagedService, String> {
        let managed = self.find_service(wanted)?;
        database.map_or(Ok(()), |name| check_database(managed, name))?;
        Ok(managed)
    }

    fn find_service(&self, wanted: &str) -> Result<&ManagedService, String> {
        let mut named = self.services.iter().filter(|one| one.plan.name == wanted);
        let Some(managed) = named.next() else {
            return Err(format!(
                "no service named {wanted:?}, see `evenkeel status`"
            ));
        };
        match managed.service.database() {
            Some(_) => Ok(managed),
            None => Err(format!(
                "service {wanted:?} uses protocol {}; only services with `protocol = \"postgres\"` \
                 or `\"mysql\"` pool server connections",
                managed.plan.protocol_info().name
            )),
        }
    }
}

/// Checks that the service has pools for each database. MySQL connections change their database
/// with each client.
fn check_database(managed: &ManagedService, database: &str) -> Result<(), String> {
    let protocol = managed.plan.database().map(|plan| plan.protocol);
    match protocol.is_none_or(SqlProtocol::fixes_database) {
        false => Err(format!(
            "service {:?} uses MySQL, whose server connections do not belong to a database: omit \
             {database:?} to act on the whole service",
            managed.plan.name
        )),
        true => Ok(()),
    }
}

fn object_name(service: &str, database: Option<&str>) -> String {
    match database {
        Some(database) => format!("database {database:?} of {service}"),
        None => service.to_owned(),
    }
}

/// Checks that a process id occurs on one server only: each server has its own ids.
fn check_single_server(pid: u32, connections: &Connections) -> Result<(), String> {
    let clients = connections.clients.iter();
    let matching = clients.filter(|one| one.server_pid == Some(pid));
    let servers: BTreeSet<&str> = matching.filter_map(|one| one.server.as_deref()).collect();
    if servers.len() <= 1 {
        return Ok(());
    }
    let servers: Vec<&str> = servers.into_iter().collect();
    let (servers, service) = (servers.join(" and "), &connections.service);
    Err(format!(
        "server process {pid} exists on {servers}: use the client id shown by `evenkeel clients \
         {service}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ClientStatus;

    #[test]
    fn a_process_is_meant_only_if_one_server_has_it() {
        let client = |server: &str, pid| ClientStatus {
            server: Some(server.to_owned()),
            server_pid: Some(pid),
            ..ClientStatus::default()
        };
        let connections = Connections {
            service: "orders".to_owned(),
            clients: vec![client("db1", 7), client("db2", 8), client("db1", 8)],
            idle: Vec::new(),
        };
        assert_eq!(check_single_server(7, &connections), Ok(()));
        assert_eq!(check_single_server(9, &connections), Ok(()));
        let error = check_single_server(8, &connections).unwrap_err();
        assert!(error.contains("8 exists on db1 and db2"), "{error}");
        assert!(error.contains("evenkeel clients orders"), "{error}");
    }
}
