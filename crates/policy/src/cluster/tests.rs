//! The rules, kind by kind, as tables.
