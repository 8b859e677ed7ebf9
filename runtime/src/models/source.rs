//! The places a model can come from: a small port, one file for each kind.
//!
//! **Invariant:** a source only delivers bytes into a [`Draft`]; size and
//! checksum are judged there, so no source is trusted. A source that cannot
//! deliver says why in one line and the next is asked.

mod hub;
mod wheel;

use std::fmt;

use super::draft::Draft;
use super::error::ModelError;

pub use hub::HubSource;
pub use wheel::WheelSource;

/// Why a source stopped.
#[derive(Debug)]
pub enum SourceError {
    /// It does not have the model, or could not be reached: ask the next one.
    Refused {
        /// Why, in one line.
        reason: String,
    },
    /// Another source would meet the same: a full disk, or a cancelled pull.
    Fatal(ModelError),
}

impl SourceError {
    /// Builds a refusal.
    pub fn refused(reason: impl Into<String>) -> Self {
        SourceError::Refused { reason: reason.into() }
    }
}

impl From<ModelError> for SourceError {
    fn from(error: ModelError) -> Self {
        SourceError::Fatal(error)
    }
}

/// A place from which a model file can be fetched.
pub trait ModelSource: fmt::Debug + Send + Sync {
    /// Names the source to the user, for example `Python wheel NAME==VERSION`.
    fn label(&self) -> String;

    /// Delivers the whole file into `draft`, after [`Draft::begin`] or from
    /// where [`Draft::resume`] says. The caller checks the result.
    ///
    /// # Errors
    /// [`SourceError::Refused`] when the source cannot deliver;
    /// [`SourceError::Fatal`] for what the draft's methods return as such.
    fn fetch(&self, draft: &mut Draft<'_>) -> Result<(), SourceError>;
}
