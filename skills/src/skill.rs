//! A skill as it was read.
//!
//! **Invariant:** a skill's `body` is exactly the text that a model is given:
//! UTF-8, line ends `\n`, no front matter, no blank lines at the start.

use std::path::PathBuf;

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
            folder: PathBuf::new(),
            file: PathBuf::new(),
            root: PathBuf::new(),
            parent: None,
            digest: *blake3::hash(text.as_bytes()).as_bytes(),
        }
    }

    /// The digest as 64 lower-case hexadecimal digits.
    pub fn digest_hex(&self) -> String {
        blake3::Hash::from_bytes(self.digest).to_hex().to_string()
    }
}
