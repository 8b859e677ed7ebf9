//! What can keep a measurement from being made.

use std::path::PathBuf;

use skillgraft_engine::EngineError;

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model could not be had, loaded or run.
    #[error(transparent)]
    Runtime(#[from] skillgraft::Error),

    /// A file could not be read or written.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The evaluation set is not as described in its format.
    #[error("`{}`, line {line}: {reason}", path.display())]
    EvalSet {
        /// The file.
        path: PathBuf,
        /// Where in it, counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },

    /// There is nothing to measure.
    #[error("`{}` has no case of kind `single`", path.display())]
    NoCases {
        /// The file.
        path: PathBuf,
    },

    /// A way of getting a skill into the context that does not exist.
    #[error("unknown mode `{found}`; modes: {known}")]
    UnknownMethod {
        /// What was asked for.
        found: String,
        /// What there is.
        known: String,
    },

    /// A workload longer than the model's context.
    #[error("{what} needs {n_tokens} tokens, the context holds {limit}")]
    TooLong {
        /// The workload.
        what: String,
        /// Its length, with everything around it.
        n_tokens: usize,
        /// The context limit.
        limit: usize,
    },

    /// A length that a workload cannot have.
    #[error(
        "a skill of {n_tokens} tokens is too short to be measured, at least {least} are needed"
    )]
    TooShort {
        /// What was asked for.
        n_tokens: usize,
        /// The least.
        least: usize,
    },

    /// A peer that does not do what it should.
    #[error("{name} at {url}: {reason}")]
    Peer {
        /// What it is called.
        name: String,
        /// Where it was asked.
        url: String,
        /// What went wrong.
        reason: String,
    },

    /// Skills without a line that a case can be made of.
    #[error("none of the {n_skills} skills in {} has a line with a fact to ask for", folder.display())]
    NoFacts {
        /// The folder.
        folder: PathBuf,
        /// Skills in it.
        n_skills: usize,
    },

    /// A folder without pairs of versions.
    #[error("no pair of `NAME.old.md` and `NAME.new.md` in {}", folder.display())]
    NoPairs {
        /// The folder.
        folder: PathBuf,
    },

    /// A page that cannot be drawn.
    #[error("cannot draw the page: {reason}")]
    Page {
        /// Why.
        reason: String,
    },

    /// A set without a case that has an edit.
    #[error("no case of the evaluation set `{set}` has an edit to measure")]
    NoEdits {
        /// The set.
        set: String,
    },

    /// Grafts cannot be measured, since the block was not where it should be or
    /// the text was prefilled instead.
    #[error("no graft to measure: {reason}")]
    NotGrafted {
        /// Why.
        reason: String,
    },
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Error::Runtime(error.into())
    }
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Runtime(error) => error.hint(),
            Error::EvalSet { .. } | Error::NoCases { .. } => Some(
                "an evaluation set is a folder with `skills.jsonl`, `cases.jsonl` and `env.json`; \
                 a case is a line with `id`, `skills`, `question`, `answer_stub` and `answer`; \
                 without the option the built-in set is used"
                    .to_owned(),
            ),
            Error::NoFacts { .. } => Some(
                "a fact is a number or a piece of `code` behind at least three words; write cases \
                 of your own and pass them with `--cases`"
                    .to_owned(),
            ),
            Error::NoEdits { .. } => Some(
                "a case with an edit has `edit_old`, words that its skill and its answer have \
                 once, and `edit_new`"
                    .to_owned(),
            ),
            Error::TooLong { .. } => {
                Some("pass shorter lengths with `--lengths`, or a larger `--context`".to_owned())
            }
            Error::TooShort { .. } => Some("pass longer lengths with `--lengths`".to_owned()),
            Error::Peer { .. } => Some(
                "start `llama-server` by hand with the same model file and pass its address, \
                 to see what it says"
                    .to_owned(),
            ),
            Error::Io { .. }
            | Error::UnknownMethod { .. }
            | Error::NotGrafted { .. }
            | Error::NoPairs { .. }
            | Error::Page { .. } => None,
        }
    }

    /// Whether the cause is on the user's side, rather than ours.
    pub fn is_user_error(&self) -> bool {
        match self {
            Error::Runtime(error) => error.is_user_error(),
            Error::Io { .. }
            | Error::EvalSet { .. }
            | Error::NoCases { .. }
            | Error::NoEdits { .. }
            | Error::NoFacts { .. }
            | Error::NoPairs { .. }
            | Error::UnknownMethod { .. }
            | Error::TooLong { .. }
            | Error::TooShort { .. }
            | Error::Peer { .. } => true,
            Error::NotGrafted { .. } | Error::Page { .. } => false,
        }
    }
}
