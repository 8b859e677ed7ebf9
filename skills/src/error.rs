//! Errors of this package: what stops a scan or a choice altogether.
//!
//! **Invariant:** a fault of one skill is a [`Diagnostic`], never an error.

use std::io;
use std::path::PathBuf;

use crate::{Caller, Code, Diagnostic, ImportError};

/// What stops a scan or a choice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No folder was given to scan.
    #[error("no skill folder was given")]
    NoRoots,
    /// A folder to scan cannot be read.
    #[error("cannot read the skill folder `{}`", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folders were read and hold no usable skill.
    #[error("no usable skill in {}; left out: {}", list(roots), omitted.len())]
    NoSkills {
        /// The folders that were read.
        roots: Vec<PathBuf>,
        /// What was found and left out, with the reasons.
        omitted: Vec<Diagnostic>,
    },
    /// A skill was named that the catalog does not hold.
    #[error("no skill is called `{name}`")]
    UnknownSkill {
        /// The name asked for.
        name: String,
        /// Names that resemble it, nearest first.
        near: Vec<String>,
        /// Number of skills in the catalog.
        n_skills: usize,
    },
    /// A name without its folder fits several nested skills.
    #[error("`{name}` may be {}", candidates.join(" or "))]
    AmbiguousSkill {
        /// The name asked for.
        name: String,
        /// The skills that it may mean.
        candidates: Vec<String>,
    },
    /// A skill's file was removed after it was scanned.
    #[error("the skill `{skill}` is gone: `{}` does not exist any more", file.display())]
    Gone {
        /// Identifier of the skill.
        skill: String,
        /// Its file.
        file: PathBuf,
    },
    /// A skill may not be activated by who asked for it.
    #[error("the skill `{skill}` is not for {}", match caller {
        Caller::Model => "the model to activate",
        Caller::User => "the user to activate",
    })]
    NotInvocable {
        /// Identifier of the skill.
        skill: String,
        /// Who asked.
        caller: Caller,
    },
    /// A path leads out of its skill.
    #[error("`{}` is outside the skill `{skill}`", path.escape_debug())]
    PathEscape {
        /// Identifier of the skill.
        skill: String,
        /// The path asked for.
        path: String,
    },
    /// A skill has no such file.
    #[error("the skill `{skill}` has no file `{}`", path.escape_debug())]
    FileNotFound {
        /// Identifier of the skill.
        skill: String,
        /// The path asked for.
        path: String,
        /// Files that resemble it, nearest first.
        near: Vec<String>,
    },
    /// A file is not text.
    #[error("`{}` is not text: {}", path.display(), match reason {
        Code::NotUtf8 => "it is not UTF-8",
        _ => "it holds NUL bytes",
    })]
    NotText {
        /// The file.
        path: PathBuf,
        /// What shows it: [`Code::NotUtf8`] or [`Code::BinaryFile`].
        reason: Code,
    },
    /// A file is larger than is read.
    #[error("`{}` has more than {bytes_max} bytes", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// A file of a skill cannot be read.
    #[error("cannot read `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The trusted folders cannot be read or changed.
    #[error("cannot change what is trusted: `{}`", path.display())]
    Trust {
        /// The folder in question, or the file of trusted folders.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Skills were checked, and some would not load.
    #[error("{n_refused} of {n_files} skill files would not load")]
    Refused {
        /// Files that would not load.
        n_refused: usize,
        /// Files that were looked at.
        n_files: usize,
    },
    /// Skills could not be taken from a folder or an archive.
    #[error(transparent)]
    Import(Box<ImportError>),
    /// A chooser outside this package failed.
    #[error("the skill could not be chosen")]
    Chooser(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// A name for programs; stable.
    pub fn code(&self) -> &'static str {
        match self {
            Error::NoRoots => "no-roots",
            Error::Root { .. } | Error::File { .. } => "io",
            Error::NoSkills { .. } => "no-skills",
            Error::UnknownSkill { .. } => "unknown-skill",
            Error::AmbiguousSkill { .. } => "ambiguous-skill",
            Error::Gone { .. } => "gone",
            Error::NotInvocable { .. } => "not-invocable",
            Error::PathEscape { .. } => "path-escape",
            Error::FileNotFound { .. } => "not-found",
            Error::NotText { reason, .. } => reason.name(),
            Error::FileTooLarge { .. } => "too-large",
            Error::Trust { .. } => "trust",
            Error::Refused { .. } => "refused",
            Error::Import(error) => error.code(),
            Error::Chooser(_) => "chooser",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::NoRoots => Some("pass a folder of skills with `--skills DIR`".to_owned()),
            Error::Root { .. } => Some("check that the folder exists and is readable".to_owned()),
            Error::NoSkills { omitted, .. } => Some(match omitted.first() {
                Some(first) => format!("{first}: {}", first.hint),
                None => "a skill is a folder with a file `SKILL.md`".to_owned(),
            }),
            Error::UnknownSkill { near, .. } if !near.is_empty() => {
                let near: Vec<String> = near.iter().map(|id| format!("`{id}`")).collect();
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            Error::UnknownSkill { n_skills, .. } => {
                Some(format!("`skillgraft skills list` shows all {n_skills} skills"))
            }
            Error::AmbiguousSkill { .. } => Some("give the whole identifier".to_owned()),
            Error::Gone { .. } => Some("look for another one in the catalog".to_owned()),
            Error::NotInvocable { skill, caller: Caller::Model } => {
                Some(format!("the user can activate it as `${skill}`"))
            }
            Error::PathEscape { .. } => Some("name a file below the skill's folder".to_owned()),
            Error::FileNotFound { near, .. } if !near.is_empty() => {
                let near: Vec<String> = near.iter().map(|path| format!("`{path}`")).collect();
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            Error::FileNotFound { .. } => {
                Some("the activation of the skill lists its files".to_owned())
            }
            Error::File { .. } => Some("check that it is a readable file".to_owned()),
            Error::Trust { .. } => Some("name a folder that exists".to_owned()),
            Error::Import(error) => error.hint(),
            Error::NotInvocable { .. }
            | Error::Refused { .. }
            | Error::NotText { .. }
            | Error::FileTooLarge { .. }
            | Error::Chooser(_) => None,
        }
    }
}

fn list(roots: &[PathBuf]) -> String {
    let roots: Vec<String> = roots.iter().map(|root| format!("`{}`", root.display())).collect();
    roots.join(", ")
}

impl From<ImportError> for Error {
    fn from(error: ImportError) -> Self {
        Error::Import(Box::new(error))
    }
}
