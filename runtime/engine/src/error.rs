//! What can go wrong in the engine, split by what the caller can do about it.

use std::path::PathBuf;

use skillgraft_kv::LedgerError;

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model file could not be read.
    #[error("cannot read the model file `{}`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A model file could not be written.
    #[error("cannot write the model file `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A file that would be overwritten.
    #[error("`{}` is there already", path.display())]
    FileExists {
        /// The file.
        path: PathBuf,
    },

    /// The file is not GGUF, or its header is damaged.
    #[error("`{}` is not a readable GGUF file: {reason}", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The header names data that the file does not hold.
    #[error("`{}` is truncated: tensor `{tensor}` ends at byte {needed}, the file has {found}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// A tensor that is cut off.
        tensor: String,
        /// Bytes that the file should have at least.
        needed: u64,
        /// Bytes that it has.
        found: u64,
    },

    /// A model family that no file in `model/families` describes.
    #[error("unsupported model architecture `{found}`; supported: {supported}")]
    UnsupportedArchitecture {
        /// `general.architecture` of the file.
        found: String,
        /// The supported ones.
        supported: String,
    },

    /// A supported family, with something in the file that is not.
    #[error("unsupported model: {0}")]
    UnsupportedModel(String),

    /// The weights do not fit into memory.
    #[error("the model needs {needed_bytes} bytes of memory, {available_bytes} are available")]
    TooLarge {
        /// Bytes of the unpacked weights.
        needed_bytes: u64,
        /// Bytes the system says are available.
        available_bytes: u64,
    },

    /// The tokenizer of the file cannot be used.
    #[error("tokenizer: {0}")]
    Tokenizer(String),

    /// The chat template failed.
    #[error("chat template: {0}")]
    Template(String),

    /// The chat template changes the text of earlier turns when a message is
    /// added, so that nothing before it could be reused.
    #[error("the chat template rewrites earlier turns when a `{role}` message is added")]
    TemplateRewrites {
        /// Role of the added message.
        role: &'static str,
    },

    /// The context is full.
    #[error(transparent)]
    Context(#[from] LedgerError),

    /// A block that does not belong to this model.
    #[error("block `{label}` cannot be grafted: {reason}")]
    ForeignBlock {
        /// The block's label.
        label: String,
        /// What differs.
        reason: String,
    },

    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl EngineError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            EngineError::Io { .. } | EngineError::NotGguf { .. } => Some(
                "pass a GGUF file with `--model FILE.gguf`, or leave the option out to use the default model"
                    .to_owned(),
            ),
            EngineError::Truncated { .. } => {
                Some("the download was cut short: fetch the file again".to_owned())
            }
            EngineError::UnsupportedArchitecture { .. } | EngineError::UnsupportedModel(_) => {
                Some("`skillgraft model list` shows the models that work".to_owned())
            }
            EngineError::TooLarge { .. } => {
                Some("weights are unpacked to 32-bit floats: use a smaller model".to_owned())
            }
            EngineError::Context(_) => Some(
                "shorten the prompt or the skill (split it into sub-skills or reference files), \
                 or use a model with a longer context"
                    .to_owned(),
            ),
            EngineError::Tokenizer(_)
            | EngineError::Template(_)
            | EngineError::TemplateRewrites { .. } => {
                Some("use another GGUF conversion of the model".to_owned())
            }
            EngineError::FileExists { .. } => Some("choose another name".to_owned()),
            EngineError::Write { .. } => {
                Some("check that the folder exists, may be written and has room".to_owned())
            }
            EngineError::ForeignBlock { .. } | EngineError::Interrupted => None,
        }
    }
}
