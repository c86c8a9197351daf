//! Handles cancel requests, which arrive on connections of their own, and forwards each to the
//! session, process or Evenkeel instance that issued its key.

use std::rc::Rc;

use evenkeel_engine::timers;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::startup::CancelKey;

use super::server_login;
use crate::cancel::CancelRoute;
use crate::server::Server;
use crate::service::Service;
use crate::session::cancel::{LIMIT, pass_to_worker};
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::server_login::reach;
use crate::worker::Worker;

/// Handles a cancel request. The protocol has no reply to it.
pub(super) async fn request(worker: &Rc<Worker>, service: &Service, key: CancelKey<'_>) {
    let shared = &worker.shared;
    let Some(keyring) = shared.keyring.get() else {
        return;
    };
    match keyring.read(key) {
        CancelRoute::Here(claim) => pass_to_worker(shared, claim),
        CancelRoute::OtherProcess => {
            if let Some(forward) = shared.predecessor.load().as_ref() {
                // A cancel request has no reply, whichever process accepts it.
                let _ = forward(key.process, key.secret.to_vec());
            }
        }
        CancelRoute::Peer(instance) => {
            let view = service.snapshot_owned();
            let peer = view
                .database()
                .and_then(|database| database.peers.get(&instance));
            if let Some(peer) = peer {
                pass_on(worker, service, peer, key).await;
            }
        }
        CancelRoute::Nobody => {}
    }
}

/// Forwards a cancel request to the Evenkeel instance that issued the key.
async fn pass_on(worker: &Rc<Worker>, service: &Service, peer: &Server, key: CancelKey<'_>) {
    let secret = crate::cancel::forwarded(key.secret);
    let passing = async {
        let Ok(mut stream) = reach(worker, service, peer).await else {
            return;
        };
        let mut out = Vec::new();
        let process = key.process;
        build::cancel(
            &mut out,
            CancelKey {
                process,
                secret: &secret,
            },
        );
        let _ = stream.send(worker, &out).await;
        let _ = stream.receive(worker, &mut out).await;
    };
    let _ = timers::timeout(LIMIT, passing).await;
}

/// Sends a cancel request to the server, which closes the connection after processing it.
pub(in crate::session) async fn send(
    worker: &Rc<Worker>,
    service: &Service,
    target: &CancelTarget,
) {
    let key = target.key.borrow().clone();
    let Some((process, secret)) = key else {
        return;
    };
    let mut stream = match server_login::dial_beside(worker, service, target).await {
        Ok(stream) => stream,
        Err(error) => {
            let (server, why) = (&target.pool_handle.server.name, error.message);
            tracing::warn!(%server, why, "cannot cancel query: no server connection available");
            return;
        }
    };
    let mut out = Vec::new();
    let key = CancelKey {
        process,
        secret: &secret,
    };
    build::cancel(&mut out, key);
    if stream.send(worker, &out).await.is_ok() {
        let _ = stream.receive(worker, &mut out).await;
    }
}
