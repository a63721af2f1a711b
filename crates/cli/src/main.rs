//! The `jaguar` command.
fn main() {}
