//! Reading a skill's files, by `skill/path`.
//!
//! **Invariant:** what is read lies in the skill's folder once every link is
//! resolved, is text, and says which part of the file it is.
//!
//! **Refuses:** paths that leave the skill, whether by `..`, by being absolute or
//! by a link; binary files; files over [`FILE_BYTES_MAX`]. A file that is
//! replaced by a link between the check and the reading is not guarded against:
//! who can do that can write the skill.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::choose::near;
use crate::{
    Catalog, Code, Diagnostic, Error, FILE_BYTES_MAX, Link, Severity, Skill, SkillIdx, links,
};

/// Lines of a file that are read unless told otherwise.
pub const READ_LINES: usize = 200;
/// Bytes of a file that one reading gives: some 16,000 tokens.
pub const READ_BYTES_MAX: usize = 64 << 10;

/// What is asked for: a skill, or a file of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The skill.
    pub skill: SkillIdx,
    /// The file's path from the skill's folder, as it was given.
    pub path: Option<String>,
}

/// Which lines of a file are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// The first line, counted from 1.
    pub offset: usize,
    /// The most lines.
    pub limit: usize,
}

impl Window {
    /// All lines.
    pub const WHOLE: Window = Window { offset: 1, limit: usize::MAX };
}

impl Default for Window {
    fn default() -> Self {
        Window { offset: 1, limit: READ_LINES }
    }
}

/// Lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText {
    /// Path from the skill's folder, with `/` between its parts.
    pub path: String,
    /// The lines, as they are in the file.
    pub text: String,
    /// The first line given, counted from 1.
    pub first_line: usize,
    /// Lines given.
    pub n_given: usize,
    /// Lines of the file.
    pub n_lines: usize,
    /// Whether the last line given is cut.
    pub is_cut: bool,
    /// BLAKE3 of the whole file.
    pub digest: [u8; 32],
}

impl FileText {
    /// Which part of the file it is; `None` for the whole.
    pub fn notice(&self) -> Option<String> {
        let (first, n, all) = (self.first_line, self.n_given, self.n_lines);
        if n == 0 && all > 0 {
            return Some(format!("showing no lines: the file has {all}"));
        }
        let cut = if self.is_cut { ", the last of them cut" } else { "" };
        let is_whole = n == all && !self.is_cut;
        (!is_whole).then(|| format!("showing lines {first}-{} of {all}{cut}", first + n - 1))
    }
}

impl Catalog {
    /// An address as text: `skill`, or `skill/path`.
    ///
    /// # Panics
    /// When the index is of another, larger catalog.
    pub fn name_of(&self, address: &Address) -> String {
        let id = &self.get(address.skill).id;
        address.path.as_ref().map_or_else(|| id.clone(), |path| format!("{id}/{path}"))
    }

    /// What `outer/inner/references/x.md` means: the longest identifier that it
    /// starts with, and the rest as a path.
    ///
    /// # Errors
    /// As [`Catalog::resolve`].
    pub fn locate(&self, address: &str) -> Result<Address, Error> {
        let address = address.trim().trim_end_matches('/');
        let ends = address.match_indices('/').map(|(at, _)| at).chain([address.len()]);
        let mut best = None;
        for end in ends {
            let id = &address[..end];
            let found = self.skills().binary_search_by(|skill| skill.id.as_str().cmp(id));
            if let Ok(at) = found {
                best = Some((SkillIdx(at), end));
            }
        }
        let (skill, end) = if let Some(best) = best {
            best
        } else {
            let end = address.find('/').unwrap_or(address.len());
            (self.resolve(&address[..end])?, end)
        };
        let path = address[end..].strip_prefix('/').map(str::to_owned);
        Ok(Address { skill, path })
    }
}

impl Skill {
    /// Reads lines of one of the skill's files. `\` in a path is taken for `/`.
    ///
    /// # Errors
    /// [`Error::PathEscape`], [`Error::FileNotFound`] with names that resemble
    /// it, [`Error::NotText`], [`Error::FileTooLarge`], [`Error::File`].
    pub fn read(&self, path: &str, window: Window) -> Result<FileText, Error> {
        let (relative, file) = self.confine(path)?;
        let bytes = read_bytes(&file)?;
        let not_text = |reason| Error::NotText { path: file.clone(), reason };
        if bytes.contains(&0) {
            return Err(not_text(Code::BinaryFile));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| not_text(Code::NotUtf8))?;
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let first = window.offset.max(1) - 1;
        let mut given = String::new();
        let (mut n_given, mut is_cut) = (0, false);
        for line in lines.iter().skip(first).take(window.limit) {
            let left = READ_BYTES_MAX - given.len();
            if line.len() > left {
                // A line that is longer than the limit would otherwise never be read.
                if n_given == 0 {
                    let whole = (0..=left).rev().find(|&at| line.is_char_boundary(at));
                    given.push_str(&line[..whole.unwrap_or(0)]);
                    (n_given, is_cut) = (1, true);
                }
                break;
            }
            given.push_str(line);
            n_given += 1;
        }
        Ok(FileText {
            path: relative,
            text: given,
            first_line: first + 1,
            n_given,
            n_lines: lines.len(),
            is_cut,
            digest: *blake3::hash(&bytes).as_bytes(),
        })
    }

    /// What is wrong with the links of the body: those that lead out of the skill,
    /// and those to files that are not there. A scan does not look for them.
    pub fn link_findings(&self) -> Vec<Diagnostic> {
        let finding = |link: &Link| {
            let (code, message, hint) = match self.confine(&link.target) {
                Ok(_) => return None,
                Err(Error::PathEscape { .. }) => (
                    Code::PathEscape,
                    format!("`{}` is outside the skill and cannot be read", link.target),
                    "move what is linked into the skill's folder",
                ),
                // Links to folders are fine: their files are listed.
                Err(_) if self.folder.join(&link.target).is_dir() => return None,
                Err(_) => (
                    Code::LinkBroken,
                    format!("there is no file `{}`", link.target),
                    "correct the link, or add the file",
                ),
            };
            Some(Diagnostic {
                code,
                severity: Severity::Warning,
                path: self.file.clone(),
                line: Some(self.body_line + link.line),
                column: None,
                message,
                hint: hint.to_owned(),
            })
        };
        links(&self.body).iter().filter_map(finding).collect()
    }

    /// The path within the skill in plain form, and the file that it means.
    fn confine(&self, path: &str) -> Result<(String, PathBuf), Error> {
        let escape = || Error::PathEscape { skill: self.id.clone(), path: path.to_owned() };
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split(['/', '\\']) {
            match part {
                "" if parts.is_empty() && !path.is_empty() => return Err(escape()),
                "" | "." => {}
                ".." => {
                    parts.pop().ok_or_else(escape)?;
                }
                // A drive letter leaves the folder on Windows.
                part if part.contains('\0') || is_drive(part) => return Err(escape()),
                part => parts.push(part),
            }
        }
        let relative = parts.join("/");
        let missing = || self.not_found(path, &relative);
        if self.folder.as_os_str().is_empty() || parts.is_empty() {
            return Err(missing());
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let folder = self.folder.canonicalize().map_err(failed(&self.folder))?;
        let wanted = folder.join(&relative);
        let file = match wanted.canonicalize() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(missing()),
            Err(error) => return Err(failed(&wanted)(error)),
        };
        if !file.starts_with(&folder) {
            return Err(escape());
        }
        if !file.is_file() {
            return Err(missing());
        }
        Ok((relative, file))
    }

    fn not_found(&self, path: &str, relative: &str) -> Error {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        let files = walkdir::WalkDir::new(&self.folder).max_depth(4).into_iter().flatten();
        let files = files.filter(|entry| entry.file_type().is_file()).take(1000);
        let known: Vec<String> = files
            .filter_map(|entry| {
                let below = entry.path().strip_prefix(&self.folder).ok()?;
                Some(below.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/"))
            })
            .collect();
        let near = near(
            name,
            known.iter().map(|path| (path.as_str(), path.rsplit('/').next().unwrap_or(path))),
        );
        Error::FileNotFound { skill: self.id.clone(), path: path.to_owned(), near }
    }
}

fn is_drive(part: &str) -> bool {
    matches!(part.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}

/// The bytes of a regular file within the size limit.
pub(crate) fn read_bytes(file: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::File { path: file.to_owned(), source };
    // A pipe or a device would block for ever: only files are opened.
    if !std::fs::metadata(file).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is no regular file")));
    }
    let handle = File::open(file).map_err(failed)?;
    let mut bytes = Vec::new();
    // The limit holds for what is read, whatever the size was said to be.
    handle.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::FileTooLarge { path: file.to_owned(), bytes_max: FILE_BYTES_MAX });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
