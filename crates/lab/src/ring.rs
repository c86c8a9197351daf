//! Starts a ring of MariaDB servers: each accepts writes and replicates from its predecessor.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::lab::for_each_at_once;
use crate::mariadb::Programs;
use crate::server::{Role, Server};
use crate::{Lab, eventually};

const ROUND_LIMIT: Duration = Duration::from_secs(60);

/// Options of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingOptions {
    /// Number of servers.
    pub nodes: usize,
}

impl Default for RingOptions {
    fn default() -> RingOptions {
        RingOptions { nodes: 3 }
    }
}

/// Servers in a ring. Accounts as in a [`MariadbCluster`](crate::MariadbCluster).
#[derive(Clone, Debug)]
pub struct Ring {
    /// The servers; each replicates from its predecessor, the first from the last.
    pub nodes: Vec<Server>,
}

impl Ring {
    /// Waits until every node has the writes that each had made before the call.
    pub fn wait_caught_up(&self) -> Result<()> {
        let mut most = 0;
        for node in &self.nodes {
            most = most.max(node.replication()?.received()?);
        }
        // Each round brings a node's writes at least one node further.
        for _ in &self.nodes {
            for (index, node) in self.nodes.iter().enumerate() {
                let before = &self.nodes[(index + self.nodes.len() - 1) % self.nodes.len()];
                node.wait_for(before, ROUND_LIMIT)?;
            }
        }
        let what = format!("{most} transactions on every node of the ring");
        eventually(ROUND_LIMIT, &what, || {
            for node in &self.nodes {
                if node.replication()?.applied()? < most {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }
}

impl Lab {
    /// Starts a ring, with a GTID domain and a share of the automatic ids for each node.
    pub fn ring(&self, options: RingOptions) -> Result<Ring> {
        let count = options.nodes;
        if count < 2 {
            bail!("a ring needs at least two nodes, not {count}");
        }
        let template = self.mariadb_template(Programs::wanted())?;
        let nodes = (1..=count)
            .map(|number| {
                let further = vec![
                    format!("--gtid-domain-id={number}"),
                    format!("--auto-increment-increment={count}"),
                    format!("--auto-increment-offset={number}"),
                ];
                let name = format!("ring-{number}");
                self.enlist_mariadb(&name, Role::Member, &template, further)
            })
            .collect::<Result<Vec<Server>>>()?;
        // Each node creates the accounts itself: statements about them must not replicate around
        // the ring.
        let accounts = format!("SET SESSION sql_log_bin=0; {}", self.mariadb_accounts());
        for_each_at_once(&nodes, |node| {
            node.start()?;
            node.sql(&accounts).map(|_| ())
        })?;
        for (index, node) in nodes.iter().enumerate() {
            let before = &nodes[(index + count - 1) % count];
            node.replication()?.follow(node, before)?;
        }
        Ok(Ring { nodes })
    }
}
