//! Starts MySQL Group Replication in single-primary mode; the group elects the primary.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::mysql::{Mysql, accounts};
use crate::server::{Kind, Role, Server};
use crate::sysbench::Driver;
use crate::{Lab, eventually, free_port, sbtest};

const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

/// Limit for a member to join. A group detects a killed member after five seconds, and a join
/// request at a bad moment gets no answer for a minute.
const JOIN_LIMIT: Duration = Duration::from_secs(150);

const SETTINGS: &[&str] = &[
    "--plugin-load-add=group_replication.so",
    "--group-replication-start-on-boot=OFF",
    "--group-replication-recovery-use-ssl=ON",
    "--group-replication-ip-allowlist=127.0.0.0/8,10.77.0.0/16",
    // A member that is suspected for five seconds is expelled immediately.
    "--group-replication-member-expel-timeout=0",
    // Writes are rejected until the group allows them.
    "--super-read-only=ON",
];

const OWN_STATE: &str = "SELECT member_state FROM performance_schema.replication_group_members \
    WHERE member_id = @@server_uuid";
const IS_PRIMARY: &str = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
    WHERE member_id = @@server_uuid AND member_state = 'ONLINE' AND member_role = 'PRIMARY' \
    AND NOT @@super_read_only";

const SIZE: &str = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
    WHERE member_state = 'ONLINE'";

/// Options of a group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Number of members; three survive the loss of one.
    pub nodes: usize,
    /// Rows per sysbench table; `None` creates no tables (the database `sbtest` exists, empty).
    pub sbtest_rows: Option<u32>,
    /// Number of sysbench tables.
    pub sbtest_tables: u32,
}

impl Default for GroupOptions {
    fn default() -> GroupOptions {
        GroupOptions {
            nodes: 3,
            sbtest_rows: None,
            sbtest_tables: 4,
        }
    }
}

/// The members of a group, in the order in which they joined. A restarted member joins again. The
/// first one started after all have ended bootstraps the group: it should be the last primary.
#[derive(Clone, Debug)]
pub struct GroupReplication {
    /// All members.
    pub members: Vec<Server>,
}

impl GroupReplication {
    /// Returns the member that accepts writes; the first one if several claim to.
    pub fn primary(&self) -> Option<Server> {
        self.primaries().into_iter().next()
    }

    /// Returns all members that claim to accept writes.
    pub fn primaries(&self) -> Vec<Server> {
        let claims = |server: &&Server| {
            server.is_reachable() && server.sql(IS_PRIMARY).is_ok_and(|count| count == "1")
        };
        self.members.iter().filter(claims).cloned().collect()
    }

    /// Waits until a member accepts writes.
    pub fn wait_primary(&self, limit: Duration) -> Result<Server> {
        eventually(limit, "a primary of the group", || Ok(self.primary()))
    }

    /// Waits until this many members are in the group, as each running one sees it.
    pub fn wait_size(&self, count: usize) -> Result<()> {
        let wanted = count.to_string();
        eventually(
            CATCH_UP_LIMIT,
            &format!("{count} members in the group"),
            || {
                let mut members = self.members.iter().filter(|member| member.is_reachable());
                let agreed =
                    members.all(|member| member.sql(SIZE).is_ok_and(|seen| seen == wanted));
                Ok(agreed.then_some(()))
            },
        )
    }

    /// Makes this member the group's primary, without losing a write.
    pub fn make_primary(&self, member: &Server) -> Result<()> {
        let id = member.sql("SELECT @@server_uuid")?;
        member.sql(&format!("SELECT group_replication_set_as_primary('{id}')"))?;
        let what = format!("{} as primary", member.name);
        eventually(CATCH_UP_LIMIT, &what, || {
            Ok((member.sql(IS_PRIMARY)? == "1").then_some(()))
        })
    }

    /// Waits until every running member has applied all previous writes of the primary.
    pub fn wait_caught_up(&self) -> Result<()> {
        let primary = self.primary().context("the group has no primary")?;
        let position = primary.sql("SELECT REPLACE(@@gtid_executed, '\\n', '')")?;
        let has_it = format!("SELECT GTID_SUBSET('{position}', @@gtid_executed)");
        for member in self.members.iter().filter(|member| member.is_running()) {
            let what = format!("{} at {position}", member.name);
            eventually(CATCH_UP_LIMIT, &what, || {
                Ok((member.sql(&has_it)? == "1").then_some(()))
            })?;
        }
        Ok(())
    }
}

impl Lab {
    /// Starts a group; returns when every member is in it and has all the data.
    pub fn group_replication(&self, options: GroupOptions) -> Result<GroupReplication> {
        let group = Arc::new(Group {
            nodes: OnceLock::new(),
            one_at_a_time: Mutex::new(()),
        });
        let mut nodes = Vec::new();
        let mut members = Vec::new();
        for number in 1..=options.nodes {
            let (node, member) = self.enlist_member(&format!("group-{number}"), &group)?;
            nodes.push(node);
            members.push(member);
        }
        group.nodes.get_or_init(|| nodes);
        let group = GroupReplication { members };
        let (first, others) = group.members.split_first().context("a group has members")?;
        first.start()?;
        first.sql(&accounts(&self.client_hosts()))?;
        others.iter().try_for_each(Server::start)?;
        if let Some(rows) = options.sbtest_rows {
            sbtest::load(first, Driver::Mysql, options.sbtest_tables, rows)?;
        }
        group.wait_caught_up()?;
        Ok(group)
    }

    fn enlist_member(&self, name: &str, group: &Arc<Group>) -> Result<(GroupNode, Server)> {
        let slot = self.allocate_slot(name);
        let node = GroupNode {
            mysql: Arc::new(Mysql::new(&slot)?),
            address: SocketAddr::new(slot.address.ip(), free_port()),
        };
        let kind = Member {
            node: node.clone(),
            group: group.clone(),
        };
        let server = self.enlist_mysql(&slot, Role::Member, SETTINGS, Arc::new(kind))?;
        Ok((node, server))
    }
}

/// State shared by the members.
struct Group {
    nodes: OnceLock<Vec<GroupNode>>,
    /// Serializes starts: two concurrent members must not both bootstrap the group.
    one_at_a_time: Mutex<()>,
}

/// A member's server, and its address for the other members.
#[derive(Clone)]
struct GroupNode {
    mysql: Arc<Mysql>,
    address: SocketAddr,
}

impl GroupNode {
    fn state(&self) -> Result<String> {
        self.mysql.sql(OWN_STATE)
    }
}

struct Member {
    node: GroupNode,
    group: Arc<Group>,
}

impl Kind for Member {
    fn answers(&self) -> bool {
        self.node.mysql.answers()
    }

    fn sql(&self, statements: &str) -> Result<String> {
        self.node.mysql.sql(statements)
    }

    fn connect_command(&self) -> String {
        self.node.mysql.connect_command()
    }

    fn after_start(&self) -> Result<()> {
        let _turn = self
            .group
            .one_at_a_time
            .lock()
            .expect("no holder of the lock panics");
        let nodes = self
            .group
            .nodes
            .get()
            .context("the group is not complete")?;
        let addresses: Vec<String> = nodes.iter().map(|node| node.address.to_string()).collect();
        let address = self.node.address;
        self.sql(&format!(
            "SET GLOBAL group_replication_group_name = '{GROUP_NAME}'; \
             SET GLOBAL group_replication_local_address = '{address}'; \
             SET GLOBAL group_replication_group_seeds = '{}'",
            addresses.join(",")
        ))?;
        let is_there = |node: &GroupNode| {
            node.address != address && node.state().is_ok_and(|state| state == "ONLINE")
        };
        if nodes.iter().any(is_there) {
            self.join()
        } else {
            self.bootstrap()
        }
    }
}

/// Name of every group; groups cannot meet, because no lab knows the ports of another.
const GROUP_NAME: &str = "6c616200-0000-4000-8000-657665656e6b";

const START: &str = "START GROUP_REPLICATION USER = 'replica', PASSWORD = 'replica'";

impl Member {
    fn bootstrap(&self) -> Result<()> {
        self.sql(&format!(
            "SET GLOBAL group_replication_bootstrap_group = ON; {START}; \
             SET GLOBAL group_replication_bootstrap_group = OFF"
        ))?;
        eventually(JOIN_LIMIT, "the group's first primary", || {
            Ok((self.sql(IS_PRIMARY)? == "1").then_some(()))
        })
    }

    fn join(&self) -> Result<()> {
        let (mut refused, mut last) = (String::new(), String::new());
        let joined = eventually(JOIN_LIMIT, "joining the group", || {
            last = self.node.state()?;
            match last.as_str() {
                "ONLINE" => return Ok(Some(())),
                // The member copies missing transactions.
                "RECOVERING" => {}
                "" | "OFFLINE" | "ERROR" if self.is_missed()? => {}
                "" | "OFFLINE" | "ERROR" => {
                    if let Err(why) = self.sql(&format!("STOP GROUP_REPLICATION; {START}")) {
                        refused = format!("{why:#}");
                    }
                }
                state => bail!("a member that is {state}"),
            }
            Ok(None)
        });
        joined.with_context(|| format!("it is {last:?}; last refusal: {refused:?}"))
    }

    /// Returns whether another member still considers this one's previous incarnation a member: a
    /// join before that has ended may hang.
    fn is_missed(&self) -> Result<bool> {
        let id = self.sql("SELECT @@server_uuid")?;
        let known = format!(
            "SELECT COUNT(*) FROM performance_schema.replication_group_members \
             WHERE member_id = '{id}'"
        );
        let nodes = self.group.nodes.get().into_iter().flatten();
        let mut others = nodes.filter(|node| node.address != self.node.address);
        Ok(others.any(|node| node.mysql.sql(&known).is_ok_and(|count| count != "0")))
    }
}
