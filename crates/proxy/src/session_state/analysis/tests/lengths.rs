//! Tests that the time of an analysis is linear in the length of the text.

use std::time::{Duration, Instant};

use super::Catalog;
use crate::session_state::analysis::read_in_doubt;

/// Limit for an unoptimized build on a busy machine. Reading the rest of a text at each word takes
/// longer.
const LIMIT: Duration = Duration::from_secs(10);

/// TO SEE THIS RED: search for ON COMMIT DROP again at each TEMP.
#[test]
fn long_texts_are_read_once() {
    for (begin, piece, end) in [
        ("DO $$ begin ", "create temp ", "end $$"),
        ("SELECT 1 FROM t", ", x", ""),
        ("CREATE TABLE x (a int", " default set_config", ")"),
    ] {
        let text = [begin, &piece.repeat(200_000 / piece.len()), end].concat();
        let since = Instant::now();
        let _ = read_in_doubt(text.as_bytes(), false, Some(&Catalog), true);
        let taken = since.elapsed();
        assert!(taken < LIMIT, "{begin}: {taken:?}");
    }
}
