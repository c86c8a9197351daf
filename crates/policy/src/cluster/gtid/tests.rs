//! Sets of transactions: what they hold, and how they compare.
