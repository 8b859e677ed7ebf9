//! Integration tests on real skill folders and on the evaluation set.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these are tests: they may panic, and they print what they measure"
)]

mod choosing;
mod common;
mod format;
