//! Owns the servers of all services: finds them by address and id, and knows which are due.

mod schedule;

use std::collections::{BTreeSet, HashMap};

use evenkeel_config::plan::{Address, Plan};
use evenkeel_proxy::Server;

use super::history::History;
use super::server::ManagedServer;
use schedule::Schedule;

/// The servers of all services. Each address is one server, whichever services list it.
#[derive(Default)]
pub(super) struct Servers {
    /// Places of the servers. A server keeps its place until it is removed.
    places: Vec<Option<ManagedServer>>,
    by_address: HashMap<Address, usize>,
    by_id: HashMap<u64, usize>,
    /// Indices of the services that list each server, ascending.
    listed_by: Vec<Vec<usize>>,
    schedule: Schedule,
    /// Places of the servers that drain.
    draining: BTreeSet<usize>,
}

impl Servers {
    /// Returns the server at an address.
    pub(super) fn get(&self, address: &Address) -> Option<&ManagedServer> {
        self.places[*self.by_address.get(address)?].as_ref()
    }

    /// Returns the server at an address, to be changed.
    pub(super) fn get_mut(&mut self, address: &Address) -> Option<&mut ManagedServer> {
        let place = *self.by_address.get(address)?;
        self.schedule.mark(place);
        self.places[place].as_mut()
    }

    pub(super) fn contains(&self, address: &Address) -> bool {
        self.by_address.contains_key(address)
    }

    /// Returns the server with this id.
    pub(super) fn with_id(&self, id: u64) -> Option<&ManagedServer> {
        self.places[*self.by_id.get(&id)?].as_ref()
    }

    /// Returns the server with this address as text.
    pub(super) fn named(&self, address: &str) -> Option<&ManagedServer> {
        let mut servers = self.values();
        servers.find(|state| state.address.to_string() == address)
    }

    /// Returns whether a server takes new clients, whatever its role.
    pub(super) fn takes_clients(&self, address: &Address) -> bool {
        let state = self.get(address);
        state.is_some_and(ManagedServer::takes_clients)
    }

    /// Queries the roles of servers that sessions doubt.
    pub(super) fn check_roles(&self, server_ids: &BTreeSet<u64>) {
        let servers = server_ids.iter().filter_map(|id| self.with_id(*id));
        for role_task in servers.filter_map(|state| state.role_task.as_ref()) {
            role_task.request_check();
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &ManagedServer> {
        self.places.iter().flatten()
    }

    /// Returns all servers, to be changed.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut ManagedServer> {
        self.schedule.mark_all(self.places.len());
        self.places.iter_mut().flatten()
    }

    /// Returns the history of each server, to be changed. That changes no due time.
    pub(super) fn histories_mut(&mut self) -> impl Iterator<Item = (&Server, &mut History)> {
        let servers = self.places.iter_mut().flatten();
        servers.map(|one| (&*one.server, &mut one.history))
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Adds new servers.
    pub(super) fn extend(&mut self, new: impl IntoIterator<Item = ManagedServer>) {
        let free = |(place, one): (usize, &Option<_>)| one.is_none().then_some(place);
        let mut free: Vec<usize> = self.places.iter().enumerate().filter_map(free).collect();
        free.reverse();
        for server in new {
            let place = free.pop().unwrap_or_else(|| {
                self.places.push(None);
                self.places.len() - 1
            });
            self.by_address.insert(server.address.clone(), place);
            self.by_id.insert(server.server.id, place);
            self.places[place] = Some(server);
            self.schedule.mark(place);
        }
    }

    /// Removes the servers that the plan does not list, and records which of its services list the
    /// others.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        self.listed_by = vec![Vec::new(); self.places.len()];
        for (index, service) in plan.services.iter().enumerate() {
            for listed in &service.servers {
                if let Some(place) = self.by_address.get(&listed.address)
                    && self.listed_by[*place].last() != Some(&index)
                {
                    self.listed_by[*place].push(index);
                }
            }
        }
        for (place, services) in self.listed_by.iter().enumerate() {
            if services.is_empty()
                && let Some(removed) = self.places[place].take()
            {
                self.by_address.remove(&removed.address);
                self.by_id.remove(&removed.server.id);
                self.schedule.mark(place);
            }
        }
    }

    /// Returns the indices of the services that list a server, ascending.
    pub(super) fn listed_by(&self, address: &Address) -> &[usize] {
        let place = self.by_address.get(address);
        let services = place.and_then(|place| self.listed_by.get(*place));
        services.map_or(&[], Vec::as_slice)
    }

    /// Returns the time at which the next server is due.
    pub(super) fn next_due_ms(&mut self, now_ms: u64) -> Option<u64> {
        self.update_schedule(now_ms);
        self.schedule.next_ms()
    }

    /// Returns the addresses of the servers that are due.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<Address> {
        self.update_schedule(now_ms);
        let due = self.schedule.take_due(now_ms);
        let servers = due
            .into_iter()
            .filter_map(|place| self.places[place].as_ref());
        servers.map(|server| server.address.clone()).collect()
    }

    /// Returns the addresses of the servers that drain.
    pub(super) fn draining(&self) -> Vec<Address> {
        let servers = self.draining.iter();
        let servers = servers.filter_map(|place| self.places[*place].as_ref());
        servers.map(|server| server.address.clone()).collect()
    }

    /// Enters the servers that may have changed at their next due time.
    fn update_schedule(&mut self, now_ms: u64) {
        for place in self.schedule.take_marked() {
            let server = self.places[place].as_ref();
            let due_ms = server.map(|server| server.next_due_ms(now_ms));
            self.schedule.set(place, due_ms);
            match server.is_some_and(|server| server.drain.is_some()) {
                true => self.draining.insert(place),
                false => self.draining.remove(&place),
            };
        }
    }
}
