//! Runs clients that disconnect in the middle of any exchange of their protocol.

use std::thread::sleep;
use std::time::Duration;

use super::client::Client;
use super::failure::Failure;
use super::seed::Chance;
use super::stage::TestBed;

/// An abrupt action on a connection; the tag identifies the session.
pub(super) type Cruelty<C> = fn(&TestBed, C, &mut Chance, &str) -> Result<(), Failure>;

/// Limit for a cancelled query to end, while cancels are repeated.
pub(super) const CANCEL_LIMIT: Duration = Duration::from_secs(4);
pub(super) const CANCELS_MAX: usize = 6;

/// Duration of the query without a cancel. Longer than all cancels, and shorter than the final
/// limit for idle servers, since a server may have been frozen when a cancel arrived.
pub(super) const SLEEP_S: u32 = 30;

const PAUSE: Duration = Duration::from_millis(20);

/// Runs until the stage ends; `only` names actions, empty means all.
pub(super) fn torment<C: Client>(stage: &TestBed, number: u64, only: &[String]) {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let all = C::cruelties().iter();
    let chosen: Vec<_> = all.filter(|(name, _)| wanted(name)).collect();
    let mut chance = stage.chance(1_000 + number);
    for turn in 0_u64.. {
        if !stage.goes_on() || chosen.is_empty() {
            return;
        }
        let tag = format!("c{number}.{turn}");
        let (name, cruelty) = chosen[chance.below(chosen.len() as u64) as usize];
        let outcome = match stage.connect(&tag) {
            Ok(client) => cruelty(stage, client, &mut chance, &tag),
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(()) => *stage.notes.content().cruelties.entry(name).or_default() += 1,
            Err(failure) => stage.notes.judge(&format!("{tag}, {name}"), &failure),
        }
        sleep(PAUSE);
    }
}

/// Waits for a short time.
pub(super) fn linger(chance: &mut Chance, limit_ms: u64) {
    sleep(Duration::from_millis(chance.below(limit_ms)));
}

/// Returns an incomplete prefix of a packet.
pub(super) fn part<'a>(packet: &'a [u8], chance: &mut Chance) -> &'a [u8] {
    let length = 1 + chance.below(packet.len() as u64 - 1);
    &packet[..length as usize]
}
