//! Runs clients that disconnect in the middle of any exchange of their protocol.

use std::thread::sleep;
use std::time::Duration;

use super::client::Client;
use super::failure::Failure;
use super::seed::ChaosRng;
use super::stage::TestBed;

/// An abrupt action on a connection; the tag identifies the session.
pub(super) type AbruptAction<C> = fn(&TestBed, C, &mut ChaosRng, &str) -> Result<(), Failure>;

/// Limit for a cancelled query to end, while cancels are repeated.
pub(super) const CANCEL_LIMIT: Duration = Duration::from_secs(4);
pub(super) const CANCELS_MAX: usize = 6;

/// Duration of the query without a cancel. Longer than all cancels, and shorter than the final
/// limit for idle servers, since a server may have been frozen when a cancel arrived.
pub(super) const SLEEP_S: u32 = 30;

const PAUSE: Duration = Duration::from_millis(20);

/// Runs until the test bed ends; `only` names actions, empty means all.
pub(super) fn run_abrupt_clients<C: Client>(bed: &TestBed, number: u64, only: &[String]) {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let all = C::abrupt_actions().iter();
    let chosen: Vec<_> = all.filter(|(name, _)| wanted(name)).collect();
    let mut rng = bed.rng(1_000 + number);
    for turn in 0_u64.. {
        if !bed.is_running() || chosen.is_empty() {
            return;
        }
        let tag = format!("c{number}.{turn}");
        let (name, action) = chosen[rng.below(chosen.len() as u64) as usize];
        let outcome = match bed.connect(&tag) {
            Ok(client) => action(bed, client, &mut rng, &tag),
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(()) => {
                *bed.observations
                    .content()
                    .abrupt_actions
                    .entry(name)
                    .or_default() += 1
            }
            Err(failure) => bed
                .observations
                .record_failure(&format!("{tag}, {name}"), &failure),
        }
        sleep(PAUSE);
    }
}

/// Waits for a short time.
pub(super) fn linger(rng: &mut ChaosRng, limit_ms: u64) {
    sleep(Duration::from_millis(rng.below(limit_ms)));
}

/// Returns an incomplete prefix of a packet.
pub(super) fn part<'a>(packet: &'a [u8], rng: &mut ChaosRng) -> &'a [u8] {
    let length = 1 + rng.below(packet.len() as u64 - 1);
    &packet[..length as usize]
}
