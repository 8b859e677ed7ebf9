//! What an activation gives: a skill's instructions, and what else it has.
//!
//! **Invariant:** the body is the skill's text as it was scanned and nothing
//! else, so that its tokens depend on the file alone. Files are listed, never
//! put in.
//!
//! **Refuses:** to run, expand or replace anything in a body.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::text::{escape, one_line};
use crate::{Catalog, Error, SKILL_FILE, SkillIdx};

/// Files that a listing names: beyond it a model has to know what it looks for.
const FILES_LISTED_MAX: usize = 100;
/// Files that are looked at for a listing.
const FILES_SEEN_MAX: usize = 10_000;
/// Folders below the skill's that are looked into.
const FILE_DEPTH_MAX: usize = 8;
/// Longest path that a listing shows, in characters.
const PATH_CHARS_MAX: usize = 300;

/// A skill's text, with what can be loaded beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// Which skill.
    pub id: String,
    /// Its instructions.
    pub body: String,
    /// Digest of the file that they are from.
    pub digest: [u8; 32],
    /// Its folder; empty for a skill without file.
    pub folder: PathBuf,
    /// Its files, sorted by path; not its `SKILL.md`, nor those of skills inside.
    pub files: Vec<SkillFile>,
    /// Files beyond the number that is listed.
    pub n_files_left_out: usize,
    /// Identifiers of the skills directly inside.
    pub inner: Vec<String>,
}

/// A file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    /// Path from the skill's folder, with `/` between its parts.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Activation {
    /// The list of files and inner skills, as it is put after the body; empty
    /// when there are none.
    pub fn listing(&self) -> String {
        let mut out = String::new();
        let shown = |path: &str| escape(&one_line(path, PATH_CHARS_MAX));
        if !self.files.is_empty() {
            let _ = writeln!(out, "Files of this skill, to be read when needed:");
            for file in &self.files {
                let _ = writeln!(out, "- {}/{}", shown(&self.id), shown(&file.path));
            }
            if self.n_files_left_out > 0 {
                let _ = writeln!(out, "{} more files are not listed.", self.n_files_left_out);
            }
        }
        if !self.inner.is_empty() {
            let _ = writeln!(out, "Skills inside this one, to be loaded when needed:");
            for id in &self.inner {
                let _ = writeln!(out, "- {}", shown(id));
            }
        }
        out
    }
}

impl Catalog {
    /// What the activation of a skill gives.
    ///
    /// # Errors
    /// [`Error::Gone`] when the skill's file is not there any more;
    /// [`Error::File`] when its folder cannot be listed.
    ///
    /// # Panics
    /// When the index is of another, larger catalog.
    pub fn activation(&self, skill: SkillIdx) -> Result<Activation, Error> {
        let skill = self.get(skill);
        let inside =
            self.skills().iter().filter(|inner| inner.parent.as_deref() == Some(&skill.id));
        let (mut files, mut n_files_left_out) = (Vec::new(), 0);
        if !skill.file.as_os_str().is_empty() {
            if !skill.file.exists() {
                return Err(Error::Gone { skill: skill.id.clone(), file: skill.file.clone() });
            }
            let below: Vec<&Path> = inside.clone().map(|inner| inner.folder.as_path()).collect();
            (files, n_files_left_out) = list_files(&skill.folder, &below)?;
        }
        Ok(Activation {
            id: skill.id.clone(),
            body: skill.body.clone(),
            digest: skill.digest,
            folder: skill.folder.clone(),
            files,
            n_files_left_out,
            inner: inside.map(|inner| inner.id.clone()).collect(),
        })
    }
}

/// The files below a folder, sorted, and the number of those not listed. Links
/// are not followed: where they lead is checked when they are read.
fn list_files(folder: &Path, inner: &[&Path]) -> Result<(Vec<SkillFile>, usize), Error> {
    let is_walked = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        let is_hidden = name.starts_with('.') || name == "node_modules" || name == "__pycache__";
        entry.depth() == 0 || !(is_hidden || inner.contains(&entry.path()))
    };
    let walk = WalkDir::new(folder).max_depth(FILE_DEPTH_MAX + 1).sort_by_file_name();
    let mut files = Vec::new();
    let mut n_left_out = 0;
    for entry in walk.into_iter().filter_entry(is_walked).take(FILES_SEEN_MAX) {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_owned();
            Error::File { path, source: io::Error::from(error) }
        })?;
        let is_own = entry.depth() == 1 && entry.file_name().eq_ignore_ascii_case(SKILL_FILE);
        if entry.file_type().is_dir() || is_own {
            continue;
        }
        if files.len() == FILES_LISTED_MAX {
            n_left_out += 1;
            continue;
        }
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        files.push(SkillFile { path: relative(entry.path(), folder), bytes });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((files, n_left_out))
}

/// A path from a folder, with `/` between its parts.
fn relative(path: &Path, folder: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}
