//! Determines the order of runs: blocks in which every target runs each load at each point.

use super::experiment::{Depth, Part};

/// One run to perform; the numbers are indexes into the part's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Number of the block, from 1.
    pub(crate) block: u32,
    /// Position among the targets, from 1.
    pub(crate) turn: u32,
    pub(crate) load: usize,
    pub(crate) point: u32,
    pub(crate) target: usize,
    /// Seed, equal for all targets of a block, load and point.
    pub(crate) seed: u64,
}

/// Input of a schedule.
pub(crate) struct Plan<'a> {
    pub(crate) part: &'a Part,
    pub(crate) depth: Depth,
    pub(crate) blocks: u32,
    pub(crate) seed: u64,
    /// Indexes of the targets that take part.
    pub(crate) targets: Vec<usize>,
}

impl Plan<'_> {
    /// Returns all runs in order. The targets of a load and point run directly after each other, so
    /// that a temporary slowdown of the machine affects all of them. The order of targets varies.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for block in 1..=self.blocks {
            let mut groups = 0;
            for (load, wanted) in self.part.load.iter().enumerate() {
                if self.depth == Depth::Quick && !wanted.quick {
                    continue;
                }
                let takers = self.takers(load);
                for point in wanted.points(self.depth) {
                    groups += 1;
                    let first = block as usize + groups + self.seed as usize % 1000;
                    let seed = self.seed_of(block, load, point);
                    for turn in 0..takers.len() {
                        steps.push(Step {
                            block,
                            turn: turn as u32 + 1,
                            load,
                            point,
                            target: takers[(first + turn) % takers.len()],
                            seed,
                        });
                    }
                }
            }
        }
        steps
    }

    /// Returns the targets that run this load.
    pub(crate) fn takers(&self, load: usize) -> Vec<usize> {
        let load = &self.part.load[load];
        let mut targets = self.targets.clone();
        targets.retain(|target| self.part.target[*target].takes(load));
        targets
    }

    /// Returns a seed of 31 bits, the maximum of the generators.
    fn seed_of(&self, block: u32, load: usize, point: u32) -> u64 {
        let mixed =
            mix(self.seed ^ mix(u64::from(block) << 40 | (load as u64) << 32 | u64::from(point)));
        mixed % 0x7fff_ffff + 1
    }
}

/// The finalizer of SplitMix64: every input bit affects every output bit.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::experiment::find;
    use super::*;

    fn plan_of(part: &Part) -> Plan<'_> {
        Plan {
            part,
            depth: Depth::Quick,
            blocks: 3,
            seed: 7,
            targets: (0..part.target.len()).collect(),
        }
    }

    fn part() -> Part {
        let mut found = find(&["web-round-robin".to_owned()]).expect("it is built in");
        found.remove(0).part.remove(0)
    }

    #[test]
    fn every_target_has_one_turn_per_block_load_and_point() {
        let part = part();
        let steps = plan_of(&part).steps();
        let runs: BTreeSet<_> = steps
            .iter()
            .map(|step| (step.block, step.load, step.point, step.target))
            .collect();
        let loads = part.load.iter().filter(|load| load.quick);
        let points: usize = loads.map(|load| load.points(Depth::Quick).len()).sum();
        assert_eq!(steps.len(), 3 * points * part.target.len());
        assert_eq!(runs.len(), steps.len());
    }

    #[test]
    fn another_target_is_first_in_each_block() {
        let part = part();
        let steps = plan_of(&part).steps();
        let point = part.load[0].points(Depth::Quick)[0];
        let first: BTreeSet<usize> = steps
            .iter()
            .filter(|step| step.turn == 1 && step.point == point)
            .map(|step| step.target)
            .collect();
        assert_eq!(first.len(), 3);
    }

    #[test]
    fn targets_of_a_block_are_given_the_same_seed_and_blocks_another() {
        let part = part();
        let plan = plan_of(&part);
        let steps = plan.steps();
        let seeds = |block: u32, point: u32| -> BTreeSet<u64> {
            steps
                .iter()
                .filter(|step| (step.block, step.point) == (block, point))
                .map(|step| step.seed)
                .collect()
        };
        assert_eq!(seeds(1, 9000).len(), 1);
        assert_ne!(seeds(1, 9000), seeds(2, 9000));
        assert_ne!(seeds(1, 9000), seeds(1, 18000));
        assert_eq!(plan.steps(), steps);
    }
}
