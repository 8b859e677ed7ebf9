//! What can go wrong with models, split by what the caller can do about it.
//!
//! **Invariant:** every variant that a user can act on has a hint, and an I/O
//! error carries the path and what was being done there.

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why one source did not deliver a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The source, as shown to the user.
    pub source: String,
    /// Why, in one line.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.reason)
    }
}

/// Errors of choosing, finding and fetching a model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Neither the id of a known model nor a path.
    #[error("unknown model `{id}`")]
    UnknownModel {
        /// What was asked for.
        id: String,
        /// The known id closest to it, when one is close.
        nearest: Option<String>,
        /// All known ids.
        known: Vec<String>,
    },
    /// A path was given and there is nothing there.
    #[error("no model file at `{}`", path.display())]
    FileMissing {
        /// The path as given.
        path: PathBuf,
        /// The id of the known model whose file has this name.
        known_as: Option<String>,
    },
    /// A path was given and it is not a GGUF file.
    #[error("`{}` is not a GGUF file: {found}", path.display())]
    NotGguf {
        /// The path as given.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// A known model that this version cannot run.
    #[error("model `{id}` of family `{family}` cannot be run: {reason}")]
    Unsupported {
        /// The model's id.
        id: String,
        /// Its family.
        family: String,
        /// What is missing.
        reason: String,
    },
    /// The model is not in the cache folder.
    #[error("model `{id}` has not been pulled: no file at `{}`", path.display())]
    NotPulled {
        /// The model's id.
        id: String,
        /// Where it would be.
        path: PathBuf,
    },
    /// The file in the cache folder is not the model.
    #[error("model file `{}` is damaged: {reason}", path.display())]
    Damaged {
        /// The model's id.
        id: String,
        /// The damaged file.
        path: PathBuf,
        /// Expected and found size or checksum.
        reason: String,
    },
    /// Every source refused.
    #[error("no source delivered model `{id}`{}", list(refusals))]
    NoSource {
        /// The model's id.
        id: String,
        /// Each source in the order tried, with its reason.
        refusals: Vec<Refusal>,
    },
    /// The caller asked to stop.
    #[error("pulling model `{id}` was cancelled")]
    Cancelled {
        /// The model's id.
        id: String,
    },
    /// The file system refused.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was being done, as a verb: `create`, `write`, `read`.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// One line for each, after the message.
fn list(refusals: &[Refusal]) -> String {
    let mut lines = String::new();
    for refusal in refusals {
        let _ = write!(lines, "\n  - {refusal}");
    }
    lines
}

impl ModelError {
    /// What the user can do, for the line after the error.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            ModelError::UnknownModel { nearest: Some(id), .. } => format!("did you mean `{id}`?"),
            ModelError::UnknownModel { nearest: None, known, .. } => {
                format!("known models: `{}`; or pass `--model FILE.gguf`", known.join("`, `"))
            }
            ModelError::FileMissing { known_as: Some(id), .. } => {
                format!("a known model has a file of this name: pass `--model {id}`")
            }
            ModelError::FileMissing { known_as: None, .. } => {
                "check the path; `skillgraft model list` shows the models known by id".to_owned()
            }
            ModelError::NotGguf { .. } => {
                "pass a model converted to GGUF: `--model FILE.gguf`".to_owned()
            }
            ModelError::Unsupported { .. } => {
                "`skillgraft model list` shows which models can be run".to_owned()
            }
            ModelError::NotPulled { id, .. } | ModelError::Damaged { id, .. } => {
                format!("run `skillgraft model pull {id}`")
            }
            ModelError::NoSource { .. } => {
                "if you have a model file, pass it with `--model FILE.gguf`".to_owned()
            }
            ModelError::Cancelled { .. } => return None,
            ModelError::Io { source, .. } => return io_hint(source.kind()),
        })
    }

    /// Whether the cause lies with the caller or its machine (exit code 1), not
    /// with this program (exit code 2).
    pub fn is_user_error(&self) -> bool {
        match self {
            ModelError::Io { source, .. } => io_hint(source.kind()).is_some(),
            _ => true,
        }
    }

    /// For `map_err` on file operations.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| ModelError::Io { action, path: path.to_owned(), source }
    }
}

/// The I/O errors that a user can act on, and how.
fn io_hint(kind: ErrorKind) -> Option<String> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Some(
            "free some space, set `SKILLGRAFT_CACHE_DIR` to a folder on another disk, \
             or pass `--model FILE.gguf`"
                .to_owned(),
        ),
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::AlreadyExists
        | ErrorKind::Unsupported => Some(
            "set `SKILLGRAFT_CACHE_DIR` to a folder that can be written to, \
             or pass `--model FILE.gguf`"
                .to_owned(),
        ),
        _ => None,
    }
}
