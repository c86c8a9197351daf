//! Counts the permits of a limit that this process shares with other processes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Value of a limit that means "no limit".
pub const UNLIMITED: u32 = u32::MAX;

/// Permits in use under a limit, counted over all workers of this process and over other processes.
///
/// While an old process drains, the new process counts the old one's permits as in use. Only the
/// control plane changes limits; any thread acquires permits.
#[derive(Debug)]
pub struct Permits {
    /// This process's share of the limit in the upper half, permits in use in the lower half. They
    /// share one word so that a lowered limit applies to the next acquisition and the count is
    /// exact.
    packed: AtomicU64,
    limit: AtomicU32,
    in_use_elsewhere: AtomicU32,
    /// Maximum share of this process after it begins to hand over to another one.
    ceiling: AtomicU32,
}

impl Permits {
    /// Creates a limit with no permit in use.
    pub fn new(limit: u32) -> Permits {
        Permits {
            packed: AtomicU64::new(pack(limit, 0)),
            limit: AtomicU32::new(limit),
            in_use_elsewhere: AtomicU32::new(0),
            ceiling: AtomicU32::new(UNLIMITED),
        }
    }

    /// Returns the number of permits in use in this process.
    pub fn in_use(&self) -> u32 {
        unpack(self.packed.load(Relaxed)).1
    }

    /// Returns the number of permits that other processes use, or may acquire without notice.
    pub fn in_use_elsewhere(&self) -> u32 {
        self.in_use_elsewhere.load(Relaxed)
    }

    /// Returns the limit over all processes.
    pub fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// Returns the number of permits that this process could acquire now.
    pub fn free(&self) -> u32 {
        let (share, used) = unpack(self.packed.load(Relaxed));
        share.saturating_sub(used)
    }

    /// Returns whether no permit could be acquired now.
    pub fn is_full(&self) -> bool {
        let (share, used) = unpack(self.packed.load(Relaxed));
        used >= share
    }

    /// Acquires a permit; false if there is none. The count never exceeds the limit, not even for a
    /// moment.
    pub fn try_acquire(&self) -> bool {
        let one_more = |packed| {
            let (share, used) = unpack(packed);
            (used < share).then(|| pack(share, used + 1))
        };
        self.packed.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Releases a permit; false if none was in use. Without this check the count would wrap around
    /// and the limit would look full forever.
    pub fn release(&self) -> bool {
        let one_less = |packed| {
            let (share, used) = unpack(packed);
            used.checked_sub(1).map(|used| pack(share, used))
        };
        self.packed.fetch_update(Relaxed, Relaxed, one_less).is_ok()
    }

    /// Changes the limit. Permits in use above a lowered limit remain until they are released.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Relaxed);
        self.update_share();
    }

    /// Sets the number of permits that belong to other processes.
    pub fn set_used_by_other_processes(&self, permits: u32) {
        self.in_use_elsewhere.store(permits, Relaxed);
        self.update_share();
    }

    /// Keeps the permits in use and half of the free ones; the others now belong to another
    /// process.
    pub fn keep_half(&self) {
        self.lower_ceiling(|share, used| used + (share.saturating_sub(used)) / 2);
    }

    /// Keeps the permits in use and `more` of the free ones; never increases the share.
    pub fn keep_in_use_and(&self, more: u32) {
        self.lower_ceiling(|share, used| share.min(used.saturating_add(more)));
    }

    /// Takes back the whole limit.
    pub fn take_back(&self) {
        self.ceiling.store(UNLIMITED, Relaxed);
        self.update_share();
    }

    /// Returns the number of permits that this process uses, or may acquire without notice. The
    /// next process must count all of them as in use.
    pub fn claimed(&self) -> u32 {
        let (share, used) = unpack(self.packed.load(Relaxed));
        if share == UNLIMITED {
            used
        } else {
            used.max(share)
        }
    }

    fn lower_ceiling(&self, keep: impl Fn(u32, u32) -> u32) {
        if self.limit.load(Relaxed) == UNLIMITED {
            return;
        }
        let lowered = |packed| {
            let (share, used) = unpack(packed);
            let share = keep(share, used);
            self.ceiling.store(share, Relaxed);
            Some(pack(share, used))
        };
        // Cannot fail: the closure always returns a value.
        let _ = self.packed.fetch_update(Relaxed, Relaxed, lowered);
    }

    fn update_share(&self) {
        let limit = self.limit.load(Relaxed);
        let share = if limit == UNLIMITED {
            UNLIMITED
        } else {
            let claim = limit.min(self.ceiling.load(Relaxed));
            claim.saturating_sub(self.in_use_elsewhere())
        };
        let shared = |packed| Some(pack(share, unpack(packed).1));
        // Cannot fail: the closure always returns a value.
        let _ = self.packed.fetch_update(Relaxed, Relaxed, shared);
    }
}

fn pack(share: u32, used: u32) -> u64 {
    u64::from(share) << 32 | u64::from(used)
}

fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(permits: &Permits, count: u32) -> u32 {
        (0..count).map(|_| u32::from(permits.try_acquire())).sum()
    }

    #[test]
    fn what_another_process_has_is_taken() {
        let permits = Permits::new(5);
        permits.set_used_by_other_processes(3);
        assert_eq!((take(&permits, 9), permits.is_full()), (2, true));
        permits.set_used_by_other_processes(2);
        assert_eq!(take(&permits, 9), 1);
        permits.set_used_by_other_processes(9);
        assert_eq!((take(&permits, 9), permits.in_use()), (0, 3));
    }

    #[test]
    fn what_is_kept_and_what_is_handed_over_are_the_limit_together() {
        let (old, new) = (Permits::new(10), Permits::new(10));
        assert_eq!(take(&old, 5), 5);
        old.keep_half();
        new.set_used_by_other_processes(old.claimed());
        assert_eq!((take(&old, 20), take(&new, 20)), (2, 3));
    }

    #[test]
    fn a_process_that_hands_over_never_gets_more_than_it_kept() {
        let old = Permits::new(10);
        assert_eq!(take(&old, 4), 4);
        old.keep_in_use_and(1);
        assert_eq!(old.claimed(), 5);
        old.set_limit(10);
        old.set_used_by_other_processes(0);
        assert_eq!(take(&old, 20), 1);
        assert!(old.release() && old.release());
        old.keep_in_use_and(0);
        assert_eq!((old.claimed(), take(&old, 9)), (3, 0));
        old.keep_in_use_and(5);
        assert_eq!(old.claimed(), 3, "given away for good");
        old.take_back();
        assert_eq!(take(&old, 20), 7);
    }

    #[test]
    fn without_a_limit_only_what_is_taken_is_claimed() {
        let old = Permits::new(UNLIMITED);
        assert_eq!(take(&old, 4), 4);
        old.keep_half();
        old.set_used_by_other_processes(7);
        assert_eq!((old.claimed(), take(&old, 3)), (4, 3));
    }

    #[test]
    fn a_place_given_back_too_often_is_told() {
        let permits = Permits::new(1);
        assert!(!permits.release());
        assert!(permits.try_acquire() && permits.release());
    }
}
