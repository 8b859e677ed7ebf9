//! Doing things in the world on a model's behalf: policy, approvals, sandbox,
//! tools.
//!
//! **Invariant:** knows nothing of models, KV or skills; every call is checked
//! here again, whoever made it.
//!
//! There is no code yet: no command runs tools. The package holds the place in
//! the crate graph, so that its edges are fixed before there is code to bend
//! them.
#![forbid(unsafe_code)]
