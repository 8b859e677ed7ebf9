//! The user's own choice: names given on the command line, and `$name` in the
//! prompt.
//!
//! **Invariant:** what the user names is used or is an error that lists near
//! names; nothing else is put in its place.

use std::cmp::Reverse;

use super::{Choice, ChooseSkill, Pick};
use crate::{Address, Catalog, Error};

/// Names listed for one that does not exist.
const NEAR_MAX: usize = 3;
/// Longest name that is compared with others, in characters: the work grows with
/// its square.
const NAME_CHARS_COMPARED: usize = 128;

/// Chooses the skills of the given names, whatever the request says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    names: Vec<String>,
}

impl Forced {
    /// The names or identifiers, in the order of activation.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Forced { names: names.into_iter().map(Into::into).collect() }
    }
}

impl ChooseSkill for Forced {
    /// # Errors
    /// [`Error::UnknownSkill`], [`Error::AmbiguousSkill`].
    fn choose(&self, _request: &str, catalog: &Catalog) -> Result<Choice, Error> {
        let mut picks: Vec<Pick> = Vec::new();
        for name in &self.names {
            let skill = catalog.resolve(name)?;
            if picks.iter().all(|pick| pick.skill != skill) {
                let id = catalog.get(skill).id.clone();
                let reason = format!("asked for as `{name}`");
                picks.push(Pick { skill, id, score: 1.0, reason });
            }
        }
        if picks.is_empty() {
            return Ok(Choice::None { reason: "no skill was asked for".to_owned() });
        }
        Ok(Choice::Picks(picks))
    }
}

/// What a prompt names as `$name`, `$outer/inner` or `$name/references/x.md`, in
/// order. Whether a skill has a file of that path is not looked at.
///
/// A prompt may hold shell text, so `$PATH`, `$1` and `$files` are no mentions:
/// a name that does not exist is an error only when it resembles one that does.
///
/// # Errors
/// [`Error::UnknownSkill`] for a name that resembles another,
/// [`Error::AmbiguousSkill`].
pub fn mentions(prompt: &str, catalog: &Catalog) -> Result<Vec<Address>, Error> {
    let mut found = Vec::new();
    let mut pieces = prompt.split('$');
    let mut before = pieces.next().unwrap_or("");
    for piece in pieces {
        let in_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '\\');
        before = piece;
        let end = piece.find(|c| !is_name_char(c)).unwrap_or(piece.len());
        let name = piece[..end].trim_end_matches(['-', '/', '.']);
        if in_word || !name.starts_with(|c: char| c.is_lowercase()) {
            continue;
        }
        match catalog.locate(name) {
            Ok(address) if found.contains(&address) => {}
            Ok(address) => found.push(address),
            Err(Error::UnknownSkill { near, .. }) if near.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn is_name_char(c: char) -> bool {
    matches!(c, '-' | '/' | '_' | '.') || c.is_alphanumeric()
}

/// Identifiers that resemble a name, nearest first.
pub(crate) fn near_names(name: &str, catalog: &Catalog) -> Vec<String> {
    near(name, catalog.skills().iter().map(|skill| (skill.id.as_str(), skill.name.as_str())))
}

/// Of known identifiers, each with its last part, those that resemble a name,
/// nearest first: few edits away, or one within the other.
pub(crate) fn near<'k>(name: &str, known: impl Iterator<Item = (&'k str, &'k str)>) -> Vec<String> {
    let name = name.to_lowercase();
    let n_chars = name.chars().count();
    if !(3..=NAME_CHARS_COMPARED).contains(&n_chars) {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = Vec::new();
    for (id, last) in known {
        let edits = edits(&name, id).min(edits(&name, last));
        let within = last.contains(&name) || name.contains(last);
        if edits <= (n_chars / 3).max(1) || within {
            near.push((edits, id));
        }
    }
    near.sort_by_key(|&(edits, id)| (edits, Reverse(id.starts_with(&name)), id));
    near.into_iter().take(NEAR_MAX).map(|(_, id)| id.to_owned()).collect()
}

/// Insertions, deletions and replacements that turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
