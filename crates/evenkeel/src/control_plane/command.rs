//! Executes operator commands at run time: drain, undrain, weight, reload.

use std::sync::Arc;

use evenkeel_config::plan::{Address, ServerPlan, ServicePlan};
use evenkeel_engine::clock::now_ms;

use super::ControlPlane;
use super::server::Drain;
use super::timeline::NewEvent;
use super::upgrade::UpgradeRequest;
use super::watchdog::counted;
use crate::acme::Revocation;
use crate::status::{Command, EventKind, Reply, Request, ServiceState, Severity};

/// Largest weight, as in the configuration file.
const WEIGHT_MAX: u32 = 256;

impl ControlPlane {
    /// Executes a request of the admin endpoint and sends the reply. A client that no longer waits
    /// for the reply is not an error.
    pub(super) async fn answer(&mut self, request: Request) {
        match request {
            Request::Status(selection, answer) => {
                let _ = answer.send(Arc::new(self.status(&selection)));
            }
            Request::Events { after, answer } => {
                let _ = answer.send(self.timeline.after(after));
            }
            Request::Connections { service, answer } => self.send_connections(&service, answer),
            Request::Digests { service, answer } => {
                let _ = answer.send(self.digests(&service));
            }
            Request::Explain { question, answer } => {
                let _ = answer.send(self.explain(&question));
            }
            Request::Open {
                service,
                database,
                answer,
            } => {
                let _ = answer.send(self.open_connections(&service, database.as_deref()));
            }
            Request::Upgrade {
                binary,
                limit_ms,
                end_draining,
                answer,
            } => self.upgrade(UpgradeRequest {
                binary,
                limit_ms,
                end_draining,
                answer,
            }),
            Request::Revoke {
                name,
                reason,
                orders_again,
                answer,
            } => self.acme.revoke(Revocation {
                name,
                reason,
                orders_again,
                answer,
            }),
            Request::Command(command, answer) => {
                let reply = self.carry_out(command).await;
                let _ = answer.send(reply);
            }
        }
    }

    async fn carry_out(&mut self, command: Command) -> Reply {
        let unchanged = matches!(
            &command,
            Command::Pause { service, database } if self.is_paused(service, database.as_deref())
        );
        let done = match command {
            Command::Reload => return self.reload().await,
            Command::Drain { server, limit_ms } => self.drain(&server, limit_ms),
            Command::Undrain { server } => self.undrain(&server),
            Command::Weight { server, weight } => self.set_weight(&server, weight),
            Command::Primary { server, clear } => self
                .find(&server)
                .and_then(|found| self.override_primary(&found.address, clear)),
            Command::Pause { service, database } => {
                self.pause_service(&service, database.as_deref())
            }
            Command::Resume { service, database } => {
                self.resume_service(&service, database.as_deref())
            }
            Command::Reconnect { service, database } => {
                self.reconnect_service(&service, database.as_deref())
            }
            Command::Kill { service, which } => self.kill_clients(&service, &which).await,
        };
        match done {
            Ok(message) => {
                let what = format!("operator command: {message}");
                self.record_event(NewEvent::new(EventKind::Command, Severity::Info, what));
                Reply {
                    unchanged,
                    ..Reply::done(message)
                }
            }
            Err(message) => Reply::failed(message),
        }
    }

    fn drain(&mut self, wanted: &str, limit_ms: Option<u64>) -> Result<String, String> {
        let found = self.find(wanted)?;
        let limit_ms = limit_ms.unwrap_or(found.drain_limit_ms);
        let address = found.address;
        let Some(state) = self.servers.get_mut(&address) else {
            return Err(unknown(wanted));
        };
        let since_ms = now_ms();
        let until_ms = since_ms.saturating_add(limit_ms);
        state.drain = Some(Drain {
            since_ms,
            until_ms,
            cut_again_ms: None,
        });
        let sessions = state.server.load.active();
        self.publish_all_with(&address);
        self.part_from(&address);
        Ok(format!(
            "{address} is draining; {} still open, closing them in {limit_ms} ms at the latest{}",
            counted(sessions as usize, "session"),
            self.down_without(&address)
        ))
    }

    /// Returns a warning, to be appended to a message, that names the services of a server in which
    /// no server accepts clients. Returns nothing if there is none.
    fn down_without(&self, address: &Address) -> String {
        let listing = self.servers.listed_by(address).iter();
        let listing = listing.map(|index| &self.services[*index]);
        let down = listing.filter(|service| service.state == ServiceState::Down);
        let names: Vec<_> = down.map(|service| service.plan.name.as_str()).collect();
        match &names[..] {
            [] => String::new(),
            [name] => format!("; warning: no server of service {name} accepts clients now"),
            names => format!(
                "; warning: no server of services {} accepts clients now",
                names.join(", ")
            ),
        }
    }

    fn undrain(&mut self, wanted: &str) -> Result<String, String> {
        let address = self.find(wanted)?.address;
        let Some(state) = self.servers.get_mut(&address) else {
            return Err(unknown(wanted));
        };
        if state.drain.take().is_none() {
            return Ok(format!("{address} was not draining"));
        }
        state.back_since_ms = Some(now_ms());
        self.publish_all_with(&address);
        Ok(format!("{address} accepts new clients again"))
    }

    fn set_weight(&mut self, wanted: &str, weight: u32) -> Result<String, String> {
        if weight > WEIGHT_MAX {
            return Err(format!(
                "weight {weight} exceeds the maximum of {WEIGHT_MAX}"
            ));
        }
        let found = self.find(wanted)?;
        for index in found.services {
            let service = &mut self.services[index];
            let listed = service.listed(&found.address);
            if listed.is_some_and(|listed| listed.weight == weight) {
                service.weights.remove(&found.address);
            } else {
                service.weights.insert(found.address.clone(), weight);
            }
            self.publish(index);
        }
        Ok(format!(
            "{} has weight {weight} until it is changed again or the process exits",
            found.address
        ))
    }

    /// Finds a server by name or address, optionally as `service/server`.
    fn find(&self, wanted: &str) -> Result<Found, String> {
        let services = self.services.iter().enumerate();
        let all = services.flat_map(|(index, service)| {
            let servers = service.plan.servers.iter();
            servers.map(move |server| (index, &service.plan, server))
        });
        let named: Vec<_> = all
            .filter(|(_, service, server)| is_called(service, server, wanted))
            .collect();
        let Some((_, service, first)) = named.first() else {
            return Err(unknown(wanted));
        };
        if named
            .iter()
            .any(|(.., other)| other.address != first.address)
        {
            let names = named.iter();
            let names: Vec<_> = names
                .map(|(_, service, server)| format!("{}/{}", service.name, server.name))
                .collect();
            let names = names.join(", ");
            return Err(format!("{wanted:?} is ambiguous, use one of: {names}"));
        }
        Ok(Found {
            address: first.address.clone(),
            services: named.iter().map(|(index, ..)| *index).collect(),
            drain_limit_ms: service.drain_limit_ms,
        })
    }
}

fn is_called(service: &ServicePlan, server: &ServerPlan, wanted: &str) -> bool {
    let of_service = wanted.strip_prefix(&*service.name);
    let of_service = of_service.and_then(|rest| rest.strip_prefix('/'));
    let is_called = |name: &str| name == wanted || Some(name) == of_service;
    is_called(&server.name) || is_called(&server.address.to_string())
}

/// A server, and the indexes of the services that it was found in.
struct Found {
    address: Address,
    services: Vec<usize>,
    drain_limit_ms: u64,
}

fn unknown(wanted: &str) -> String {
    format!("no server named {wanted:?}, see `evenkeel status`")
}
