//! Starts the parts of the balancer in order, and translates signals for the control plane.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_config::Problems;
use evenkeel_config::plan::{Io, LogFormat, Plan};
use evenkeel_engine::engine::{Driver, EngineError};
use evenkeel_proxy::data_plane::DataPlane;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::access_log;
use crate::admin::{self, AdminSettings, Listeners};
use crate::control_plane::{ControlPlane, ControlPlaneError, Signal};
use crate::log::{self, Format, InitError};
use crate::notify;
use crate::status::ControlHandle;
use crate::upgrade::admin_sockets::AdminSockets;
use crate::upgrade::cancels::Sending;
use crate::upgrade::predecessor::{InheritedSockets, Predecessor, TakeOverError};
use crate::upgrade::state::Purpose;

/// Number of file descriptors for listeners, probes, admin connections and the program itself. Each
/// session needs two more.
const DESCRIPTORS_BESIDE_SESSIONS: u64 = 256;

/// Limit for the wait until the predecessor has detached this process, after this process has
/// reported that it serves.
const DETACH_LIMIT: Duration = Duration::from_secs(1);

/// Interval of the check for that.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Limit at the end of the process for responses in progress.
const LAST_REPLIES_LIMIT: Duration = Duration::from_secs(2);

/// Reason why the balancer did not start, or failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// Logging cannot be set up.
    #[error(transparent)]
    Log(#[from] InitError),
    /// The data plane cannot start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Listeners or probes cannot be set up.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// The admin address cannot be listened on.
    #[error("[admin] listen {address}: {cause}; choose another, or listen = \"off\"")]
    Admin {
        /// Configured address.
        address: String,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The address of a console cannot be listened on.
    #[error("[admin] {key} {address}: {cause}; choose another, or {key} = \"off\"")]
    Console {
        /// Configuration key of the console.
        key: &'static str,
        /// Configured address.
        address: String,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The control socket cannot be opened.
    #[error("[admin] socket {path}: {cause}")]
    Socket {
        /// Path of the socket.
        path: String,
        /// Cause of the failure.
        cause: String,
    },
    /// Taking over from the predecessor failed.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    /// The single-threaded runtime cannot be set up.
    #[error("cannot start the control plane: {0}")]
    Runtime(std::io::Error),
}

/// Runs the balancer until it is stopped.
pub fn run(plan: Plan, problems: Problems) -> Result<(), RunError> {
    let predecessor = Predecessor::find()?;
    let format = match plan.log.format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    log::init(format, plan.log.level.name())?;
    check_descriptors(&plan);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Runtime)?;
    let outcome = runtime.block_on(serve(plan, problems, predecessor));
    // A name lookup that hangs must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

async fn serve(
    plan: Plan,
    problems: Problems,
    mut predecessor: Option<Predecessor>,
) -> Result<(), RunError> {
    let (driver, io_reason) = choose_driver(plan.engine.io);
    let workers = plan.engine.workers.unwrap_or_else(cores);
    let (data_plane, events) = DataPlane::start(driver, workers)?;
    let access_log = access_log::Writer::start(data_plane.access_log());
    let access_log = access_log.map_err(RunError::Runtime)?;
    let io = driver.name();
    tracing::info!("data plane: {io} ({io_reason}), workers: {workers}");
    let (control, requests) = ControlHandle::channel();
    let signals = signals().map_err(RunError::Runtime)?;
    let mut inherited = match &mut predecessor {
        Some(predecessor) => predecessor.request_sockets()?,
        None => InheritedSockets::default(),
    };
    let generation = match &predecessor {
        Some(predecessor) => predecessor.generation().wrapping_add(1),
        // Cancel keys of an earlier process are invalid.
        None => std::process::id(),
    };
    let identified = identify(&data_plane, plan.peers.instance, generation, &mut inherited);
    identified.map_err(RunError::Runtime)?;
    let intermediate = predecessor.is_some().then(rustix::process::getppid);
    let own_log = inherited.take_log();
    let opened = open_admin(&plan, control, &mut inherited).await;
    let path = plan.admin.socket.clone();
    let before = predecessor.map(|predecessor| (predecessor, inherited));
    let started = match opened {
        Err(error) => Err(error),
        Ok((admin_task, admin_sockets)) => {
            let data_plane = (data_plane, generation);
            let control_plane =
                ControlPlane::new(data_plane, io_reason, (plan, problems), before).await;
            control_plane
                .map(|control_plane| (control_plane, admin_task, admin_sockets))
                .map_err(RunError::ControlPlane)
        }
    };
    let (mut control_plane, admin_task, mut admin_sockets) =
        started.inspect_err(|_| restore_stderr(own_log))?;
    admin_sockets.own_file(path);
    control_plane.set_admin_sockets(admin_sockets);
    let mut admin = tokio::spawn(admin_task);
    tracing::info!("ready");
    if let Some(intermediate) = intermediate {
        await_detach(intermediate).await;
        notify::took_over();
    }
    notify::ready();
    control_plane.run(requests, events, signals).await;
    access_log.finish();
    // Responses in progress; after an upgrade, also the response to the upgrade itself.
    if tokio::time::timeout(LAST_REPLIES_LIMIT, &mut admin)
        .await
        .is_err()
    {
        admin.abort();
    }
    Ok(())
}

/// Sets the instance and generation by which cancel requests are routed. Those for sessions of the
/// predecessor are sent to it.
fn identify(
    data_plane: &DataPlane,
    instance: u16,
    generation: u32,
    inherited: &mut InheritedSockets,
) -> io::Result<()> {
    let identified = data_plane.identify(instance, generation);
    identified.map_err(io::Error::other)?;
    if let Some(socket) = inherited.take(Purpose::Cancels) {
        let old = Sending::new(socket)?;
        data_plane.set_predecessor(Some(Box::new(move |process, secret| {
            old.send(process, &secret)
        })));
    }
    Ok(())
}

/// Redirects stderr to the process that started this one, so that it receives the reason of a
/// failed start; it continues to serve.
fn restore_stderr(log: Option<OwnedFd>) {
    if let Some(log) = log {
        // On failure the reason is in the log only, and not in the response to the command.
        let _ = rustix::stdio::dup2_stderr(&log);
    }
}

/// Waits until the predecessor has detached this process. A service manager waits only for the end
/// of its own children, and checks the parent when it receives the new main process id.
async fn await_detach(intermediate: Option<rustix::process::Pid>) {
    let by = Instant::now() + DETACH_LIMIT;
    while rustix::process::getppid() == intermediate && Instant::now() < by {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn choose_driver(io: Io) -> (Driver, String) {
    match io {
        Io::Auto => Driver::detect(),
        Io::IoUring => (Driver::IoUring, "set in [engine]".to_owned()),
        Io::Epoll => (Driver::Epoll, "set in [engine]".to_owned()),
    }
}

/// Opens the admin listeners, or takes over those of the predecessor. Returns the future that
/// serves them, and the sockets for the next process.
async fn open_admin(
    plan: &Plan,
    control: ControlHandle,
    inherited: &mut InheritedSockets,
) -> Result<(impl Future<Output = ()> + use<>, AdminSockets), RunError> {
    let mut passable = Vec::new();
    let listen = match plan.admin.listen {
        None => None,
        Some(address) => {
            let purpose = Purpose::Admin(address.to_string());
            let opened = open_page(address, inherited.take(purpose.clone()), |socket| {
                passable.push((purpose, socket));
            });
            let fail = |cause| RunError::Admin {
                address: address.to_string(),
                cause,
            };
            Some(opened.await.map_err(fail)?)
        }
    };
    let mut consoles = Consoles {
        inherited: &mut *inherited,
        passable: &mut passable,
    };
    let postgres = plan.admin.postgres;
    let postgres = consoles
        .open("postgres", postgres, Purpose::Console)
        .await?;
    let mysql = plan.admin.mysql;
    let mysql = consoles.open("mysql", mysql, Purpose::MySqlConsole).await?;
    let path = &plan.admin.socket;
    let purpose = Purpose::Control(path.display().to_string());
    let passed = inherited.take(purpose.clone());
    let is_new = passed.is_none();
    let opened = open_control(path, passed, |socket| passable.push((purpose, socket)));
    let socket = opened.map_err(|error| RunError::Socket {
        path: path.display().to_string(),
        cause: error.to_string(),
    })?;
    if let Some(address) = listen
        .as_ref()
        .and_then(|listener| listener.local_addr().ok())
    {
        tracing::info!("status page: http://{address}/");
    }
    let settings = admin_settings(plan);
    let (closing, closed) = watch::channel(false);
    let (opening, mut opened) = mpsc::unbounded_channel();
    let mut admin_sockets = AdminSockets::new(passable, closing, opening);
    if is_new {
        admin_sockets.own_file(path.clone());
    }
    let admin_task = async move {
        let (settings, control) = (&settings, &control);
        let serve =
            |listeners| admin::serve(listeners, settings.clone(), control.clone(), closed.clone());
        serve(Listeners {
            page: listen,
            socket: Some(socket),
            postgres,
            mysql,
        })
        .await;
        while let Some(sockets) = opened.recv().await {
            serve(open_again(sockets)).await;
        }
    };
    Ok((admin_task, admin_sockets))
}

fn admin_settings(plan: &Plan) -> AdminSettings {
    AdminSettings {
        token: plan
            .admin
            .token
            .as_ref()
            .map(|token| token.expose().to_owned()),
        allowed_hosts: plan.admin.allowed_hosts.clone(),
    }
}

/// Opens the listeners of the consoles.
struct Consoles<'a> {
    inherited: &'a mut InheritedSockets,
    passable: &'a mut Vec<(Purpose, OwnedFd)>,
}

impl Consoles<'_> {
    /// Opens the console of this key. Returns `None` if it has no address.
    async fn open(
        &mut self,
        key: &'static str,
        address: Option<SocketAddr>,
        purpose: fn(String) -> Purpose,
    ) -> Result<Option<TcpListener>, RunError> {
        let Some(address) = address else {
            return Ok(None);
        };
        let purpose = purpose(address.to_string());
        let passed = self.inherited.take(purpose.clone());
        let opened = open_page(address, passed, |socket| {
            self.passable.push((purpose, socket));
        });
        let console = opened.await.map_err(|cause| RunError::Console {
            key,
            address: address.to_string(),
            cause,
        })?;
        let (host, port) = (address.ip(), address.port());
        match key {
            "mysql" => tracing::info!("console: mysql -h {host} -P {port}"),
            _ => tracing::info!("console: psql -h {host} -p {port}"),
        }
        Ok(Some(console))
    }
}

fn open_again(sockets: Vec<(Purpose, OwnedFd)>) -> Listeners {
    let mut all = Listeners::default();
    for (purpose, socket) in sockets {
        match purpose {
            Purpose::Admin(_) => all.page = TcpListener::from_std(socket.into()).ok(),
            Purpose::Console(_) => all.postgres = TcpListener::from_std(socket.into()).ok(),
            Purpose::MySqlConsole(_) => all.mysql = TcpListener::from_std(socket.into()).ok(),
            _ => all.socket = UnixListener::from_std(socket.into()).ok(),
        }
    }
    all
}

async fn open_page(
    address: SocketAddr,
    passed: Option<OwnedFd>,
    store: impl FnOnce(OwnedFd),
) -> io::Result<TcpListener> {
    let listener = match passed {
        None => TcpListener::bind(address).await?,
        Some(socket) => TcpListener::from_std(socket.into())?,
    };
    store(listener.as_fd().try_clone_to_owned()?);
    Ok(listener)
}

fn open_control(
    path: &Path,
    passed: Option<OwnedFd>,
    store: impl FnOnce(OwnedFd),
) -> io::Result<UnixListener> {
    let listener = match passed {
        None => admin::bind_socket(path)?,
        Some(socket) => UnixListener::from_std(socket.into())?,
    };
    store(listener.as_fd().try_clone_to_owned()?);
    Ok(listener)
}

fn signals() -> std::io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(8);
    let kinds = [
        (SignalKind::hangup(), Signal::Reload),
        (SignalKind::terminate(), Signal::Stop),
        (SignalKind::interrupt(), Signal::Stop),
    ];
    for (kind, action) in kinds {
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(action).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// Raises the limit of file descriptors as far as permitted, and warns if it remains too low.
fn check_descriptors(plan: &Plan) {
    let sessions: u64 = plan
        .services
        .iter()
        .map(|s| u64::from(s.max_connections))
        .sum();
    let wanted = sessions * 2 + DESCRIPTORS_BESIDE_SESSIONS;
    let limit = raise_descriptors(wanted);
    if limit.now < wanted {
        tracing::warn!(
            "max_connections of all services may require {wanted} file descriptors, but {limit}: \
             raise it (ulimit -n, LimitNOFILE=) or lower max_connections"
        );
    } else {
        tracing::debug!("{wanted} file descriptors wanted, {limit}");
    }
}

/// Limit of file descriptors in force.
struct Descriptors {
    now: u64,
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit is {}", self.now)
    }
}

fn raise_descriptors(wanted: u64) -> Descriptors {
    // A missing number is no limit.
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        let maximum = limit.maximum.unwrap_or(u64::MAX);
        // Root may raise the hard limit, so it is tried first; other users cannot exceed it.
        for hard in [maximum.max(wanted), maximum] {
            let now = wanted.min(hard);
            let raised = Rlimit {
                current: Some(now),
                maximum: Some(hard).filter(|hard| *hard != u64::MAX),
            };
            if setrlimit(Resource::Nofile, raised).is_ok() {
                return Descriptors { now };
            }
        }
    }
    Descriptors { now: current }
}
