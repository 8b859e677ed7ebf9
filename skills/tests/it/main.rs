//! Integration tests on real skill folders and on the evaluation set.

mod choosing;
mod common;
mod format;
