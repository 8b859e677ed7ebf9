//! What can go wrong, whose side it is on, and what to do.

use skillgraft_engine::EngineError;

use crate::models::ModelError;

/// An error of the runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model file could not be had.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// The model could not be loaded or run.
    #[error(transparent)]
    Engine(EngineError),

    /// The skills could not be read, or none could be chosen.
    #[error(transparent)]
    Skills(#[from] skillgraft_skills::Error),

    /// No folder for models and blocks.
    #[error("no cache folder: neither `SKILLGRAFT_CACHE_DIR`, `XDG_CACHE_HOME` nor `HOME` is set")]
    NoCacheDir,

    /// An environment variable that cannot be understood.
    #[error("`{name}` is `{value}`, expected {expected}")]
    BadVariable {
        /// The variable.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        expected: &'static str,
    },

    /// The configuration file cannot be read or understood.
    #[error("`{}`: {reason}", path.display())]
    BadConfig {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// System prompt and catalog leave no room.
    #[error("the static prefix has {n_tokens} tokens, the context holds {limit}")]
    PrefixTooLong {
        /// Its length.
        n_tokens: usize,
        /// The context limit.
        limit: usize,
    },

    /// A skill does not fit into what is left of the context.
    #[error("skill `{name}` has {n_tokens} tokens, {room} are left of the context of {limit}")]
    SkillTooLong {
        /// The skill.
        name: String,
        /// Its length, with its frame.
        n_tokens: usize,
        /// What is left.
        room: usize,
        /// The context limit.
        limit: usize,
    },

    /// The prompt does not fit into what is left of the context.
    #[error("the prompt has {n_tokens} tokens, {room} are left of the context of {limit}")]
    PromptTooLong {
        /// Its length, with its frame.
        n_tokens: usize,
        /// What is left.
        room: usize,
        /// The context limit.
        limit: usize,
    },

    /// Blocks were checked, and some are not usable.
    #[error("{n_bad} of {n_blocks} blocks are not usable")]
    BadBlocks {
        /// Those that are not.
        n_bad: usize,
        /// All of them.
        n_blocks: usize,
    },

    /// The prompt has no text.
    #[error("the prompt is empty")]
    EmptyPrompt,

    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Interrupted => Error::Interrupted,
            error => Error::Engine(error),
        }
    }
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Model(error) => error.hint(),
            Error::Engine(error) => error.hint(),
            Error::Skills(error) => error.hint(),
            Error::NoCacheDir => Some("set `SKILLGRAFT_CACHE_DIR` to a folder".to_owned()),
            Error::BadVariable { name, .. } => Some(format!("correct or unset `{name}`")),
            Error::BadConfig { .. } => Some(
                "known are, in `[skills]`, `folders`, `discover`, `depth`, `max_folders` and \
                 `catalog_share`"
                    .to_owned(),
            ),
            Error::PrefixTooLong { .. } => {
                Some("pass fewer skills, or use a model with a longer context".to_owned())
            }
            Error::SkillTooLong { name, .. } => Some(format!(
                "split `{name}` into nested skills or reference files, \
                 or use a model with a longer context"
            )),
            Error::PromptTooLong { .. } => {
                Some("shorten the prompt, or use a model with a longer context".to_owned())
            }
            Error::BadBlocks { .. } => Some(
                "they are compiled again when they are needed; `skillgraft cache clear` removes all"
                    .to_owned(),
            ),
            Error::EmptyPrompt => Some("pass a question: `skillgraft run \"...\"`".to_owned()),
            Error::Interrupted => None,
        }
    }

    /// Whether the cause is on the user's side, rather than ours.
    pub fn is_user_error(&self) -> bool {
        match self {
            Error::Model(error) => error.is_user_error(),
            // What the engine finds wrong is in the file, the prompt or the
            // machine it was given.
            Error::Engine(error) => !matches!(error, EngineError::ForeignBlock { .. }),
            Error::Skills(_)
            | Error::NoCacheDir
            | Error::BadVariable { .. }
            | Error::BadConfig { .. }
            | Error::PrefixTooLong { .. }
            | Error::SkillTooLong { .. }
            | Error::PromptTooLong { .. }
            | Error::BadBlocks { .. }
            | Error::EmptyPrompt
            | Error::Interrupted => true,
        }
    }
}
