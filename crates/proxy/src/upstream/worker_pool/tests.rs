//! Tests a worker's part of a pool with connections to a scripted server.

use evenkeel_engine::scripted::{Peer, Seen, connected};
use evenkeel_engine::stream::Stream;
use evenkeel_policy::connection_pool::{PoolKey, PoolLimits, PoolSettings, SharedPools};
use evenkeel_wire::postgres;

use super::*;
use crate::testing::{TestPlane, settings};
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::Credential;

thread_local! {
    /// Servers of the connections that were opened, the last one at the end.
    static OPENED: RefCell<Vec<Peer>> = const { RefCell::new(Vec::new()) };
    /// Number of the next opens that panic.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

struct TestConnection(ConnectionCore);

impl PoolableConnection for TestConnection {
    type Known = ();
    type Parked = ();

    async fn open(
        _: &Rc<Worker>,
        _: &Arc<Service>,
        pool_handle: &Arc<PoolHandle>,
    ) -> Result<Box<Self>, ConnectError> {
        if let Some(left) = PANICS.get().checked_sub(1) {
            PANICS.set(left);
            panic!("the server's reply is read wrongly");
        }
        let (socket, peer) = connected();
        OPENED.with_borrow_mut(|opened| opened.push(peer));
        let core = ConnectionCore::new::<Self>(Stream::plain(socket), pool_handle);
        Ok(Box::new(Self(core)))
    }

    fn core(&self) -> &ConnectionCore {
        &self.0
    }

    fn core_mut(&mut self) -> &mut ConnectionCore {
        &mut self.0
    }

    fn park(self: Box<Self>) -> (ConnectionCore, ()) {
        (self.0, ())
    }

    fn unpark(_: &Worker, core: ConnectionCore, (): ()) -> Box<Self> {
        Box::new(Self(core))
    }

    fn send_cancel(
        _: Rc<Worker>,
        _: Arc<Service>,
        _: Rc<CancelTarget>,
    ) -> std::pin::Pin<Box<dyn Future<Output = bool>>> {
        Box::pin(async { true })
    }

    fn write_terminate(_: &mut Vec<u8>) {}
}

/// A pool of one connection.
struct TestPool {
    plane: TestPlane,
    pool: Rc<WorkerPool<TestConnection>>,
    handle: Arc<PoolHandle>,
}

impl TestPool {
    fn new() -> Self {
        let plane = TestPlane::new(settings(), &[u32::MAX]);
        OPENED.take();
        let pools = SharedPools::new(1, u32::MAX, PoolSettings::default());
        let registry = Arc::new(PoolRegistry::new(pools));
        let (user_number, database_number) = (registry.number(b"ann"), registry.number(b"shop"));
        let server = &plane.servers[0];
        let key = PoolKey {
            server: server.id,
            user: user_number.get(),
            generation: 0,
            database: database_number.get(),
            identity: 0,
        };
        let limits = PoolLimits {
            pool: 1,
            user: u32::MAX,
            database: u32::MAX,
        };
        let handle = Arc::new(PoolHandle {
            pool: registry.pools.pool(key, &limits, &server.load),
            server: Arc::clone(server),
            pool_user: Arc::new(PoolUser {
                user: "ann".into(),
                server_user: "ann".into(),
                database: "shop".into(),
                credential: Credential::Postgres(postgres::login::Credential::Nothing),
                generation: 0,
                identity: 0,
                replication: None,
                user_number,
                database_number,
            }),
        });
        registry.insert(&handle);
        let pool = Rc::new(WorkerPool::new(&plane.worker, &plane.service, &registry));
        Self {
            plane,
            pool,
            handle,
        }
    }

    /// Requests a connection, and waits as long as a session would.
    fn acquire(&self) -> Result<Box<TestConnection>, String> {
        let slot = WaitSlot::new();
        match self.pool.acquire(&self.handle, &slot) {
            AcquireResult::Now(connection) => return Ok(connection),
            AcquireResult::Later(_) => {}
            AcquireResult::Refused(refusal) => return Err(format!("{refusal:?}")),
        }
        self.plane.advance(Duration::from_secs(1));
        match slot.take_late() {
            Some(WaitResult::Connection(connection)) => Ok(connection),
            Some(WaitResult::Failed(error)) => Err(error.message.clone()),
            Some(WaitResult::Again) => Err("again".to_owned()),
            None => {
                self.pool.leave_queue(&slot);
                Err("nothing".to_owned())
            }
        }
    }
}

#[test]
fn a_released_connection_is_given_to_the_next_session() {
    let pool = TestPool::new();
    let connection = pool.acquire().unwrap();
    assert_eq!(pool.acquire().err().as_deref(), Some("nothing"));
    pool.pool.release(connection, Condition::Clean);
    assert!(pool.acquire().is_ok());
    assert_eq!(OPENED.with_borrow(Vec::len), 1);
}

/// TO SEE THIS RED: let the drop of a `HeldCheckout` do nothing.
#[test]
fn a_connection_that_a_panic_has_dropped_is_closed_and_its_place_is_free_again() {
    let pool = TestPool::new();
    let connection = pool.acquire().unwrap();
    pool.plane.worker.spawn(async move {
        let _connection = connection;
        panic!("a reply is read wrongly");
    });
    pool.plane.stage.settle();
    assert_eq!(OPENED.with_borrow(|opened| opened[0].seen()), Seen::Close);
    pool.pool.run_maintenance();
    assert!(pool.acquire().is_ok());
    assert_eq!(OPENED.with_borrow(Vec::len), 2);
}

/// TO SEE THIS RED: call `C::open` without `catch_unwind`.
#[test]
fn a_login_that_panics_fails_and_leaves_its_place_to_the_next_one() {
    let pool = TestPool::new();
    PANICS.set(1);
    let error = pool.acquire().err();
    assert!(error.is_some_and(|error| error.contains("login")));
    pool.plane.advance(Duration::from_secs(60));
    assert!(pool.acquire().is_ok());
}
