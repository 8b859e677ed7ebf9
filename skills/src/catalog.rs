//! The catalog: an immutable snapshot of the skills, and the thin list of them
//! that a model is shown.
//!
//! **Invariant:** the rendered bytes depend on the set of skills only. Each
//! skill is one line; no name or description can add a line, hide characters
//! or spell a special token.
//!
//! **Refuses:** to change. A changed folder is a new scan and a new catalog.

use std::path::PathBuf;
use std::sync::Arc;

use crate::choose::near_names;
use crate::{Diagnostic, Error, Severity, Skill};

mod render;

pub use render::{CATALOG_SHARE, CatalogFormat, CatalogStep, Rendered, catalog_budget};

/// A skill's place in its catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillIdx(pub usize);

/// Skills in the order of their identifiers. Cloning shares the snapshot.
#[derive(Debug, Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    skills: Vec<Arc<Skill>>,
    diagnostics: Vec<Diagnostic>,
    roots: Vec<PathBuf>,
}

impl Catalog {
    /// Identifiers must be unique; [`scan`](crate::scan) sees to it.
    pub(crate) fn shared(
        mut skills: Vec<Arc<Skill>>,
        mut diagnostics: Vec<Diagnostic>,
        roots: Vec<PathBuf>,
    ) -> Self {
        skills.sort_by(|a, b| a.id.as_bytes().cmp(b.id.as_bytes()));
        diagnostics.sort_by(|a, b| (&a.path, a.line, a.code).cmp(&(&b.path, b.line, b.code)));
        Catalog { inner: Arc::new(Inner { skills, diagnostics, roots }) }
    }

    /// A catalog of skills that were not scanned, in any order.
    ///
    /// # Panics
    /// When two skills have the same identifier.
    pub fn from_skills(skills: Vec<Skill>) -> Self {
        let skills = skills.into_iter().map(Arc::new).collect();
        let catalog = Catalog::shared(skills, Vec::new(), Vec::new());
        for pair in catalog.skills().windows(2) {
            assert_ne!(pair[0].id, pair[1].id, "skill identifiers are unique");
        }
        catalog
    }

    /// The skills, nested ones included, sorted by identifier.
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.inner.skills
    }

    /// One skill.
    ///
    /// # Panics
    /// When the index is of another, larger catalog.
    pub fn get(&self, skill: SkillIdx) -> &Skill {
        &self.inner.skills[skill.0]
    }

    /// Number of skills, nested ones included.
    pub fn len(&self) -> usize {
        self.inner.skills.len()
    }

    /// Whether there is no skill.
    pub fn is_empty(&self) -> bool {
        self.inner.skills.is_empty()
    }

    /// The folders that were scanned.
    pub fn roots(&self) -> &[PathBuf] {
        &self.inner.roots
    }

    /// All findings, sorted by path.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.inner.diagnostics
    }

    /// The findings for which something was left out: errors.
    pub fn omitted(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics().iter().filter(|finding| finding.severity == Severity::Error)
    }

    /// Whether both are the same snapshot.
    pub fn is_same(&self, other: &Catalog) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The catalog, for callers that need at least one skill.
    ///
    /// # Errors
    /// [`Error::NoSkills`] with what was left out.
    pub fn require_skills(self) -> Result<Self, Error> {
        if !self.is_empty() {
            return Ok(self);
        }
        let omitted = self.omitted().cloned().collect();
        Err(Error::NoSkills { roots: self.roots().to_vec(), omitted })
    }

    /// The skill of a given identifier, or of a given name when only one nested
    /// skill has it.
    ///
    /// # Errors
    /// [`Error::UnknownSkill`] with names that resemble it;
    /// [`Error::AmbiguousSkill`] when several nested skills have the name.
    pub fn resolve(&self, name: &str) -> Result<SkillIdx, Error> {
        let skills = self.skills();
        if let Ok(at) = skills.binary_search_by(|skill| skill.id.as_bytes().cmp(name.as_bytes())) {
            return Ok(SkillIdx(at));
        }
        let named: Vec<usize> = (0..skills.len()).filter(|&at| skills[at].name == name).collect();
        match named[..] {
            [] => Err(Error::UnknownSkill {
                name: name.to_owned(),
                near: near_names(name, self),
                n_skills: self.len(),
            }),
            [at] => Ok(SkillIdx(at)),
            _ => Err(Error::AmbiguousSkill {
                name: name.to_owned(),
                candidates: named.iter().map(|&at| format!("`{}`", skills[at].id)).collect(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
