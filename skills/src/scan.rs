//! Folders to [`Catalog`]: finds every `SKILL.md` under the given roots.
//!
//! **Invariant:** the catalog depends only on the files and the order of the
//! roots, never on the order in which a file system lists them. Every file
//! found is in the catalog or among the omitted. Symlinked folders are followed,
//! each real folder once, so that a cycle ends.
//!
//! **Refuses:** to enter hidden folders and `node_modules`, which hold copies of
//! skills and not skills, and to go deeper than [`DEPTH_MAX`].
//!
//! A skill whose folder lies inside another skill's folder is *nested*: its
//! identifier is `outer/inner`. An earlier root wins over a later one, and an
//! earlier path over a later one, when two skills have the same identifier.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use crate::parse::{Parsed, parse, too_large};
use crate::{Catalog, Code, Diagnostic, Error, FILE_BYTES_MAX, Severity, Skill};

/// The name of a skill's file.
pub const SKILL_FILE: &str = "SKILL.md";
/// Folders below a root that are entered: deeper ones are reported.
pub const DEPTH_MAX: usize = 8;
/// Folders that one scan enters: a scan of a whole disk stops there.
pub const FOLDERS_MAX: usize = 20_000;

/// Reads all skills under `roots`, in order of precedence. A catalog without
/// skills is a result too; [`Catalog::require_skills`] makes it an error.
///
/// # Errors
/// [`Error::NoRoots`] without roots; [`Error::Root`] when a root is no readable
/// folder. Anything wrong further down is a diagnostic of the catalog.
pub fn scan(roots: &[PathBuf]) -> Result<Catalog, Error> {
    if roots.is_empty() {
        return Err(Error::NoRoots);
    }
    let mut seen = Seen::default();
    let mut skills = Vec::new();
    for root in roots {
        std::fs::read_dir(root).map_err(|source| Error::Root { path: root.clone(), source })?;
        let files = seen.skill_files(root);
        skills.extend(read(root, files, &mut seen.diagnostics));
    }
    let (skills, shadowed) = without_shadowed(skills);
    let mut diagnostics = seen.diagnostics;
    diagnostics.extend(shadowed);
    Ok(Catalog::new(skills, diagnostics, roots.to_vec()))
}

/// What the walks have come upon so far.
#[derive(Default)]
struct Seen {
    folders: HashSet<PathBuf>,
    diagnostics: Vec<Diagnostic>,
}

impl Seen {
    /// The skill files under one root, sorted by path.
    fn skill_files(&mut self, root: &Path) -> Vec<PathBuf> {
        let walk =
            WalkDir::new(root).follow_links(true).sort_by_file_name().max_depth(DEPTH_MAX + 2);
        let mut walk = walk.into_iter();
        let mut files = Vec::new();
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {
                    if !self.enter(&entry) {
                        walk.skip_current_dir();
                    }
                    if self.folders.len() > FOLDERS_MAX {
                        let message = format!("the scan stopped after {FOLDERS_MAX} folders");
                        self.warn(Code::DepthLimit, root, message, "scan a smaller folder");
                        break;
                    }
                }
                Ok(entry) if entry.file_name().eq_ignore_ascii_case(SKILL_FILE) => {
                    files.push(entry.into_path());
                }
                Ok(_) => {}
                Err(error) => self.walk_error(root, &error),
            }
        }
        files.sort();
        self.exact_case_first(files)
    }

    /// Whether to go into a folder.
    fn enter(&mut self, entry: &DirEntry) -> bool {
        let name = entry.file_name().to_string_lossy();
        // The root itself may have any name: the user chose it.
        if entry.depth() > 0 && (name.starts_with('.') || name == "node_modules") {
            return false;
        }
        if entry.depth() > DEPTH_MAX {
            let message = format!("folders more than {DEPTH_MAX} below the root are not searched");
            let hint = "move the skills up, or scan this folder by itself";
            self.warn(Code::DepthLimit, entry.path(), message, hint);
            return false;
        }
        if name.eq_ignore_ascii_case(SKILL_FILE) {
            let message = format!("`{name}` is a folder, not a file");
            self.warn(Code::Io, entry.path(), message, "make it a file, or rename it");
            return false;
        }
        match entry.path().canonicalize() {
            Ok(real) => self.folders.insert(real),
            Err(error) => {
                let message = format!("the folder cannot be read: {error}");
                self.warn(Code::Io, entry.path(), message, "check its permissions");
                false
            }
        }
    }

    /// Of files whose names differ in case only, the exact one or else the first.
    fn exact_case_first(&mut self, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let is_exact = |file: &Path| file.file_name().is_some_and(|name| name == SKILL_FILE);
        let exact: HashSet<PathBuf> = files
            .iter()
            .filter(|file| is_exact(file))
            .filter_map(|file| file.parent().map(Path::to_owned))
            .collect();
        let mut kept: Vec<PathBuf> = Vec::new();
        for file in files {
            let folder = file.parent().unwrap_or(Path::new(""));
            if !is_exact(&file) {
                let hint = "remove one of the two files";
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let taken = exact.contains(folder)
                    || kept.last().is_some_and(|last| last.parent() == Some(folder));
                if taken {
                    let message = format!("`{name}` is ignored beside another skill file");
                    self.warn(Code::FilenameCase, &file, message, hint);
                    continue;
                }
            }
            kept.push(file);
        }
        kept
    }

    fn walk_error(&mut self, root: &Path, error: &walkdir::Error) {
        // A link to a folder that contains it is an ordinary thing to leave alone,
        // and a dangling link is not a skill.
        let missing = error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
        if error.loop_ancestor().is_none() && !missing {
            let path = error.path().unwrap_or(root).to_owned();
            let message = format!("cannot be read: {error}");
            self.warn(Code::Io, &path, message, "check its permissions");
        }
    }

    fn warn(&mut self, code: Code, path: &Path, message: String, hint: &str) {
        self.diagnostics.push(Diagnostic {
            code,
            severity: Severity::Warning,
            path: path.to_owned(),
            line: None,
            column: None,
            message,
            hint: hint.to_owned(),
        });
    }
}

/// Reads the skill files of one root and gives nested skills their identifiers.
/// `files` is sorted, so that an enclosing skill comes before those inside it
/// once its folder is looked up by ancestry.
fn read(root: &Path, files: Vec<PathBuf>, diagnostics: &mut Vec<Diagnostic>) -> Vec<Skill> {
    let mut skills = Vec::new();
    for file in files {
        match read_file(&file) {
            Ok(Parsed { mut skill, warnings }) => {
                diagnostics.extend(warnings);
                root.clone_into(&mut skill.root);
                skills.push(skill);
            }
            Err(finding) => diagnostics.push(finding),
        }
    }
    // Shallow folders first: the identifier of the enclosing skill must be final.
    skills.sort_by_key(|skill: &Skill| skill.folder.components().count());
    let mut ids: HashMap<PathBuf, String> = HashMap::new();
    for skill in &mut skills {
        skill.parent = skill.folder.ancestors().skip(1).find_map(|outer| ids.get(outer)).cloned();
        if let Some(parent) = &skill.parent {
            skill.id = format!("{parent}/{}", skill.name);
        }
        ids.insert(skill.folder.clone(), skill.id.clone());
    }
    skills.sort_by(|a, b| a.file.cmp(&b.file));
    skills
}

fn read_file(file: &Path) -> Result<Parsed, Diagnostic> {
    let failed = |error: io::Error| Diagnostic {
        code: Code::Io,
        severity: Severity::Error,
        path: file.to_owned(),
        line: None,
        column: None,
        message: format!("the file cannot be read: {error}"),
        hint: "check that it exists and is readable".to_owned(),
    };
    let handle = File::open(file).map_err(failed)?;
    let bytes = handle.metadata().map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(too_large(file, bytes));
    }
    // A file may grow between the check and the read.
    let mut content = Vec::with_capacity(bytes as usize);
    handle.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    parse(&content, file)
}

/// Keeps the first skill of each identifier. Copies with equal bytes collapse
/// without a word; others are reported.
fn without_shadowed(skills: Vec<Skill>) -> (Vec<Skill>, Vec<Diagnostic>) {
    let mut kept: Vec<Skill> = Vec::with_capacity(skills.len());
    let mut at: HashMap<String, usize> = HashMap::new();
    let mut diagnostics = Vec::new();
    for skill in skills {
        let Some(&first) = at.get(&skill.id) else {
            at.insert(skill.id.clone(), kept.len());
            kept.push(skill);
            continue;
        };
        let first = &kept[first];
        if first.digest != skill.digest {
            diagnostics.push(Diagnostic {
                code: Code::Shadowed,
                severity: Severity::Warning,
                path: skill.file,
                line: None,
                column: None,
                message: format!("`{}` is already taken by `{}`", first.id, first.file.display()),
                hint: "rename one of the two skills".to_owned(),
            });
        }
    }
    (kept, diagnostics)
}

#[cfg(test)]
mod tests;
