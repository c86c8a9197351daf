//! The console as clients see it.
