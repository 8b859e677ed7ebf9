//! A skill as it was read.
//!
//! **Invariant:** a skill's `body` is exactly the text that a model is given:
//! UTF-8, line ends `\n`, no front matter, no blank lines at the start.

use std::path::PathBuf;

use crate::DESCRIPTION_CHARS_MAX;
use crate::text::one_line;

/// One skill. Read by [`parse`](crate::parse), placed by [`scan`](crate::scan).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// What the skill is asked for by: its name, or `outer/inner` for a skill
    /// whose folder lies inside another skill's folder. Unique in a catalog.
    pub id: String,
    /// Name from the front matter, or the folder's name without one.
    pub name: String,
    /// What the skill does and when to use it; trimmed, may hold line breaks.
    pub description: String,
    /// The instructions.
    pub body: String,
    /// Line of the file on which `body` starts, counted from 1.
    pub body_line: u32,
    /// The text between the `---` lines, as written.
    pub front_matter: String,
    /// Keys of the front matter, in the order written.
    pub fields: Vec<String>,
    /// Licence, as written.
    pub license: Option<String>,
    /// What the skill needs around it, as written.
    pub compatibility: Option<String>,
    /// Pairs of the author's own, values as written.
    pub metadata: Vec<(String, String)>,
    /// Tools that the skill wants to use: a wish, which grants nothing.
    pub allowed_tools: Vec<String>,
    /// Fields that the specification does not know, with their values as
    /// written, in the order written.
    pub extra: Vec<(String, String)>,
    /// Who may activate it.
    pub invocable: Invocable,
    /// The skill's folder; empty for a skill that has no file.
    pub folder: PathBuf,
    /// The skill's file; empty for a skill that has no file.
    pub file: PathBuf,
    /// The scanned folder under which it was found; empty without a scan.
    pub root: PathBuf,
    /// Identifier of the skill that encloses this one.
    pub parent: Option<String>,
    /// BLAKE3 of the file's bytes: equal digests are equal skills.
    pub digest: [u8; 32],
}

/// Who may activate a skill. A field that many clients know and the
/// specification does not; where it says nothing, everyone may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invocable {
    /// The model: it is told of the skill (`disable-model-invocation: false`).
    pub by_model: bool,
    /// The user, by name (`user-invocable: true`).
    pub by_user: bool,
}

impl Default for Invocable {
    fn default() -> Self {
        Invocable { by_model: true, by_user: true }
    }
}

impl Skill {
    /// A skill without a file, as tests and embedders make them.
    pub fn in_memory(name: &str, description: &str, body: &str) -> Self {
        let text = format!("{name}\0{description}\0{body}");
        Skill {
            id: name.to_owned(),
            name: name.to_owned(),
            description: description.trim().to_owned(),
            body: body.to_owned(),
            body_line: 1,
            front_matter: String::new(),
            fields: Vec::new(),
            license: None,
            compatibility: None,
            metadata: Vec::new(),
            allowed_tools: Vec::new(),
            extra: Vec::new(),
            invocable: Invocable::default(),
            folder: PathBuf::new(),
            file: PathBuf::new(),
            root: PathBuf::new(),
            parent: None,
            digest: *blake3::hash(text.as_bytes()).as_bytes(),
        }
    }

    /// The description on one line, as a catalog shows it before escaping.
    pub fn one_line_description(&self) -> String {
        one_line(&self.description, DESCRIPTION_CHARS_MAX)
    }

    /// The digest as 64 lower-case hexadecimal digits.
    pub fn digest_hex(&self) -> String {
        blake3::Hash::from_bytes(self.digest).to_hex().to_string()
    }
}
