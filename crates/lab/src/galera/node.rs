//! Starts one node of a Galera cluster, which joins or bootstraps the cluster.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result, bail};

use super::state::{self, Position};
use crate::lab::ServerSlot;
use crate::mariadb::{self, Client, Programs, Template};
use crate::process::{self, Launch, Process};
use crate::program::Program;
use crate::server::{Kind, Role, Server};
use crate::{Lab, eventually, free_port, procfs};

const LIBRARY: &str = "/usr/lib/galera/libgalera_smm.so";
/// Limit for a node to wait for others that start or have more transactions.
const TURN_LIMIT: Duration = Duration::from_secs(60);
/// Time after which a starting node is waited for no longer.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The nodes of one cluster.
#[derive(Default)]
pub(super) struct Members {
    all: Mutex<Vec<Arc<Member>>>,
    /// Node that is starting, and since when. Nodes that join sequentially are faster than
    /// concurrent ones, and two that examined a crashed node's data would disturb each other.
    starting: Mutex<Option<(String, Instant)>>,
}

/// Action of a start.
enum Plan {
    Found,
    Join,
}

struct Member {
    slot: ServerSlot,
    /// Port for traffic between the nodes.
    group_port: u16,
    client: Client,
    /// User and group id to run as; `None` means the lab's own.
    user: Option<(u32, u32)>,
    arguments: Vec<String>,
    process: Mutex<Option<Arc<Process>>>,
    /// Last position, if it was determined since the node ended.
    position: Mutex<Option<Position>>,
}

struct Galera {
    local: Arc<Member>,
    members: Arc<Members>,
    program: Program,
}

impl Lab {
    /// Adds a node with a copy of this data directory, not yet started.
    pub(super) fn enlist_galera_node(
        &self,
        name: &str,
        template: &Template,
        members: &Arc<Members>,
    ) -> Result<Server> {
        let slot = self.allocate_slot(name);
        fs::create_dir(&slot.directory)?;
        mariadb::copy_directory(&template.directory, &slot.directory.join("data"))?;
        let member = Arc::new(Member::new(slot.clone(), self.path(), template.programs)?);
        give(&slot.directory, member.user)?;
        let program = template.programs.find("mariadbd")?;
        let launch = Launch {
            program: program.path.clone(),
            root: program.root.clone(),
            arguments: member.arguments.clone(),
            user: member.user,
            stop_signal: libc::SIGTERM,
            ..Launch::default()
        };
        let kind = Galera {
            local: member.clone(),
            members: members.clone(),
            program,
        };
        let server = self.enlist(&slot, Role::Member, launch, Arc::new(kind));
        *member.process() = Some(server.process.clone());
        members.all().push(member);
        Ok(server)
    }
}

impl Kind for Galera {
    /// Returns whether the node serves queries: it does not outside a primary component or while it
    /// joins.
    fn answers(&self) -> bool {
        let is_synced = self.local.status("wsrep_local_state_comment") == Some("Synced".to_owned());
        if is_synced {
            let mut starting = self.members.starting();
            *starting = starting
                .take()
                .filter(|(name, _)| *name != self.local.slot.name);
        }
        is_synced
    }

    fn sql(&self, statements: &str) -> Result<String> {
        self.local.client.sql(statements)
    }

    fn connect_command(&self) -> String {
        self.local.client.connect_command()
    }

    fn start_arguments(&self, _server: &Server) -> Result<Vec<String>> {
        let mut obstacle = String::new();
        let what = format!("the turn of {} to start", self.local.slot.name);
        let plan = eventually(TURN_LIMIT, &what, || self.plan(&mut obstacle));
        let plan = plan.with_context(|| obstacle)?;
        let mut arguments = vec![format!(
            "--wsrep-cluster-address=gcomm://{}",
            self.members.addresses()
        )];
        if let Some(position) = self.local.position().take() {
            arguments.push(format!("--wsrep-start-position={}", position.text));
        }
        if matches!(plan, Plan::Found) {
            state::allow_founding(&self.local.data())?;
            arguments.push("--wsrep-new-cluster".to_owned());
        }
        Ok(arguments)
    }
}

impl Galera {
    /// Decides whether this start bootstraps or joins the cluster; returns `None` and the reason if
    /// that is still undecidable.
    fn plan(&self, obstacle: &mut String) -> Result<Option<Plan>> {
        let mut starting = self.members.starting();
        if let Some((other, since)) = &*starting
            && since.elapsed() < START_LIMIT
        {
            *obstacle = format!("{other} is starting");
            return Ok(None);
        }
        self.learn_position(&self.local)?;
        let plan = if self.running_peers().is_empty() {
            if let Some((best, most)) = self.find_more_advanced()? {
                *obstacle = format!("{best} has more (up to {most}): start it first, or both");
                return Ok(None);
            }
            Plan::Found
        } else {
            self.restore_quorum()?;
            Plan::Join
        };
        *starting = Some((self.local.slot.name.clone(), Instant::now()));
        Ok(Some(plan))
    }

    /// Returns the peer with the highest position above this node's; no peer runs.
    fn find_more_advanced(&self) -> Result<Option<(String, i64)>> {
        let number = |of: &Member| of.position().as_ref().map_or(-1, |known| known.number);
        let mut most = number(&self.local);
        let mut best = None;
        for peer in self.peers() {
            self.learn_position(&peer)?;
            if number(&peer) > most {
                most = number(&peer);
                best = Some((peer.slot.name.clone(), most));
            }
        }
        Ok(best)
    }

    /// Restores the quorum: after too many deaths the remaining nodes refuse to work until the
    /// operator declares them the cluster. Starting a node beside them implies that.
    fn restore_quorum(&self) -> Result<()> {
        let peers = self.running_peers();
        let has_quorum =
            |peer: &Arc<Member>| peer.status("wsrep_cluster_status") == Some("Primary".to_owned());
        let is_joining = |peer: &Arc<Member>| peer.status("wsrep_local_state_comment").is_none();
        if peers
            .iter()
            .any(|peer| has_quorum(peer) || is_joining(peer))
        {
            return Ok(());
        }
        let committed = |peer: &Arc<Member>| -> i64 {
            let number = peer.status("wsrep_last_committed");
            number.and_then(|number| number.parse().ok()).unwrap_or(-1)
        };
        if let Some(best) = peers.iter().max_by_key(|peer| committed(peer)) {
            let order = "SET GLOBAL wsrep_provider_options='pc.bootstrap=true'";
            best.client
                .sql(order)
                .with_context(|| format!("{} cannot be the cluster alone", best.slot.name))?;
        }
        Ok(())
    }

    /// Returns the peers that run and are not frozen.
    fn running_peers(&self) -> Vec<Arc<Member>> {
        let mut peers = self.peers();
        peers.retain(|peer| peer.pid().is_some_and(|pid| !procfs::is_stopped(pid)));
        peers
    }

    fn peers(&self) -> Vec<Arc<Member>> {
        let mut peers = self.members.all().clone();
        peers.retain(|peer| peer.slot.name != self.local.slot.name);
        peers
    }

    /// Determines the position of a stopped node, once after its end.
    fn learn_position(&self, of: &Member) -> Result<()> {
        if of.pid().is_none() && of.position().is_none() {
            let position = state::position(&of.data(), || of.recovery(&self.program))?;
            *of.position() = position;
        }
        Ok(())
    }
}

impl Members {
    fn addresses(&self) -> String {
        let all = self.all();
        let addresses: Vec<String> = all
            .iter()
            .map(|member| format!("{}:{}", member.slot.address.ip(), member.group_port))
            .collect();
        addresses.join(",")
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        self.all.lock().expect("no holder of the lock panics")
    }

    fn starting(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.starting.lock().expect("no holder of the lock panics")
    }
}

impl Member {
    fn new(slot: ServerSlot, work_dir: &Path, programs: Programs) -> Result<Member> {
        let group_port = free_port();
        require(programs)?;
        let mut arguments = mariadb::arguments(&slot)?;
        arguments.extend(wsrep(&slot, group_port, work_dir));
        Ok(Member {
            client: Client::new(&slot)?,
            user: user()?,
            slot,
            group_port,
            arguments,
            process: Mutex::new(None),
            position: Mutex::new(None),
        })
    }

    fn status(&self, name: &str) -> Option<String> {
        let row = self
            .client
            .sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        Some(row.ok()?.split_once('\t')?.1.to_owned())
    }

    /// Returns the command that prints the position of a crashed node.
    fn recovery(&self, program: &Program) -> io::Result<Command> {
        let mut command = program.command(self.user)?;
        command.args(&self.arguments);
        command.args(["--wsrep-recover", "--wsrep-cluster-address=gcomm://"]);
        Ok(command)
    }

    fn data(&self) -> PathBuf {
        self.slot.directory.join("data")
    }

    fn pid(&self) -> Option<u32> {
        self.process().as_ref()?.pid()
    }

    fn position(&self) -> MutexGuard<'_, Option<Position>> {
        self.position.lock().expect("no holder of the lock panics")
    }

    fn process(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.process.lock().expect("no holder of the lock panics")
    }
}

/// Returns the user to run as: the rsync that receives data drops root privileges, and then may not
/// write.
fn user() -> Result<Option<(u32, u32)>> {
    if !process::is_root() {
        return Ok(None);
    }
    let accounts = process::accounts();
    let named = |name: &str| accounts.iter().find(|account| account.name == name);
    // tidy: a user of the system
    let account = named("mysql").or_else(|| named("nobody"));
    let account = account.context("Galera cannot run as root; there is no user mysql or nobody")?;
    Ok(Some((account.uid, account.gid)))
}

fn give(directory: &Path, user: Option<(u32, u32)>) -> Result<()> {
    let Some((uid, gid)) = user else {
        return Ok(());
    };
    let mut command = Command::new("chown");
    command.arg("-R").arg(format!("{uid}:{gid}")).arg(directory);
    if !command.status()?.success() {
        bail!("cannot give {} to user {uid}", directory.display());
    }
    Ok(())
}

/// Checks the programs that a node needs besides the server; the package `mariadb-server` in the
/// rivals' root file system has them.
fn require(programs: Programs) -> Result<()> {
    let donor = programs.find("wsrep_sst_rsync")?;
    if donor.root.is_none() && !Path::new(LIBRARY).exists() {
        bail!("{LIBRARY} not found: apt-get install galera-4");
    }
    Ok(())
}

fn wsrep(slot: &ServerSlot, group_port: u16, work_dir: &Path) -> Vec<String> {
    let host = slot.address.ip();
    let cluster = work_dir.file_name().unwrap_or_default().display();
    vec![
        format!("--server-id={}", slot.address.port()),
        "--binlog-format=ROW".to_owned(),
        "--innodb-autoinc-lock-mode=2".to_owned(),
        "--wsrep-on=ON".to_owned(),
        format!("--wsrep-provider={LIBRARY}"),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://{host}:{group_port};\
             ist.recv_addr={host}:{};gcache.size=64M",
            free_port()
        ),
        format!("--wsrep-cluster-name={cluster}"),
        format!("--wsrep-node-name={}", slot.name),
        format!("--wsrep-node-address={host}:{group_port}"),
        format!("--wsrep-node-incoming-address={}", slot.address),
        "--wsrep-sst-method=rsync".to_owned(),
        format!("--wsrep-sst-receive-address={host}:{}", free_port()),
    ]
}
