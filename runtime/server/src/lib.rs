//! HTTP: the OpenAI-compatible API. tokio lives here and in the gateway only.
//!
//! **Invariant:** a thin layer over the runtime; wire types are not engine types.
//!
//! There is no code yet: no command serves. The package holds the place in the
//! crate graph, so that its edges are fixed before there is code to bend them.
#![forbid(unsafe_code)]
