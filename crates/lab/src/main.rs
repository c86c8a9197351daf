//! The program `evenkeel-lab`.

fn main() {}
