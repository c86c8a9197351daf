//! Builds the snapshot of a database service for the data plane: which servers take writes and
//! reads, within which limits, and which users may log in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_config::plan::{
    Address, AuthPlan, AuthSource, Consistency, Credential, DatabasePlan, PoolMode, Protocol,
    RulePlan, RuleTo, ServicePlan, SqlProtocol, TlsPlan,
};
use evenkeel_policy::cluster::Role;
use evenkeel_policy::failover_queue::PrimaryStatus;
use evenkeel_policy::server_set::{Member, ServerSet};
use evenkeel_policy::{causality, connection_pool, failover_queue, route};
use evenkeel_proxy::database::{
    self, Auth, ConnectionLimits, DatabaseService, DatabaseSnapshot, FileCredential, FileUser,
    LoginLimits, TimeLimits,
};
use evenkeel_proxy::server_info::ServerInfo;
use evenkeel_proxy::{Server, Service, protocol_state};
use evenkeel_tls::{
    Acceptor, AlpnProtocol, Authorities, Connector, ServerEncryption, SetupError, TlsIdentity,
};
use zeroize::Zeroizing;

use crate::control_plane::ControlPlane;
use crate::control_plane::cluster::needs_roles;
use crate::control_plane::eligibility::RoleView;
use crate::control_plane::http;
use crate::control_plane::server::MonitorConfig;
use crate::control_plane::service::ManagedService;

/// Idle limit of server connections that remain for the last sessions of a service.
const IDLE_MS_WHILE_DRAINING: u64 = 1_000;

/// Returns the state that the workers of a new service share.
pub(in crate::control_plane) fn new_database(
    plan: &DatabasePlan,
    workers: usize,
    server_info: &Arc<ServerInfo>,
) -> Arc<DatabaseService> {
    let database = DatabaseService::new(
        workers,
        Arc::clone(server_info),
        pool_settings(plan),
        failover_settings(plan),
        protocol_state(plan.protocol),
    );
    database.set_digests_max(digests_max(plan));
    database.set_login_limits(login_limits(plan));
    Arc::new(database)
}

fn digests_max(plan: &DatabasePlan) -> usize {
    usize::try_from(plan.digests_max).unwrap_or(usize::MAX)
}

fn login_limits(plan: &DatabasePlan) -> LoginLimits {
    LoginLimits {
        total: plan.logins_at_once,
        per_address: plan.logins_per_address,
    }
}

fn pool_settings(plan: &DatabasePlan) -> connection_pool::PoolSettings {
    let pool = &plan.pool;
    connection_pool::PoolSettings {
        min_idle: pool.min_idle,
        idle_ms: pool.idle_ms,
        lifetime_ms: pool.lifetime_ms,
        wait_ms: pool.wait_ms,
        queue_length: usize::try_from(pool.queue_length).unwrap_or(usize::MAX),
        // Moving a connection between workers costs more than a few milliseconds of waiting.
        cross_worker_wait_ms: 5,
        ..connection_pool::PoolSettings::default()
    }
}

fn failover_settings(plan: &DatabasePlan) -> failover_queue::FailoverSettings {
    let failover = &plan.failover;
    failover_queue::FailoverSettings {
        wait_ms: failover.wait_ms,
        queue_length: usize::try_from(failover.queue_length).unwrap_or(usize::MAX),
        resume_at_once: usize::try_from(failover.resume_at_once).unwrap_or(usize::MAX),
    }
}

/// Closes unused connections soon, for a service that accepts no new clients.
pub(in crate::control_plane) fn shrink_pools(service: &ManagedService) {
    let plan = service.plan.database();
    if let (Some(shared), Some(plan)) = (service.service.database(), plan) {
        shared.set_settings(shrunk(pool_settings(plan)), failover_settings(plan));
    }
    if let (Some(shared), Some(plan)) = (service.service.http(), service.plan.http()) {
        shared.set_pool_settings(shrunk(http::pool_settings(plan)));
        shared.set_draining(true);
    }
}

fn shrunk(settings: connection_pool::PoolSettings) -> connection_pool::PoolSettings {
    connection_pool::PoolSettings {
        min_idle: 0,
        idle_ms: IDLE_MS_WHILE_DRAINING,
        ..settings
    }
}

impl ControlPlane {
    /// Builds the database part of a service's snapshot. `members` are those of the snapshot.
    pub(in crate::control_plane) fn database_snapshot(
        &self,
        service: &ManagedService,
        members: &[Member],
        servers: &[Arc<Server>],
    ) -> Option<DatabaseSnapshot> {
        let plan = service.plan.database()?;
        let shared = service.service.database()?;
        let loads = servers.iter().map(|one| shared.server_load(one.id));
        let loads: Vec<_> = loads.collect();
        let assigned_roles = self.role_view().assigned_roles(service, plan);
        let assignment = RoleAssignment::of(&assigned_roles, members);
        let readers = assigned_roles.iter().zip(members).enumerate();
        let readers = readers.map(|(index, (assigned_role, member))| {
            let reads = match assigned_role {
                AssignedRole::Primary => {
                    is_usable(member) && (plan.split.primary_reads || may_name_primary(plan))
                }
                AssignedRole::Replica | AssignedRole::Spare | AssignedRole::None => {
                    assignment.replicas[index]
                }
            };
            Member {
                accepting: reads,
                backup: member.backup || assignment.spares[index],
                load: Arc::clone(&loads[index]),
                ..member.clone()
            }
        });
        let readers = ServerSet::new(
            service.plan.balance,
            readers.collect(),
            Arc::clone(&service.cursor),
        );
        let names = service.plan.servers.iter();
        let names = names.map(|listed| listed.name.as_str().into());
        let epoch = service
            .server_info
            .as_ref()
            .map_or(0, |known| known.epoch());
        Some(DatabaseSnapshot {
            session_mode: plan.pool.mode == PoolMode::Session,
            split: route::SplitSettings {
                reads: plan.split.reads,
                primary_reads: plan.split.primary_reads,
            },
            consistency: consistency(plan.split.consistency),
            writes_recorded_since_us: service.writes_recorded_since_us,
            causality: causality::CausalitySettings {
                wait_ms: plan.split.wait_ms,
                stale_ms: plan.split.stale_ms,
                galera_wait: plan.split.galera_wait,
            },
            connection_limits: connection_limits(plan),
            statements_max: usize::try_from(plan.pool.statements_max).unwrap_or(usize::MAX),
            time_limits: time_limits(plan),
            auth: auth(&plan.auth),
            names: names.collect(),
            primary: assignment.primary,
            epoch,
            readers,
            server_loads: loads,
            replicas: assignment.replicas,
            spares: assignment.spares,
            tls: service.acceptor.database().cloned().flatten(),
            server_encryption: self.encryption(service),
            peers: self.peers.servers(),
            rules: service.rules.clone(),
        })
    }

    /// Returns whether the servers' roles differ from those published to the data plane.
    pub(in crate::control_plane) fn has_new_assignment(&self, index: usize) -> bool {
        let service = &self.services[index];
        let (Some(plan), snapshot) = (service.plan.database(), service.service.snapshot()) else {
            return false;
        };
        let Some(published) = snapshot.database() else {
            return true;
        };
        let epoch = service
            .server_info
            .as_ref()
            .map_or(0, |known| known.epoch());
        if published.epoch != epoch || snapshot.servers.len() != service.plan.servers.len() {
            return true;
        }
        let assignment = RoleAssignment::of(
            &self.role_view().assigned_roles(service, plan),
            snapshot.pool.members(),
        );
        (published.primary, &published.replicas, &published.spares)
            != (assignment.primary, &assignment.replicas, &assignment.spares)
    }

    /// Returns how connections to each server are encrypted, including removed servers, on which
    /// the last statements may have to be canceled.
    pub(in crate::control_plane) fn encryption(
        &self,
        service: &ManagedService,
    ) -> HashMap<u64, ServerEncryption> {
        let listed = service.plan.servers.iter();
        let listed = listed.filter_map(|one| Some(&self.servers.get(&one.address)?.server));
        let removals = self.removals.iter();
        let removals = removals.filter(|removal| removal.service.id == service.service.id);
        let servers = listed.chain(removals.filter_map(|removal| removal.server.as_ref()));
        let encryption = servers.map(|server| (server.id, encryption(&service.plan, server)));
        encryption.collect()
    }

    /// Publishes the primary of services whose servers are not queried for their roles: no report
    /// announces its return, so waiting sessions retry periodically.
    pub(in crate::control_plane) fn set_unmonitored_status(&self) {
        for managed in self.services.iter().filter(|one| !needs_roles(&one.plan)) {
            set_primary_status(&managed.service);
        }
    }

    /// Applies the parts of a changed plan that are not in the snapshot.
    pub(in crate::control_plane) fn adopt_protocol_plan(&self, service: &ManagedService) {
        let plan = service.plan.database();
        if let (Some(shared), Some(plan)) = (service.service.database(), plan) {
            shared.set_settings(pool_settings(plan), failover_settings(plan));
            shared.set_digests_max(digests_max(plan));
            shared.set_login_limits(login_limits(plan));
            self.data_plane
                .limit_pools(&service.service, unlimited(plan.pool.service_size));
        }
        if let (Some(shared), Some(plan)) = (service.service.http(), service.plan.http()) {
            shared.set_pool_settings(http::pool_settings(plan));
            shared.set_draining(false);
        }
    }
}

impl RoleView<'_> {
    /// Returns each server's role in a service, in the order of the configuration.
    fn assigned_roles(&self, service: &ManagedService, plan: &DatabasePlan) -> Vec<AssignedRole> {
        let listed = service.plan.servers.iter();
        let assigned_role = |address| self.assigned_role(service, address, plan.split.lag_ms_max);
        listed.map(|one| assigned_role(&one.address)).collect()
    }

    fn assigned_role(
        &self,
        service: &ManagedService,
        address: &Address,
        lag_ms_max: Option<u64>,
    ) -> AssignedRole {
        let Some(cluster) = self.clusters.of(address) else {
            // A service's only server is not queried for its role.
            return match service.plan.servers.len() {
                1 => AssignedRole::Primary,
                _ => AssignedRole::None,
            };
        };
        let Some(state) = self.servers.get(address) else {
            return AssignedRole::None;
        };
        match cluster.effective_role(state.server.id) {
            Role::Primary => AssignedRole::Primary,
            Role::Replica(lag)
                if lag_ms_max.is_none_or(|max| lag.ms.is_some_and(|ms| ms <= max)) =>
            {
                AssignedRole::Replica
            }
            // The lag of a spare is unknown.
            Role::Spare(_) if lag_ms_max.is_none() => AssignedRole::Spare,
            _ => AssignedRole::None,
        }
    }
}

/// Notifies the data plane whether there is a primary. Sessions that wait for one continue.
pub(in crate::control_plane) fn set_primary_status(service: &Service) {
    let Some(shared) = service.database() else {
        return;
    };
    let snapshot = service.snapshot();
    let has_primary = snapshot.database().is_some_and(|own| own.primary.is_some());
    shared.set_primary_status(match has_primary {
        true => PrimaryStatus::Available,
        false => PrimaryStatus::Unavailable,
    });
}

/// Returns whether a rule may send reads to a primary that otherwise serves none. The data plane
/// limits those to the rule.
fn may_name_primary(plan: &DatabasePlan) -> bool {
    let names = |rule: &RulePlan| matches!(rule.to, Some(RuleTo::Any | RuleTo::Servers(_)));
    plan.rules.iter().any(names)
}

/// Role of a server in a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssignedRole {
    Primary,
    Replica,
    /// A replica that serves reads only if no other replica can, since it may lag.
    Spare,
    None,
}

/// Assignment of writes and reads, by index of the server.
struct RoleAssignment {
    primary: Option<usize>,
    /// Replicas that serve reads, including spares in use.
    replicas: Vec<bool>,
    spares: Vec<bool>,
}

impl RoleAssignment {
    /// Assigns the roles. `members` are the service's, in the same order.
    fn of(assigned_roles: &[AssignedRole], members: &[Member]) -> RoleAssignment {
        let pairs = || assigned_roles.iter().copied().zip(members);
        let matching = |wanted: AssignedRole| {
            pairs().map(move |(assigned_role, member)| assigned_role == wanted && is_usable(member))
        };
        let has_replica = matching(AssignedRole::Replica).any(|matches| matches);
        let spares: Vec<bool> = matching(AssignedRole::Spare)
            .map(|is| is && !has_replica)
            .collect();
        let replicas = matching(AssignedRole::Replica).zip(&spares);
        RoleAssignment {
            // A drained server takes no new work, even if it is the primary.
            primary: pairs().position(|(assigned_role, member)| {
                assigned_role == AssignedRole::Primary && member.accepting
            }),
            replicas: replicas.map(|(is, is_spare)| is || *is_spare).collect(),
            spares,
        }
    }
}

fn is_usable(member: &Member) -> bool {
    member.accepting && member.weight > 0
}

/// Returns the TLS settings towards clients. `None`: off.
pub(in crate::control_plane) fn acceptor(
    plan: Option<&TlsPlan>,
) -> Result<Option<Arc<Acceptor>>, SetupError> {
    let Some(plan) = plan else { return Ok(None) };
    let certificate = plan.certificate.text.expose().as_bytes();
    let key = plan.key.text.expose().as_bytes();
    let identity = TlsIdentity::from_pem("[service.tls]", certificate, key)?;
    let authorities = plan.client_ca.as_ref().map(|ca| {
        let text = ca.text.expose().as_bytes();
        Authorities::from_pem(text)
    });
    let authorities = authorities.transpose()?;
    let acceptor = Acceptor::new(&identity, authorities.as_ref(), plan.required)?;
    Ok(Some(Arc::new(acceptor)))
}

fn encryption(plan: &ServicePlan, server: &Server) -> ServerEncryption {
    let address = server.name.parse::<Address>();
    let address = address.map_err(|error| error.message);
    match address.and_then(|address| connector(plan, &address)) {
        Ok(Some(connector)) => ServerEncryption::Encrypted(connector),
        Ok(None) => ServerEncryption::Plaintext,
        Err(why) => {
            tracing::error!(server = %server.name, "cannot set up TLS, not connecting to this \
                                                    server: {why}");
            ServerEncryption::Broken(why)
        }
    }
}

/// Returns the TLS settings towards a server. `None`: off.
pub(in crate::control_plane) fn connector(
    plan: &ServicePlan,
    address: &Address,
) -> Result<Option<Connector>, String> {
    let config = MonitorConfig::of(plan);
    let tls = match &plan.protocol {
        Protocol::Http(_) => config.http_tls(address)?,
        Protocol::Sql(_) | Protocol::Tcp => config.tls(address)?,
    };
    Connector::new(&tls, alpn_protocol(&plan.protocol)).map_err(|error| error.to_string())
}

fn alpn_protocol(protocol: &Protocol) -> AlpnProtocol {
    match protocol.database().map(|database| database.protocol) {
        Some(SqlProtocol::Postgres) => AlpnProtocol::Postgres,
        Some(SqlProtocol::Mysql) | None => AlpnProtocol::Unnamed,
    }
}

pub(in crate::control_plane) fn unlimited(size: u32) -> u32 {
    if size == 0 { u32::MAX } else { size }
}

fn connection_limits(plan: &DatabasePlan) -> ConnectionLimits {
    let pool = &plan.pool;
    let named = |of: &std::collections::BTreeMap<String, u32>| {
        let sizes = of.iter();
        sizes
            .map(|(name, size)| (name.clone(), unlimited(*size)))
            .collect()
    };
    ConnectionLimits {
        pool: pool.size,
        service: unlimited(pool.service_size),
        user: unlimited(pool.user_size),
        database: unlimited(pool.database_size),
        users: named(&pool.users),
        databases: named(&pool.databases),
    }
}

fn time_limits(plan: &DatabasePlan) -> TimeLimits {
    let times = &plan.times;
    TimeLimits {
        query: Duration::from_millis(times.query_timeout_ms),
        transaction: Duration::from_millis(times.transaction_timeout_ms),
        idle_in_transaction: Duration::from_millis(times.idle_in_transaction_timeout_ms),
        login: Duration::from_millis(times.login_timeout_ms),
        login_server_wait: Duration::from_millis(plan.failover.wait_ms),
    }
}

fn consistency(wanted: Consistency) -> causality::Consistency {
    match wanted {
        Consistency::ReadYourWrites => causality::Consistency::ReadYourWrites,
        Consistency::Global => causality::Consistency::Global,
        Consistency::Eventual => causality::Consistency::Eventual,
    }
}

fn auth(plan: &AuthPlan) -> Auth {
    let secret =
        |secret: &evenkeel_config::plan::Secret| Zeroizing::new(secret.expose().to_owned());
    let users = plan.users.iter().map(|(name, user)| {
        let credential = user.credential.as_ref().map(|credential| match credential {
            Credential::Password(password) => FileCredential::Password(secret(password)),
            Credential::Scram(text) | Credential::Md5(text) | Credential::Mysql(text) => {
                FileCredential::Verifier(secret(text))
            }
        });
        let user = FileUser {
            credential,
            certificate: user.certificate,
            cleartext: user.cleartext,
            server_user: user.server_user.clone(),
            server_password: user.server_password.as_ref().map(secret),
        };
        (name.clone(), user)
    });
    Auth {
        source: match plan.source {
            AuthSource::Server => database::AuthSource::Server,
            AuthSource::Login => database::AuthSource::Login,
            AuthSource::File => database::AuthSource::File,
        },
        users: users.collect(),
        allow_from: plan.allow_from.clone().into_iter().collect(),
        allow_others_from: plan.allow_others_from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_policy::load::Load;

    use super::*;

    fn member(accepting: bool) -> Member {
        Member {
            id: 1,
            weight: 1,
            backup: false,
            accepting,
            load: Arc::new(Load::new(None)),
        }
    }

    fn assignment(assigned_roles: &[AssignedRole], accepting: &[bool]) -> RoleAssignment {
        let members: Vec<Member> = accepting.iter().map(|is| member(*is)).collect();
        RoleAssignment::of(assigned_roles, &members)
    }

    #[test]
    fn a_spare_reads_only_while_no_other_replica_does() {
        let assigned_roles = [
            AssignedRole::Primary,
            AssignedRole::Spare,
            AssignedRole::Replica,
        ];
        let whole = assignment(&assigned_roles, &[true, true, true]);
        assert_eq!(whole.replicas, [false, false, true]);
        assert_eq!(whole.spares, [false; 3]);
        let without = assignment(&assigned_roles, &[true, true, false]);
        assert_eq!(without.replicas, [false, true, false]);
        assert_eq!(without.spares, [false, true, false]);
        assert_eq!(without.primary, Some(0));
    }

    #[test]
    fn a_spare_that_is_down_does_not_read() {
        let alone = assignment(
            &[AssignedRole::Primary, AssignedRole::Spare],
            &[true, false],
        );
        assert_eq!(
            (alone.replicas, alone.spares),
            (vec![false; 2], vec![false; 2])
        );
    }
}
