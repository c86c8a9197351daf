//! Starts everything in the right order, and turns signals into what the world understands.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_proxy::engine::{Driver, Engine, EngineError};
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::admin::{self, AdminSettings, Listeners};
use crate::config::plan::{Io, LogFormat};
use crate::config::{Plan, Problems};
use crate::control_plane::{ControlPlane, ControlPlaneError, Signal};
use crate::log::{self, Format, InitError};
use crate::notify;
use crate::status::ControlHandle;
use crate::upgrade::admin_sockets::AdminSockets;
use crate::upgrade::cancels::Sending;
use crate::upgrade::predecessor::{InheritedSockets, Predecessor, TakeOverError};
use crate::upgrade::state::Purpose;

/// Two for each session, and the rest for listeners, probes, admin and the program itself.
const DESCRIPTORS_BESIDE_SESSIONS: u64 = 256;

/// The old process lets us go as soon as it hears that we serve.
const LET_GO_LIMIT: Duration = Duration::from_secs(1);

/// How often we look whether it has.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// At the end, for answers that are under way.
const LAST_ANSWERS_LIMIT: Duration = Duration::from_secs(2);

/// Why the balancer did not start, or ended badly.
#[derive(Debug, Error)]
pub enum RunError {
    /// Logging.
    #[error(transparent)]
    Log(#[from] InitError),
    /// The data plane.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Listeners or probes.
    #[error(transparent)]
    World(#[from] ControlPlaneError),
    /// The admin address.
    #[error("[admin] listen {address}: {cause}; choose another, or listen = \"off\"")]
    Admin {
        /// The address.
        address: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A console's address.
    #[error("[admin] {key} {address}: {cause}; choose another, or {key} = \"off\"")]
    Console {
        /// Which console.
        key: &'static str,
        /// The address.
        address: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The control socket.
    #[error("[admin] socket {path}: {cause}")]
    Socket {
        /// Its path.
        path: String,
        /// Why.
        cause: String,
    },
    /// The process that this one was to take over from.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    /// What a single-threaded runtime needs.
    #[error("cannot start the control plane: {0}")]
    Runtime(std::io::Error),
}

/// Runs the balancer until it is told to stop.
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
    // A name look-up that hangs must not keep the process from ending.
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
    let (engine, events) = Engine::start(driver, workers)?;
    let io = driver.name();
    tracing::info!("data plane: {io} ({io_reason}), workers: {workers}");
    let (control, requests) = ControlHandle::channel();
    let signals = signals().map_err(RunError::Runtime)?;
    let mut inherited = match &mut predecessor {
        Some(predecessor) => predecessor.ask()?,
        None => InheritedSockets::default(),
    };
    let generation = match &predecessor {
        Some(predecessor) => predecessor.generation().wrapping_add(1),
        // Keys of a process that was here before lead nowhere.
        None => std::process::id(),
    };
    let identified = identify(&engine, plan.peers.instance, generation, &mut inherited);
    identified.map_err(RunError::Runtime)?;
    let midwife = predecessor.is_some().then(rustix::process::getppid);
    let own_words = inherited.take_log();
    let opened = open_admin(&plan, control, &mut inherited).await;
    let path = plan.admin.socket.clone();
    let before = predecessor.map(|predecessor| (predecessor, inherited));
    let begun = match opened {
        Err(error) => Err(error),
        Ok((door, doors)) => {
            let engine = (engine, generation);
            let world = ControlPlane::new(engine, io_reason, (plan, problems), before).await;
            world
                .map(|world| (world, door, doors))
                .map_err(RunError::World)
        }
    };
    let (mut world, door, mut doors) = begun.inspect_err(|_| speak_to(own_words))?;
    doors.own_file(path);
    world.keep_doors(doors);
    let mut admin = tokio::spawn(door);
    tracing::info!("ready");
    if let Some(midwife) = midwife {
        until_let_go(midwife).await;
        notify::took_over();
    }
    notify::ready();
    world.run(requests, events, signals).await;
    // The answers that are under way; after an upgrade, the one to the upgrade itself.
    if tokio::time::timeout(LAST_ANSWERS_LIMIT, &mut admin)
        .await
        .is_err()
    {
        admin.abort();
    }
    Ok(())
}

/// Whose cancel requests are for clients of this process, and where those for the old one's go.
fn identify(
    engine: &Engine,
    instance: u16,
    generation: u32,
    inherited: &mut InheritedSockets,
) -> io::Result<()> {
    let identified = engine.identify(instance, generation);
    identified.map_err(io::Error::other)?;
    if let Some(socket) = inherited.take(Purpose::Cancels) {
        let old = Sending::new(socket)?;
        engine.set_predecessor(Some(Box::new(move |process, secret| {
            old.send(process, &secret)
        })));
    }
    Ok(())
}

/// Why we do not start is for the process that has started us: it goes on.
fn speak_to(starter: Option<OwnedFd>) {
    if let Some(starter) = starter {
        // Without it the words are in the log, and not in the answer to the command.
        let _ = rustix::stdio::dup2_stderr(&starter);
    }
}

/// A service manager waits for the end of its own children only, and asks when it hears of us.
async fn until_let_go(midwife: Option<rustix::process::Pid>) {
    let by = Instant::now() + LET_GO_LIMIT;
    while rustix::process::getppid() == midwife && Instant::now() < by {
        tokio::time::sleep(LOOK_INTERVAL).await;
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

/// Opens both admin doors, those of the process before this one if it has them; what comes back
/// serves them, and hands them on to the next process.
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
    let mut doors = AdminSockets::new(passable, closing, opening);
    if is_new {
        doors.own_file(path.clone());
    }
    let door = async move {
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
    Ok((door, doors))
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

/// Opens consoles.
struct Consoles<'a> {
    inherited: &'a mut InheritedSockets,
    passable: &'a mut Vec<(Purpose, OwnedFd)>,
}

impl Consoles<'_> {
    /// The console of this key, if there is to be one.
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
    keep: impl FnOnce(OwnedFd),
) -> io::Result<TcpListener> {
    let listener = match passed {
        None => TcpListener::bind(address).await?,
        Some(socket) => TcpListener::from_std(socket.into())?,
    };
    keep(listener.as_fd().try_clone_to_owned()?);
    Ok(listener)
}

fn open_control(
    path: &Path,
    passed: Option<OwnedFd>,
    keep: impl FnOnce(OwnedFd),
) -> io::Result<UnixListener> {
    let listener = match passed {
        None => admin::bind_socket(path)?,
        Some(socket) => UnixListener::from_std(socket.into())?,
    };
    keep(listener.as_fd().try_clone_to_owned()?);
    Ok(listener)
}

fn signals() -> std::io::Result<mpsc::Receiver<Signal>> {
    let (told, receiver) = mpsc::channel(8);
    let kinds = [
        (SignalKind::hangup(), Signal::Reload),
        (SignalKind::terminate(), Signal::Stop),
        (SignalKind::interrupt(), Signal::Stop),
    ];
    for (kind, meaning) in kinds {
        let mut stream = signal(kind)?;
        let told = told.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if told.send(meaning).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// Raises the limit of file descriptors as far as we may, and says so when that is too little.
fn check_descriptors(plan: &Plan) {
    let sessions: u64 = plan
        .services
        .iter()
        .map(|s| u64::from(s.max_connections))
        .sum();
    let wanted = sessions * 2 + DESCRIPTORS_BESIDE_SESSIONS;
    match raise_descriptors(wanted) {
        Ok(limit) if limit.now < wanted => tracing::warn!(
            "max_connections of all services may require {wanted} file descriptors, but {limit}: \
             raise it (ulimit -n, LimitNOFILE=) or lower max_connections"
        ),
        Ok(limit) => tracing::debug!("{wanted} file descriptors wanted, {limit}"),
        Err(error) => tracing::warn!("cannot determine the file descriptor limit: {error}"),
    }
}

/// The limit of file descriptors.
struct Descriptors {
    now: u64,
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit is {}", self.now)
    }
}

fn raise_descriptors(wanted: u64) -> std::io::Result<Descriptors> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a live rlimit.
    #[expect(unsafe_code, reason = "getrlimit has no safe form in std")]
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if got < 0 {
        return Err(std::io::Error::last_os_error());
    }
    if limit.rlim_cur < wanted {
        let hard = limit.rlim_max.max(wanted);
        // The hard limit first: root may raise it, others may only use what it leaves.
        for hard in [hard, limit.rlim_max] {
            let raised = libc::rlimit {
                rlim_cur: wanted.min(hard),
                rlim_max: hard,
            };
            // SAFETY: `raised` is a live rlimit.
            #[expect(unsafe_code, reason = "setrlimit has no safe form in std")]
            let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
            if set == 0 {
                return Ok(Descriptors {
                    now: raised.rlim_cur,
                });
            }
        }
    }
    Ok(Descriptors {
        now: limit.rlim_cur,
    })
}
