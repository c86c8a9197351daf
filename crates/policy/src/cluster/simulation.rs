//! Seeded histories of clusters.
