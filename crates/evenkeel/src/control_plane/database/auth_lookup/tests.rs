//! Tests which lookups are combined, and which are not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use evenkeel_monitor::probe::Tls;
use evenkeel_policy::Load;
use evenkeel_policy::accounts::Verifier;
use evenkeel_proxy::{Endpoint, Server};
use tokio::sync::Semaphore;

use evenkeel_proxy::server_info::ServersFault;

use super::*;

fn login(can_login: bool) -> Answer<PostgresAuthRecord> {
    Ok(PostgresAuthRecord {
        verifier: Verifier::None,
        can_login,
        expired: false,
        role_fingerprint: String::new(),
        closed_databases: Vec::new(),
        forbidden_databases: Vec::new(),
    })
}

/// Directory that answers when permitted, with the state at the time of the request.
struct Slow {
    queried: Mutex<Vec<String>>,
    active: AtomicUsize,
    active_max: AtomicUsize,
    release: Semaphore,
    can_login: std::sync::atomic::AtomicBool,
}

impl Slow {
    fn new() -> Arc<Slow> {
        Arc::new(Slow {
            queried: Mutex::default(),
            active: AtomicUsize::new(0),
            active_max: AtomicUsize::new(0),
            release: Semaphore::new(0),
            can_login: true.into(),
        })
    }

    fn queried(&self) -> Vec<String> {
        self.queried.lock().unwrap().clone()
    }
}

impl AuthDirectory for Slow {
    type Record = PostgresAuthRecord;

    async fn look_up(&self, user: &str) -> Answer<PostgresAuthRecord> {
        self.queried.lock().unwrap().push(user.to_owned());
        let answer = login(self.can_login.load(SeqCst));
        let now = self.active.fetch_add(1, SeqCst) + 1;
        self.active_max.fetch_max(now, SeqCst);
        self.release.acquire().await.unwrap().forget();
        self.active.fetch_sub(1, SeqCst);
        answer
    }
}

/// Lets the tasks of this thread run until they wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn look_up(
    server_info: &Arc<ServerInfo>,
    user: &str,
) -> tokio::task::JoinHandle<Answer<PostgresAuthRecord>> {
    let (server_info, user) = (Arc::clone(server_info), user.to_owned());
    tokio::spawn(async move { server_info.login(&user).await })
}

fn start() -> (Arc<ServerInfo>, Arc<Slow>) {
    let (server_info, slow) = (ServerInfo::new(1, 0), Slow::new());
    tokio::spawn(serve_lookups(Arc::clone(&server_info), Arc::clone(&slow)));
    (server_info, slow)
}

#[tokio::test]
async fn who_comes_while_a_question_is_under_way_gets_the_answer_to_the_next() {
    let (server_info, slow) = start();
    let first = look_up(&server_info, "app");
    settle().await;
    slow.can_login.store(false, SeqCst);
    let late = [look_up(&server_info, "app"), look_up(&server_info, "app")];
    settle().await;
    assert_eq!(slow.queried(), ["app"]);
    slow.release.add_permits(1);
    assert_eq!(first.await.unwrap(), login(true));
    settle().await;
    assert_eq!(slow.queried(), ["app", "app"], "one question for both");
    slow.release.add_permits(1);
    for one in late {
        assert_eq!(one.await.unwrap(), login(false));
    }
}

#[tokio::test]
async fn different_users_are_asked_for_at_once_up_to_a_limit_and_in_their_order() {
    let (server_info, slow) = start();
    let users: Vec<String> = (0..100).map(|number| format!("user{number:02}")).collect();
    let all: Vec<_> = users
        .iter()
        .map(|user| look_up(&server_info, user))
        .collect();
    settle().await;
    assert_eq!(slow.queried(), users[..RUNNING_MAX]);
    slow.release.add_permits(1_000);
    for one in all {
        assert_eq!(one.await.unwrap(), login(true));
    }
    assert_eq!(slow.queried(), users);
    assert_eq!(slow.active_max.load(SeqCst), RUNNING_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_given_up() {
    let (server_info, _slow) = start();
    let answer = look_up(&server_info, "app").await.unwrap();
    let error = answer.unwrap_err().to_string();
    assert_eq!(
        error,
        "user lookup not answered by any server within 10000 ms"
    );
}

#[test]
fn the_book_is_empty_when_all_are_answered_and_full_when_too_many_wait() {
    let mut lookups = PendingLookups::<PostgresAuthRecord>::default();
    let take = |lookups: &mut PendingLookups<PostgresAuthRecord>| {
        let (reply, answer) = flume::bounded(1);
        let user = "app".to_owned();
        lookups.add(LookupRequest { user, reply });
        answer
    };
    let mut answers: Vec<_> = (0..WAITING_MAX).map(|_| take(&mut lookups)).collect();
    let error = take(&mut lookups).try_recv().unwrap().unwrap_err();
    assert!(
        error.to_string().contains("user lookups pending (10000)"),
        "{error}"
    );
    assert_eq!(lookups.next().as_deref(), Some("app"));
    assert_eq!(lookups.next(), None);
    lookups.complete("app", &Err(LookupError::NoSuchUser));
    let got = answers.iter_mut().all(|answer| answer.try_recv().is_ok());
    assert!(got && lookups.users.is_empty() && lookups.queue.is_empty());
    assert_eq!((lookups.waiting, lookups.running), (0, 0));
}

/// Backend that answers after this time.
struct After(Duration);

impl AuthBackend for After {
    type Record = PostgresAuthRecord;

    async fn look_up(&self, _: &Target, _: &str, limit: Duration) -> Answer<PostgresAuthRecord> {
        let answering = tokio::time::sleep(self.0);
        match tokio::time::timeout(limit, answering).await {
            Ok(()) => login(true),
            Err(_) => Err(LookupError::Unavailable("is late".to_owned())),
        }
    }
}

/// Returns servers that answer after these numbers of seconds, none of them up yet.
fn servers(answer_s: &[u64], wait_ms: u64) -> (watch::Sender<Membership>, Servers<After>) {
    let listed = |index: usize| {
        let server = Server::new(index as u64, "db".into(), Arc::new(Load::new(None)), 1);
        server.set_endpoints(vec![Endpoint::Tcp(([127, 0, 0, 1], 1).into())]);
        MonitoredServer {
            server: Arc::new(server),
            tls: Tls::Off,
        }
    };
    let backends = answer_s.iter().enumerate();
    let (membership, seen) = watch::channel(Membership::default());
    let backends = backends
        .map(|(index, seconds)| (listed(index), After(Duration::from_secs(*seconds))))
        .collect();
    let wait = Duration::from_millis(wait_ms);
    let servers = Servers {
        backends,
        membership: seen,
        wait,
    };
    (membership, servers)
}

fn up(servers: u64) -> Membership {
    let up = (0..servers).collect();
    Membership {
        up,
        ..Membership::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_waits_for_a_server_that_can_be_asked() {
    let (membership, servers) = servers(&[0], 1_000);
    let lookup = tokio::spawn(async move { servers.look_up("app").await });
    tokio::time::sleep(Duration::from_millis(900)).await;
    membership.send_replace(up(1));
    assert_eq!(lookup.await.unwrap(), login(true));
}

#[tokio::test(start_paused = true)]
async fn a_login_does_not_wait_for_a_server_whose_fault_lasts() {
    let (membership, servers) = servers(&[0], 1_000);
    let faulty = |is_lasting| Membership {
        fault: Some(ServersFault {
            why: "server db1: server certificate is not trusted".into(),
            is_lasting,
        }),
        ..Membership::default()
    };
    membership.send_replace(faulty(false));
    let begin = tokio::time::Instant::now();
    let lookup = tokio::spawn(async move { servers.look_up("app").await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    membership.send_replace(faulty(true));
    let error = lookup.await.unwrap().unwrap_err().to_string();
    assert_eq!(error, "server db1: server certificate is not trusted");
    assert_eq!(begin.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_login_that_has_waited_in_vain_is_told_why() {
    let (_membership, servers) = servers(&[0], 1_000);
    let begin = tokio::time::Instant::now();
    let error = servers.look_up("app").await.unwrap_err().to_string();
    assert_eq!(error, "no server available");
    assert_eq!(begin.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn only_the_last_server_that_can_tell_is_waited_for_longer() {
    let (membership, servers) = servers(&[3, 5], 0);
    membership.send_replace(up(2));
    let begin = tokio::time::Instant::now();
    assert_eq!(servers.look_up("app").await, login(true));
    assert_eq!(begin.elapsed(), ANSWER_LIMIT + Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_has_stepped_down_or_gone_is_waited_for_no_more() {
    let after = |primary: u64, ids: &[u64]| Membership {
        primary: Some(primary),
        up: ids.to_vec(),
        ..Membership::default()
    };
    for (now, is_given_up) in [
        (after(1, &[0, 1]), true),
        (after(0, &[1]), true),
        (after(0, &[0]), false),
    ] {
        let (membership, servers) = servers(&[1, 0], 0);
        membership.send_replace(after(0, &[0, 1]));
        let begin = tokio::time::Instant::now();
        let lookup = tokio::spawn(async move { servers.look_up("app").await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        membership.send_replace(now);
        assert_eq!(lookup.await.unwrap(), login(true));
        let limit_ms = if is_given_up { 20 } else { 1_000 };
        assert_eq!(begin.elapsed(), Duration::from_millis(limit_ms));
    }
}
