//! Errors of this package: what stops a scan or a choice altogether.
//!
//! **Invariant:** a fault of one skill is a [`Diagnostic`], never an error.

use std::io;
use std::path::PathBuf;

use crate::Diagnostic;

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
    /// The trusted folders cannot be read or changed.
    #[error("cannot change what is trusted: `{}`", path.display())]
    Trust {
        /// The folder in question, or the file of trusted folders.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A chooser outside this package failed.
    #[error("the skill could not be chosen")]
    Chooser(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
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
            Error::Trust { .. } => Some("name a folder that exists".to_owned()),
            Error::Chooser(_) => None,
        }
    }
}

fn list(roots: &[PathBuf]) -> String {
    let roots: Vec<String> = roots.iter().map(|root| format!("`{}`", root.display())).collect();
    roots.join(", ")
}
