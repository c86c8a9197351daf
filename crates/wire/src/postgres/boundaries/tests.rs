//! Tests of what this module promises.
