//! Splits requests between services by weight.

/// Returns the index of a part that is chosen by weight. `random` are 64 random bits. `None`: no
/// part has a weight.
pub fn choose(weights: impl Iterator<Item = u32> + Clone, random: u64) -> Option<usize> {
    let total: u64 = weights.clone().map(u64::from).sum();
    // The high bits of the product are below the total, and uniform.
    let mut place = ((u128::from(random) * u128::from(total)) >> 64) as u64;
    for (index, weight) in weights.enumerate() {
        let weight = u64::from(weight);
        if place < weight {
            return Some(index);
        }
        place -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_gets_its_share_of_the_random_numbers() {
        for weights in [&[90, 10][..], &[0, 1, 3], &[5], &[1_000, 0, 1], &[256; 7]] {
            let total: u32 = weights.iter().sum();
            let mut counts = vec![0; weights.len()];
            for part in 0..total {
                // The middle of each part of all numbers.
                let random = (u128::from(part * 2 + 1) << 63) / u128::from(total);
                let index = choose(weights.iter().copied(), random as u64).unwrap();
                counts[index] += 1;
            }
            assert_eq!(counts, weights);
        }
    }

    #[test]
    fn a_part_without_weight_is_never_chosen() {
        for random in [0, 1, u64::MAX / 2, u64::MAX] {
            assert_eq!(choose([0, 7, 0].into_iter(), random), Some(1));
            assert_eq!(choose([0, 0].into_iter(), random), None);
            assert_eq!(choose([].into_iter(), random), None);
        }
    }
}
