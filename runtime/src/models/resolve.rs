//! From what a user wrote to a model.
//!
//! **Invariant:** an id of the manifest wins over a file of the same name, and
//! a file is only accepted when it begins like a GGUF file. What is inside is
//! the engine's to judge.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ModelError;
use super::fetch::ModelStore;
use super::manifest::{KnownModel, MODELS, default_model};
use super::progress::Progress;

/// First bytes of every GGUF file.
const GGUF_MAGIC: [u8; 4] = *b"GGUF";

/// The model that a user chose.
#[derive(Debug, Clone)]
pub enum ModelChoice {
    /// A model of the manifest.
    Known(&'static KnownModel),
    /// A GGUF file of the user's own.
    File(PathBuf),
}

impl Default for ModelChoice {
    fn default() -> Self {
        ModelChoice::Known(default_model())
    }
}

impl ModelChoice {
    /// Reads the id of a known model or the path of a GGUF file.
    ///
    /// # Errors
    /// [`ModelError::UnknownModel`] for what looks like an id and is none;
    /// [`ModelError::FileMissing`], [`ModelError::NotGguf`] and
    /// [`ModelError::Io`] for a path.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        if let Some(model) = MODELS.iter().find(|model| model.id == text) {
            return Ok(ModelChoice::Known(model));
        }
        let path = Path::new(text);
        if !text.is_empty() && path.exists() {
            check_magic(path)?;
            return Ok(ModelChoice::File(path.to_owned()));
        }
        if !text.contains(['/', '\\']) && !text.to_ascii_lowercase().ends_with(".gguf") {
            return Err(unknown(text, MODELS));
        }
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
        let known_as = MODELS
            .iter()
            .find(|model| Some(model.file_name.to_ascii_lowercase()) == name)
            .map(|model| model.id.to_owned());
        Err(ModelError::FileMissing { path: path.to_owned(), known_as })
    }

    /// The model's file, pulled into `store` if need be.
    ///
    /// # Errors
    /// Those of [`ModelStore::pull`].
    pub fn obtain(
        &self,
        store: &ModelStore,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, ModelError> {
        match self {
            ModelChoice::File(path) => Ok(path.clone()),
            ModelChoice::Known(model) => Ok(store.pull(model.id, progress)?.path),
        }
    }
}

fn check_magic(path: &Path) -> Result<(), ModelError> {
    let not_gguf = |found: String| ModelError::NotGguf { path: path.to_owned(), found };
    if path.is_dir() {
        return Err(not_gguf("it is a folder".to_owned()));
    }
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(GGUF_MAGIC.len() as u64).read_to_end(&mut head))
        .map_err(ModelError::io("read", path))?;
    if head != GGUF_MAGIC {
        return Err(not_gguf(format!("it begins with `{}`", head.escape_ascii())));
    }
    Ok(())
}

/// The error for an id that is not among `models`.
pub(super) fn unknown(id: &str, models: &[KnownModel]) -> ModelError {
    ModelError::UnknownModel {
        id: id.to_owned(),
        nearest: nearest(id, models.iter().map(|model| model.id)),
        known: models.iter().map(|model| model.id.to_owned()).collect(),
    }
}

/// The candidate that `text` was probably meant to be: one that it begins, or
/// else the closest within a third of its length in edits.
fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let text = text.to_lowercase();
    let budget = text.chars().count() / 3;
    candidates
        .filter_map(|id| {
            // Three letters are the least that say anything.
            let begins = text.len() >= 3 && id.starts_with(&text);
            let edits = if begins { 0 } else { edit_distance(&text, id) };
            (edits <= budget).then_some((edits, id))
        })
        .min()
        .map(|(_, id)| id.to_owned())
}

/// Insertions, deletions and substitutions of one character that turn `a` into
/// `b`. `row[j]` is the distance between the part of `a` read so far and the
/// first `j` characters of `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
