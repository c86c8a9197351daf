//! One machine of a pair: a network namespace with a balancer and its Keepalived.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result, bail};

use super::super::super::experiment::Target;
use super::super::super::outcome::ConfigFile;
use super::super::super::target::{self, Front, Started};
use super::super::super::topology::Topology;
use crate::keepalived::{Keepalived, KeepalivedOptions};
use crate::network::Link;
use crate::rival::Endpoint;

pub(super) struct Machine<'a> {
    target: &'a Target,
    port: u16,
    shared: Ipv4Addr,
    /// The running balancer; `None` while it does not run.
    front: Option<Box<Front>>,
    keepalived: Keepalived,
    link: Link,
    /// Keeps the servers alive until the balancer has ended.
    servers: Rc<Topology>,
}

impl<'a> Machine<'a> {
    /// Starts the balancer and Keepalived, without waiting for the address.
    pub(super) fn start(
        target: &'a Target,
        servers: &Rc<Topology>,
        (link, port): (Link, u16),
        options: &KeepalivedOptions,
    ) -> Result<Machine<'a>> {
        link.make()?;
        let mut machine = Machine {
            target,
            port,
            shared: options.shared,
            front: None,
            keepalived: Keepalived::new(options)?,
            link,
            servers: servers.clone(),
        };
        machine.come_back()?;
        Ok(machine)
    }

    pub(super) fn namespace(&self) -> PathBuf {
        self.link.namespace()
    }

    pub(super) fn front(&self) -> Option<&Front> {
        self.front.as_deref()
    }

    pub(super) fn log_tail(&self) -> String {
        self.keepalived.log_tail()
    }

    /// Cuts the network off first, so that not even a connection reset leaves it, then kills all
    /// its processes.
    pub(super) fn die(&mut self) -> Result<()> {
        self.link.cut_off()?;
        self.keepalived.kill()?;
        self.crash()
    }

    /// Kills the balancer's process as `kill -9` does, and nothing else.
    pub(super) fn crash(&mut self) -> Result<()> {
        match &self.front {
            Some(front) => front.kill(),
            None => Ok(()),
        }
    }

    /// Stops Keepalived cleanly.
    pub(super) fn hand_over(&self) -> Result<()> {
        self.keepalived.stop()
    }

    /// Restores the state after a boot: without the address, connected, with all its programs
    /// running.
    pub(super) fn come_back(&mut self) -> Result<()> {
        if !self.keepalived.is_running() {
            self.link.forget_address(self.shared);
        }
        if self.link.is_cut_off() {
            self.link.join_again()?;
        }
        if self.front().is_none_or(|front| front.pids().is_empty()) {
            self.front = None;
            self.start_balancer()?;
        }
        if !self.keepalived.is_running() {
            self.keepalived.start()?;
        }
        Ok(())
    }

    fn start_balancer(&mut self) -> Result<()> {
        let endpoint = Endpoint {
            address: SocketAddr::from((self.link.address(), self.port)),
            namespace: Some(self.link.namespace()),
        };
        let mut front = match target::start_behind(self.target, &self.servers, endpoint)? {
            Started::Front(front) => front,
            Started::Missing(why) => bail!("{why}"),
        };
        let pids = front.pids();
        let balancer = pids.first().context("the balancer ended at its start")?;
        self.keepalived.depend_on(*balancer)?;
        front.configs.push(ConfigFile {
            name: "keepalived.conf".to_owned(),
            text: self.keepalived.config().to_owned(),
        });
        self.front = Some(front);
        Ok(())
    }
}
