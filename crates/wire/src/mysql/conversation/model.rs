//! A model server.
