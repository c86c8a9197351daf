//! Texts and what they mean.
