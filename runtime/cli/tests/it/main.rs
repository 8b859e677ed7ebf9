//! Tests of the whole workspace and of the command.

mod command;
mod errors;
mod json;
mod layering;
mod skills;
mod source_size;
