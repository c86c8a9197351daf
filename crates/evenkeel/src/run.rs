//! Starts everything in the right order, and turns signals into what the world understands.

use std::fmt;
use std::path::PathBuf;

use evenkeel_proxy::engine::{Driver, Engine, EngineError};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::admin::{self, AdminSettings};
use crate::config::plan::{Io, LogFormat};
use crate::config::{Plan, Problems};
use crate::log::{self, Format, InitError};
use crate::notify;
use crate::status::ControlHandle;
use crate::world::{Signal, World, WorldError};

/// Two for each session, and the rest for listeners, probes, admin and the program itself.
const DESCRIPTORS_BESIDE_SESSIONS: u64 = 256;

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
    World(#[from] WorldError),
    /// The admin address.
    #[error("[admin] listen {address}: {cause}; choose another, or listen = \"off\"")]
    Admin {
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
    /// What a single-threaded runtime needs.
    #[error("cannot start the control plane: {0}")]
    Runtime(std::io::Error),
}

/// Runs the balancer until it is told to stop.
pub fn run(plan: Plan, problems: Problems) -> Result<(), RunError> {
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
    let outcome = runtime.block_on(serve(plan, problems));
    // A name look-up that hangs must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

async fn serve(plan: Plan, problems: Problems) -> Result<(), RunError> {
    let (driver, io_reason) = choose_driver(plan.engine.io);
    let workers = plan.engine.workers.unwrap_or_else(cores);
    let (engine, events) = Engine::start(driver, workers)?;
    let io = driver.name();
    tracing::info!("data plane: {io} ({io_reason}), workers: {workers}");
    let (control, requests) = ControlHandle::channel();
    let signals = signals().map_err(RunError::Runtime)?;
    let door = open_door(&plan, control).await?;
    let _socket = SocketFile(plan.admin.socket.clone());
    let world = World::new(engine, io_reason, plan, problems)?;
    let admin = tokio::spawn(door);
    tracing::info!("ready");
    notify::ready();
    world.run(requests, events, signals).await;
    admin.abort();
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn choose_driver(io: Io) -> (Driver, String) {
    match io {
        Io::Auto => Driver::detect(),
        Io::IoUring => (Driver::IoUring, "asked for in [engine]".to_owned()),
        Io::Epoll => (Driver::Epoll, "asked for in [engine]".to_owned()),
    }
}

/// The control socket's name, removed when the process ends.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds both admin doors; what comes back serves them.
async fn open_door(
    plan: &Plan,
    control: ControlHandle,
) -> Result<impl Future<Output = ()> + use<>, RunError> {
    let listen = match plan.admin.listen {
        None => None,
        Some(address) => {
            let bound = tokio::net::TcpListener::bind(address).await;
            let fail = |cause| RunError::Admin {
                address: address.to_string(),
                cause,
            };
            Some(bound.map_err(fail)?)
        }
    };
    let path = &plan.admin.socket;
    let socket = admin::bind_socket(path).map_err(|error| RunError::Socket {
        path: path.display().to_string(),
        cause: error.to_string(),
    })?;
    if let Some(address) = listen
        .as_ref()
        .and_then(|listener| listener.local_addr().ok())
    {
        tracing::info!("status page: http://{address}/");
    }
    let settings = AdminSettings {
        token: plan
            .admin
            .token
            .as_ref()
            .map(|token| token.expose().to_owned()),
        allowed_hosts: plan.admin.allowed_hosts.clone(),
    };
    Ok(admin::serve(listen, Some(socket), settings, control))
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
            "max_connections of all services may need {wanted} file descriptors, {limit}: raise it \
             (ulimit -n, LimitNOFILE=) or lower max_connections"
        ),
        Ok(limit) => tracing::debug!("{wanted} file descriptors wanted, {limit}"),
        Err(error) => tracing::warn!("the limit of file descriptors is unknown: {error}"),
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
