//! The engine on a tiny random model: what holds for any model is shown here,
//! quickly; agreement with reference numbers is shown on a real one by the
//! runtime's tests.

mod activation;
mod bad_files;
mod context;
mod edits;
mod exactness;
mod families;
mod patch;
mod real_models;
mod tiny;
mod verified;
mod vocabularies;
