//! Choosing the skill for a request.
//!
//! [`ChooseSkill`] is the port: [`Bm25Chooser`] searches the full text,
//! [`Forced`] obeys the user, and a chooser that asks a model implements it
//! outside this package.
//!
//! **Invariant:** a choice is a pick with a reason in words, or none with a
//! reason in words. None is an ordinary outcome, not an error.
//!
//! **Refuses:** to read a skill's text as instructions: it is searched, and
//! that is all.

use crate::{Catalog, Error, SkillIdx};

mod bm25;
mod forced;
mod index;
mod lines;
mod query;
mod words;

pub use bm25::{Bm25Chooser, DEFAULT_EVIDENCE_MIN, Match};
pub use forced::{Forced, mentions};
pub(crate) use forced::{near, near_names};
pub use index::SearchText;
pub use lines::{RankedLine, rank_lines};

/// A skill that was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Which one, in the catalog that was given.
    pub skill: SkillIdx,
    /// Its identifier.
    pub id: String,
    /// How well it fits, comparable within one choice only; 1 when forced.
    pub score: f32,
    /// Why, in words.
    pub reason: String,
}

/// The outcome of choosing.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// The skills to activate, best first; never empty.
    Picks(Vec<Pick>),
    /// No skill fits the request.
    None {
        /// Why, in words.
        reason: String,
    },
}

impl Choice {
    /// The picks, best first; empty for none.
    pub fn picks(&self) -> &[Pick] {
        match self {
            Choice::Picks(picks) => picks,
            Choice::None { .. } => &[],
        }
    }
}

/// Something that chooses skills for a request.
pub trait ChooseSkill {
    /// Chooses from `catalog` for what the user wrote.
    ///
    /// # Errors
    /// When no choice can be made, such as for a name that does not exist
    /// ([`Error::UnknownSkill`]) or a model that fails ([`Error::Chooser`]).
    /// That no skill fits is [`Choice::None`].
    fn choose(&self, request: &str, catalog: &Catalog) -> Result<Choice, Error>;
}

#[cfg(test)]
mod tests;
