//! Tests that the time of an analysis is linear in the length of the text.

use std::time::{Duration, Instant};

use super::Catalog;
use crate::session_state::analysis::analyze_with_doubts;

/// Limit for an unoptimized build on a busy machine. An analysis in quadratic time exceeds it.
const LIMIT: Duration = Duration::from_secs(10);

/// This test fails if the analysis searches for ON COMMIT DROP again after each TEMP.
#[test]
fn long_texts_are_analyzed_in_linear_time() {
    for (begin, piece, end) in [
        ("DO $$ begin ", "create temp ", "end $$"),
        ("SELECT 1 FROM t", ", x", ""),
        ("CREATE TABLE x (a int", " default set_config", ")"),
    ] {
        let text = [begin, &piece.repeat(200_000 / piece.len()), end].concat();
        let since = Instant::now();
        let _ = analyze_with_doubts(text.as_bytes(), false, Some(&Catalog), true);
        let taken = since.elapsed();
        assert!(taken < LIMIT, "{begin}: {taken:?}");
    }
}
