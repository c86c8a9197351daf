//! Runs probes like the control plane, and checks their observations.

use std::time::{Duration, Instant};

use evenkeel_monitor::probe::{
    AccountSource, Fingerprint, MonitorAccount, Observation, Outcome, Probe, Prober, Target, Tls,
};

use crate::rig::{PATIENCE, Server};

/// Returns the server's address as the control plane passes it.
pub(crate) fn target(server: &Server) -> Target {
    Target::tcp(server.address())
}

/// Creates an authority and a certificate for `db.test` and 127.0.0.1 that it signed. Returns PEM
/// of the authority, the certificate and the key.
pub(crate) fn certificates() -> (String, String, String) {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertifiedIssuer::self_signed(params, authority_key).unwrap();
    let names = vec!["db.test".to_owned(), "127.0.0.1".to_owned()];
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(names).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    (authority.pem(), certificate.pem(), key.serialize_pem())
}

pub(crate) fn account(user: &str, password: &str) -> MonitorAccount {
    MonitorAccount {
        user: user.to_owned(),
        password: password.to_owned(),
        database: None,
        source: AccountSource::Service,
    }
}

/// Time that a busy machine may add to the limit of a probe.
const DELAY_MAX: Duration = Duration::from_secs(4);

/// Runs a probe like the control plane does, and checks the guarantees of every probe.
pub(crate) fn ask(
    probe: Probe,
    account: Option<MonitorAccount>,
    tls: Tls,
    target: &Target,
    timeout: Duration,
) -> Observation {
    let asker = Prober::new(&probe, account, tls).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let observation = asker.ask(target, timeout).await;
        let took = start.elapsed();
        assert!(took < timeout + DELAY_MAX, "took {took:?}: {observation:?}");
        assert!(observation.took <= took);
        let deadline = Instant::now() + PATIENCE;
        while tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            > 0
        {
            assert!(
                Instant::now() < deadline,
                "a task is left behind: {observation:?}"
            );
            tokio::task::yield_now().await;
        }
        observation
    })
}

/// Returns the fingerprint that a failure names.
#[track_caller]
pub(crate) fn named_fingerprint(observation: &Observation) -> Fingerprint {
    let Outcome::Misconfigured(why) = &observation.outcome else {
        panic!("{observation:?}");
    };
    let text = why.split('"').find(|part| part.starts_with("sha256:"));
    text.unwrap().parse().unwrap()
}

#[track_caller]
pub(crate) fn assert_passed(observation: &Observation) {
    assert_eq!(observation.outcome, Outcome::Passed, "{observation:?}");
}

#[track_caller]
pub(crate) fn assert_failed(observation: &Observation, words: &str) {
    match &observation.outcome {
        Outcome::Failed(why) | Outcome::Misconfigured(why) if why.contains(words) => {}
        _ => panic!("wanted Failed with {words:?}: {observation:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_refused(observation: &Observation, words: &str) {
    match &observation.outcome {
        Outcome::LoginRefused(why) if why.contains(words) => {}
        _ => panic!("wanted LoginRefused with {words:?}: {observation:?}"),
    }
}
