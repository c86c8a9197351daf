//! Parses the histogram of latencies that sysbench prints with `--histogram`.

/// Latencies in milliseconds, ascending, with the number of queries for each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram(Vec<(f64, u64)>);

impl Histogram {
    /// Reads a line such as `       0.391 |***                      512`; returns false for any
    /// other.
    pub(super) fn read_line(&mut self, line: &str) -> bool {
        let Some((value, rest)) = line.split_once('|') else {
            return false;
        };
        let count = rest.trim_start_matches(['*', ' ']).trim_end();
        match (value.trim().parse(), count.parse()) {
            (Ok(value), Ok(count)) => {
                self.0.push((value, count));
                true
            }
            _ => false,
        }
    }

    /// Returns the latency that this part of the queries (0 to 1) did not exceed; `None` without
    /// queries.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        let total: u64 = self.0.iter().map(|(_, count)| count).sum();
        let wanted = part * total as f64;
        let mut seen = 0;
        let reaches = |(_, count): &&(f64, u64)| {
            seen += count;
            seen as f64 >= wanted
        };
        self.0.iter().find(reaches).map(|(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_read_off_the_lines_that_are_of_a_histogram() {
        let mut histogram = Histogram::default();
        for line in [
            "0.100 |****                                     90",
            "0.200 |*                                        9",
            "8.000 |                                         1",
        ] {
            assert!(histogram.read_line(line), "{line}");
        }
        for line in [
            "value  ------------- distribution ------------- count",
            "Latency (ms):",
        ] {
            assert!(!histogram.read_line(line), "{line}");
        }
        assert_eq!(histogram.quantile_ms(0.5), Some(0.1));
        assert_eq!(histogram.quantile_ms(0.99), Some(0.2));
        assert_eq!(histogram.quantile_ms(1.0), Some(8.0));
        assert_eq!(Histogram::default().quantile_ms(0.5), None);
    }
}
