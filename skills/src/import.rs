//! Takes skills from a folder or a zip archive into a folder of skills.
//!
//! **Invariant:** all skills of the source come in, or none: they are written to
//! a hidden folder beside their place, checked there as any scan checks them, and
//! renamed. Nothing is written outside that folder, whatever the source holds.
//!
//! **Refuses:** names that leave the archive, links, encrypted entries, more than
//! [`ImportLimits`] allow, sources without a usable skill, and folders that are
//! already there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Catalog, Diagnostic, Error, Root, SKILL_FILE, ScanOptions, Scanner, Skill};

mod copy;
mod zip;

pub use zip::import_zip;

/// What an import may hold. Skills are text with a few scripts and pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportLimits {
    /// Bytes of the archive.
    pub archive_bytes_max: u64,
    /// Files and folders.
    pub entries_max: usize,
    /// Bytes of one file.
    pub file_bytes_max: u64,
    /// Bytes of all files.
    pub total_bytes_max: u64,
    /// How many times larger than its compressed form a file may be, from
    /// [`ImportLimits::ratio_from_bytes`] on.
    pub ratio_max: u64,
    /// Bytes of a file from which its ratio counts: small files may well shrink a
    /// lot.
    pub ratio_from_bytes: u64,
}

impl Default for ImportLimits {
    fn default() -> Self {
        ImportLimits {
            archive_bytes_max: 64 << 20,
            entries_max: 10_000,
            file_bytes_max: 16 << 20,
            total_bytes_max: 128 << 20,
            ratio_max: 100,
            ratio_from_bytes: 1 << 20,
        }
    }
}

/// What came in.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The skills, in their new places; nested ones included.
    pub skills: Vec<Skill>,
    /// What was found about them, paths being those of the new places.
    pub findings: Vec<Diagnostic>,
}

/// Why nothing came in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The source cannot be read.
    #[error("cannot read `{}`", path.display())]
    Source {
        /// The source, or the file of it.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The source is no zip archive that can be read.
    #[error("the archive cannot be read: {reason}")]
    NotAnArchive {
        /// Why.
        reason: String,
    },
    /// An entry's name leads out of the archive.
    #[error("the entry `{}` leads out of the archive", entry.escape_debug())]
    Slip {
        /// The entry's name.
        entry: String,
    },
    /// An entry is a link.
    #[error("`{}` is a link", entry.escape_debug())]
    Link {
        /// The entry's name.
        entry: String,
    },
    /// An entry is encrypted.
    #[error("the entry `{}` is encrypted", entry.escape_debug())]
    Encrypted {
        /// The entry's name.
        entry: String,
    },
    /// The source holds more than is taken.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What of it.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The source holds no skill that could be used.
    #[error("there is no usable skill in it; left out: {}", omitted.len())]
    NoSkill {
        /// What was found and left out, with the reasons.
        omitted: Vec<Diagnostic>,
    },
    /// A folder of that name is there already.
    #[error("`{}` is already there", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// Two skills of the source would have one folder.
    #[error("two skills have a folder called `{name}`")]
    Twice {
        /// The folder's name.
        name: String,
    },
    /// The skills cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was written cannot be scanned.
    #[error(transparent)]
    Scan(#[from] Error),
}

impl ImportError {
    /// A name for programs; stable.
    pub fn code(&self) -> &'static str {
        match self {
            ImportError::Source { .. } | ImportError::Write { .. } => "io",
            ImportError::NotAnArchive { .. } => "not-an-archive",
            ImportError::Slip { .. } => "zip-slip",
            ImportError::Link { .. } => "zip-symlink",
            ImportError::Encrypted { .. } => "zip-encrypted",
            ImportError::TooLarge { .. } => "too-large",
            ImportError::NoSkill { .. } => "no-skills",
            ImportError::Exists { .. } => "exists",
            ImportError::Twice { .. } => "duplicate",
            ImportError::Scan(error) => error.code(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ImportError::NoSkill { omitted } => Some(match omitted.first() {
                Some(first) => format!("{first}: {}", first.hint),
                None => "a skill is a folder with a file `SKILL.md`".to_owned(),
            }),
            ImportError::Exists { .. } => Some("remove or rename it first".to_owned()),
            ImportError::Slip { .. } => {
                Some("an archive with such names was made to harm: do not unpack it".to_owned())
            }
            ImportError::Link { .. } => Some("put a copy in the place of the link".to_owned()),
            ImportError::NotAnArchive { .. } => Some("name a folder or a zip archive".to_owned()),
            ImportError::Scan(error) => error.hint(),
            _ => None,
        }
    }
}

/// Takes the skills of a folder or a zip archive into the folder `into`, which
/// is made when it does not exist.
///
/// # Errors
/// Any [`ImportError`]; nothing has come in then.
pub fn import(source: &Path, into: &Path, limits: &ImportLimits) -> Result<Imported, ImportError> {
    let failed = |error| ImportError::Source { path: source.to_owned(), source: error };
    let metadata = fs::metadata(source).map_err(failed)?;
    let name = source.canonicalize().map_err(failed)?;
    let name = name.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if metadata.is_dir() {
        let files = copy::list(source, limits)?;
        return import_with(into, &name, |target| copy::write(&files, target));
    }
    if metadata.len() > limits.archive_bytes_max {
        let limit = limits.archive_bytes_max;
        return Err(ImportError::TooLarge { what: "the archive".to_owned(), limit });
    }
    import_zip(fs::File::open(source).map_err(failed)?, &name, into, limits)
}

/// Lets `fill` write the source's files into a hidden folder, and moves the
/// skills found there to their places.
fn import_with(
    into: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), ImportError>,
) -> Result<Imported, ImportError> {
    let failed = |source| ImportError::Write { path: into.to_owned(), source };
    fs::create_dir_all(into).map_err(failed)?;
    let staging = tempfile::Builder::new().prefix(".import-").tempdir_in(into).map_err(failed)?;
    let content = staging.path().join("content");
    fs::create_dir(&content).map_err(failed)?;
    fill(&content)?;
    let catalog = scan_staged(&content)?;
    let catalog = match catalog.skills().iter().find(|skill| skill.folder == content) {
        Some(_) => wrap(&catalog, &content, &staging.path().join("wrapped"), name)?,
        None => catalog,
    };
    let moves = plan(&catalog, into)?;
    carry_out(&moves)?;
    Ok(in_place(&catalog, &moves))
}

fn scan_staged(content: &Path) -> Result<Catalog, ImportError> {
    // What is not taken along must be an error here: ignore files do not count.
    let options = ScanOptions { ignore_files: false, ..ScanOptions::default() };
    let catalog = Scanner::new(vec![Root::given(content)], options).scan()?;
    if catalog.is_empty() {
        return Err(ImportError::NoSkill { omitted: catalog.omitted().cloned().collect() });
    }
    Ok(catalog)
}

/// Puts a source that is itself a skill into a folder of the skill's name.
fn wrap(
    catalog: &Catalog,
    content: &Path,
    wrapped: &Path,
    name: &str,
) -> Result<Catalog, ImportError> {
    let skill = catalog.skills().iter().find(|skill| skill.folder == content);
    let written = skill.filter(|skill| skill.fields.iter().any(|field| field == "name"));
    let folder = written.map_or(name, |skill| skill.name.as_str());
    let target = wrapped.join(folder);
    let failed = |source| ImportError::Write { path: target.clone(), source };
    fs::create_dir(wrapped).map_err(failed)?;
    fs::rename(content, &target).map_err(failed)?;
    scan_staged(wrapped)
}

/// The folders to move, with their places.
fn plan(catalog: &Catalog, into: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, ImportError> {
    let mut moves = BTreeMap::new();
    let mut names = BTreeSet::new();
    for skill in catalog.skills().iter().filter(|skill| skill.parent.is_none()) {
        let name = skill.folder.file_name().unwrap_or_default();
        // Some file systems do not tell case apart.
        let key = name.to_string_lossy().to_lowercase();
        if !names.insert(key) {
            return Err(ImportError::Twice { name: name.to_string_lossy().into_owned() });
        }
        let place = into.join(name);
        if place.symlink_metadata().is_ok() {
            return Err(ImportError::Exists { path: place });
        }
        moves.insert(skill.folder.clone(), place);
    }
    Ok(moves)
}

/// Renames all or none.
fn carry_out(moves: &BTreeMap<PathBuf, PathBuf>) -> Result<(), ImportError> {
    let mut done: Vec<&PathBuf> = Vec::new();
    for (from, to) in moves {
        if let Err(source) = fs::rename(from, to) {
            for place in done {
                // The staging folder is removed with what is left in it.
                let _ = fs::remove_dir_all(place);
            }
            return Err(ImportError::Write { path: to.clone(), source });
        }
        done.push(to);
    }
    Ok(())
}

/// The skills and findings with the paths of their new places.
fn in_place(catalog: &Catalog, moves: &BTreeMap<PathBuf, PathBuf>) -> Imported {
    let moved = |path: &Path| {
        let from = path.ancestors().find(|level| moves.contains_key(*level))?;
        Some(moves[from].join(path.strip_prefix(from).ok()?))
    };
    let skills = catalog.skills().iter().filter_map(|skill| {
        let mut skill = Skill::clone(skill);
        skill.file = moved(&skill.file)?;
        skill.folder = moved(&skill.folder)?;
        skill.root = skill.folder.parent().unwrap_or(Path::new("")).to_owned();
        Some(skill)
    });
    let findings = catalog.diagnostics().iter().cloned().map(|mut finding| {
        if let Some(path) = moved(&finding.path) {
            finding.path = path;
        }
        finding
    });
    Imported { skills: skills.collect(), findings: findings.collect() }
}

/// Whether a part of a path is never taken along: version control, packages, and
/// what desktops leave behind.
fn is_left_behind(part: &str) -> bool {
    (part.starts_with('.') && part != SKILL_FILE) || part == "node_modules" || part == "__MACOSX"
}

#[cfg(test)]
mod tests;
