//! Tests of the kernels from outside.
#![expect(clippy::float_cmp, reason = "what is compared is exact")]
#![expect(clippy::print_stderr, reason = "what is skipped is reported")]

mod common;
mod contract;
mod golden_rope;
mod invariance;
mod moving;
mod quantised;
