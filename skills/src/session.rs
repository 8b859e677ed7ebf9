//! What one conversation has seen of the skills.
//!
//! **Invariant:** the catalog's text never changes, however the folders do. What
//! is in the context is not given a second time, and what was taken out of it is.
//!
//! **Refuses:** to activate for the model what only the user may activate.
//! Where a text stands in the context is the caller's business: a place is a
//! number that the caller understands.

use std::collections::BTreeMap;

use crate::resource::read_bytes;
use crate::{Activation, Catalog, CatalogChange, ChangeKind, Error, FileText, SkillIdx, Window};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The model, by a tool call.
    Model,
    /// The user, by name.
    User,
}

/// The answer to a request for a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given<T> {
    /// The text, which now is in the context.
    New {
        /// The text.
        text: T,
        /// What the reader must know about it.
        note: Option<String>,
    },
    /// The text is in the context already.
    Already {
        /// Where, as the caller counts.
        place: u64,
    },
}

impl<T> Given<T> {
    /// The text, when it is new.
    pub fn text(self) -> Option<T> {
        match self {
            Given::New { text, .. } => Some(text),
            Given::Already { .. } => None,
        }
    }
}

/// What is in a context: addresses with the digest and the place of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loaded {
    items: BTreeMap<String, Item>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    digest: [u8; 32],
    place: u64,
}

impl Loaded {
    /// Where a text of this digest is; `None` when it is not, or in another version.
    pub fn place(&self, address: &str, digest: [u8; 32]) -> Option<u64> {
        self.items.get(address).filter(|item| item.digest == digest).map(|item| item.place)
    }

    /// The digest of what is there under an address.
    pub fn digest(&self, address: &str) -> Option<[u8; 32]> {
        self.items.get(address).map(|item| item.digest)
    }

    /// A text has come into the context.
    pub fn insert(&mut self, address: &str, digest: [u8; 32], place: u64) {
        self.items.insert(address.to_owned(), Item { digest, place });
    }

    /// A text is the same under another digest.
    fn renew(&mut self, address: &str, old: [u8; 32], new: [u8; 32]) {
        if let Some(item) = self.items.get_mut(address).filter(|item| item.digest == old) {
            item.digest = new;
        }
    }

    /// A text has left the context; `false` when it was not there. Of a file all
    /// parts leave.
    pub fn evict(&mut self, address: &str) -> bool {
        let n_before = self.items.len();
        let part = format!("{address}{PART_MARK}");
        self.items.retain(|key, _| key != address && !key.starts_with(&part));
        self.items.len() < n_before
    }

    /// What is at `from` or behind it has moved by `by`.
    fn moved(&mut self, from: u64, by: i64) {
        for item in self.items.values_mut().filter(|item| item.place >= from) {
            item.place = item.place.saturating_add_signed(by);
        }
    }

    /// Addresses of what is there, sorted.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.items.keys().map(String::as_str)
    }
}

/// Between an address and the lines that were read: no path has it.
const PART_MARK: char = '\0';

/// The skills as one conversation knows them.
#[derive(Debug, Clone)]
pub struct SkillSession {
    catalog_text: String,
    /// The snapshot that the model has been told of.
    catalog: Catalog,
    loaded: Loaded,
}

impl SkillSession {
    /// A session that starts with a snapshot; `catalog_text` is what the static
    /// prefix shows of it.
    pub fn new(catalog: Catalog, catalog_text: String) -> Self {
        SkillSession { catalog_text, catalog, loaded: Loaded::default() }
    }

    /// What the static prefix shows.
    pub fn catalog_text(&self) -> &str {
        &self.catalog_text
    }

    /// The snapshot of the last refresh.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What is in the context.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Takes a new snapshot, and gives the changes with the message that tells
    /// the model of them at the tail. Where only the front matter of a skill has
    /// changed, what is in the context of it stays valid.
    pub fn refresh(&mut self, catalog: Catalog) -> (Vec<CatalogChange>, Option<String>) {
        let changes = catalog.changes_since(&self.catalog);
        let told = catalog.announce(&changes, &self.catalog);
        for change in &changes {
            if let (ChangeKind::Changed { front_matter_only: true }, Some(old), Some(new)) =
                (change.kind, change.old_digest, change.new_digest)
            {
                self.loaded.renew(&change.id, old, new);
            }
        }
        self.catalog = catalog;
        (changes, told)
    }

    /// Activates a skill; its text is put at `place`.
    ///
    /// # Errors
    /// As [`Catalog::resolve`] and [`Catalog::activation`];
    /// [`Error::NotInvocable`] when the caller may not.
    pub fn activate(
        &mut self,
        name: &str,
        caller: Caller,
        place: u64,
    ) -> Result<Given<Activation>, Error> {
        let at = self.allowed(name, caller)?;
        let text = self.catalog.activation(at)?;
        if let Some(place) = self.loaded.place(&text.id, text.digest) {
            return Ok(Given::Already { place });
        }
        self.loaded.insert(&text.id, text.digest, place);
        let note = self.changed_note(at, text.digest);
        Ok(Given::New { text, note })
    }

    /// Reads lines of a file, addressed as `skill/path`; they are put at `place`.
    ///
    /// # Errors
    /// As [`Catalog::locate`] and [`Skill::read`](crate::Skill::read);
    /// [`Error::FileNotFound`] for an address without a path.
    pub fn read(
        &mut self,
        address: &str,
        window: Window,
        place: u64,
    ) -> Result<Given<FileText>, Error> {
        let found = self.catalog.locate(address)?;
        let skill = self.catalog.get(found.skill);
        let text = skill.read(found.path.as_deref().unwrap_or(""), window)?;
        let lines = (text.first_line, text.n_given);
        let key = format!("{}/{}{PART_MARK}{}+{}", skill.id, text.path, lines.0, lines.1);
        if let Some(place) = self.loaded.place(&key, text.digest) {
            return Ok(Given::Already { place });
        }
        let note = self.loaded.digest(&skill.id);
        let note = note.and_then(|digest| self.changed_note(found.skill, digest));
        self.loaded.insert(&key, text.digest, place);
        Ok(Given::New { text, note })
    }

    /// Texts at `from` or behind it have moved by `by`, since one before them has
    /// become longer or shorter.
    pub fn moved(&mut self, from: u64, by: i64) {
        self.loaded.moved(from, by);
    }

    /// A text has left the context: the next request for it brings it back.
    pub fn evict(&mut self, address: &str) -> bool {
        self.loaded.evict(address)
    }

    fn allowed(&self, name: &str, caller: Caller) -> Result<SkillIdx, Error> {
        let at = self.catalog.resolve(name)?;
        let skill = self.catalog.get(at);
        let may = match caller {
            Caller::Model => skill.invocable.by_model,
            Caller::User => skill.invocable.by_user,
        };
        if may { Ok(at) } else { Err(Error::NotInvocable { skill: skill.id.clone(), caller }) }
    }

    /// Said when a skill's file on disk is not the version of a digest: what is
    /// read beside it may belong to another version.
    fn changed_note(&self, skill: SkillIdx, digest: [u8; 32]) -> Option<String> {
        let skill = self.catalog.get(skill);
        if skill.file.as_os_str().is_empty() {
            return None;
        }
        // A file that cannot be read now is another version too.
        let now = read_bytes(&skill.file).ok().map(|bytes| *blake3::hash(&bytes).as_bytes());
        (now != Some(digest)).then(|| {
            format!("the skill `{}` has changed since it was loaded: load it again", skill.id)
        })
    }
}

#[cfg(test)]
mod tests;
