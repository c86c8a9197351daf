//! Tests of the parts that need no server.
