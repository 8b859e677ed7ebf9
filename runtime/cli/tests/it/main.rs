//! Tests of the whole workspace and of the command.

mod layering;
mod source_size;
