//! Finding and fetching model files.
//!
//! [`MODELS`] is the list of known models, [`ModelChoice`] turns what a user
//! wrote into one of them or into a file, and [`ModelStore`] brings a known
//! model into the cache folder from the first of its sources that has it.
//!
//! **Invariant:** under its final name a model file is complete and has the
//! SHA-256 of the manifest. Bytes that are not checked yet live under another
//! name, and only the holder of the model's lock writes them.
//!
//! It refuses to run anything it fetched, to take names or sizes from what it
//! fetched, and to print: what happens is told through [`Progress`].
//!
//! A further model is one entry in `manifest.rs`; a further kind of source is
//! one file under `source/` and one `mod` line in `source.rs`.

mod draft;
mod error;
mod fetch;
mod lock;
mod manifest;
mod progress;
mod resolve;
mod source;
mod stamp;
#[cfg(test)]
mod testing;

pub use draft::{Copied, Draft, Report};
pub use error::{ModelError, Refusal};
pub use fetch::{ModelStore, Origin, PulledModel};
pub use manifest::{DEFAULT_MODEL_ID, KnownModel, MODELS, Support, default_model, known_model};
pub use progress::Progress;
pub use resolve::ModelChoice;
pub use source::{HubSource, ModelSource, SourceError, WheelSource};
