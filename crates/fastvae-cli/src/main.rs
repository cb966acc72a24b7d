//! The `fastvae` command line.

fn main() {}
