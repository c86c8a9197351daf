//! Settings, sets and scripts.
