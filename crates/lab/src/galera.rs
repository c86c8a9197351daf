//! Starts Galera clusters: MariaDB nodes that all accept writes and certify them together.

mod node;
mod state;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::mariadb::{Programs, Template};
use crate::server::Server;
use crate::sysbench::Driver;
use crate::{Lab, eventually, sbtest};
use node::Members;

const SYNC_LIMIT: Duration = Duration::from_secs(60);

/// Options of a Galera cluster.
#[derive(Clone, Copy, Debug)]
pub struct GaleraOptions {
    /// Number of nodes.
    pub nodes: usize,
    /// Rows per sysbench table; `None` creates no tables (the database `sbtest` exists, empty).
    pub sbtest_rows: Option<u32>,
    /// Number of sysbench tables.
    pub sbtest_tables: u32,
}

impl Default for GaleraOptions {
    fn default() -> GaleraOptions {
        GaleraOptions {
            nodes: 3,
            sbtest_rows: None,
            sbtest_tables: 4,
        }
    }
}

/// Nodes with the same data. Accounts as in a [`MariadbCluster`](crate::MariadbCluster).
#[derive(Clone, Debug)]
pub struct GaleraCluster {
    /// The nodes; all accept writes.
    pub nodes: Vec<Server>,
}

impl GaleraCluster {
    /// Waits until this many nodes are in the primary component, as each running one sees it.
    pub fn wait_size(&self, count: usize) -> Result<()> {
        let query = "SELECT GROUP_CONCAT(variable_value ORDER BY variable_name) \
            FROM information_schema.global_status \
            WHERE variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_ready')";
        let wanted = format!("{count},Primary,ON");
        eventually(SYNC_LIMIT, &format!("{count} nodes in the cluster"), || {
            let mut nodes = self.nodes.iter().filter(|node| node.is_reachable());
            let agreed = nodes.all(|node| node.sql(query).is_ok_and(|seen| seen == wanted));
            Ok(agreed.then_some(()))
        })
    }

    /// Waits until every running node has applied all transactions committed before the call.
    pub fn wait_synced(&self) -> Result<()> {
        for node in self.nodes.iter().filter(|node| node.is_reachable()) {
            // A read with this setting waits for all transactions that the cluster has committed.
            node.sql("SET SESSION wsrep_sync_wait=1; SELECT COUNT(*) FROM mysql.db")?;
        }
        Ok(())
    }
}

impl Lab {
    /// Starts a Galera cluster.
    ///
    /// A restarted node joins the others. If none runs, the node with the most transactions
    /// bootstraps the cluster, and the others wait for it.
    pub fn galera(&self, options: GaleraOptions) -> Result<GaleraCluster> {
        if options.nodes == 0 {
            bail!("a Galera cluster needs a node");
        }
        let members = Arc::new(Members::default());
        let installed = self.mariadb_template(Programs::wanted())?;
        let first = self.enlist_galera_node("galera-1", &installed, &members)?;
        first.start()?;
        first.sql(&self.mariadb_accounts())?;
        if let Some(rows) = options.sbtest_rows {
            sbtest::load(&first, Driver::Mysql, options.sbtest_tables, rows)?;
        }
        first.stop()?;
        let copied = Template {
            directory: first.work_dir.join(&first.name).join("data"),
            ..installed
        };
        let mut nodes = vec![first];
        for number in 2..=options.nodes {
            let name = format!("galera-{number}");
            nodes.push(self.enlist_galera_node(&name, &copied, &members)?);
        }
        nodes.iter().try_for_each(Server::start)?;
        let cluster = GaleraCluster { nodes };
        cluster.wait_size(options.nodes)?;
        Ok(cluster)
    }
}
