//! Walks folders for skill files.
//!
//! **Invariant:** a real folder is entered once, under the path that comes first,
//! and a folder whose stamp is settled is not listed again.
//!
//! **Refuses:** hidden folders, `node_modules`, links to a folder above
//! themselves, and what ignore files name.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use walkdir::WalkDir;

use super::stamp::Stamp;
use super::{SKILL_FILE, ScanOptions};
use crate::{Code, Diagnostic, Severity};

/// The files whose patterns name folders that hold no skills.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// Entries of a folder that is not searched that are looked at to tell whether
/// it holds skills.
const PROBE_ENTRIES_MAX: usize = 500;
/// Folders below such a folder that are looked into: `.client/skills/name`.
const PROBE_DEPTH_MAX: usize = 4;

/// What a folder holds that matters here, sorted by name.
#[derive(Debug, Clone, Default)]
struct Listing {
    folders: Vec<OsString>,
    links: Vec<OsString>,
    skill_files: Vec<OsString>,
    has_ignore_files: bool,
    /// Hidden folders that hold skills, with the number of them.
    hidden: Vec<(OsString, usize)>,
}

/// What is known of one folder.
#[derive(Debug)]
pub(super) struct FolderMemo {
    stamp: Option<Stamp>,
    listing: Arc<Listing>,
}

/// What tells one real folder from another.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Identity {
    Inode(u64, u64),
    Path(PathBuf),
}

/// One walk over all roots.
pub(super) struct Walk<'o> {
    options: &'o ScanOptions,
    memos: HashMap<PathBuf, FolderMemo>,
    /// The memos of folders that this walk entered.
    pub(super) kept: HashMap<PathBuf, FolderMemo>,
    pub(super) findings: Vec<Diagnostic>,
    seen: HashSet<Identity>,
    files: Vec<PathBuf>,
    now: SystemTime,
    is_full: bool,
}

impl<'o> Walk<'o> {
    pub(super) fn new(options: &'o ScanOptions, memos: HashMap<PathBuf, FolderMemo>) -> Self {
        Walk {
            options,
            kept: HashMap::with_capacity(memos.len()),
            memos,
            findings: Vec::new(),
            seen: HashSet::new(),
            files: Vec::new(),
            now: SystemTime::now(),
            is_full: false,
        }
    }

    /// The skill files under one root, sorted by path.
    pub(super) fn root(&mut self, root: &Path) -> io::Result<Vec<PathBuf>> {
        // A root that cannot be listed is the caller's mistake, not a finding.
        if !self.memos.contains_key(root) {
            fs::read_dir(root)?;
        }
        self.is_full = false;
        self.enter(root, 0, &[])?;
        let mut files = std::mem::take(&mut self.files);
        files.sort();
        Ok(files)
    }

    /// Goes into a folder unless it was entered before.
    fn enter(&mut self, folder: &Path, depth: usize, above: &[Arc<Gitignore>]) -> io::Result<()> {
        let metadata = fs::metadata(folder)?;
        let (stamp, settled) = Stamp::of(&metadata, self.now);
        let identity = match stamp.identity() {
            Some((device, inode)) => Identity::Inode(device, inode),
            None => Identity::Path(folder.canonicalize()?),
        };
        if !self.seen.insert(identity) {
            return Ok(());
        }
        if self.seen.len() > self.options.folders_max {
            self.stop(folder);
            return Ok(());
        }
        let listing = match self.memos.remove(folder) {
            Some(memo) if memo.stamp == Some(stamp) => memo.listing,
            _ => Arc::new(Self::list(folder)?),
        };
        let memo = FolderMemo { stamp: settled.then_some(stamp), listing: Arc::clone(&listing) };
        self.kept.insert(folder.to_owned(), memo);
        self.skill_files(folder, &listing);
        for (name, n_skills) in &listing.hidden {
            let message =
                format!("hidden folders are not searched; this one holds {n_skills} skills");
            let hint = "pass the folder itself to have it searched";
            self.warn(Code::HiddenFolder, &folder.join(name), message, hint);
        }
        let ignores = self.ignores(folder, &listing, above);
        for (name, is_link) in children(&listing) {
            let child = folder.join(name);
            if name.eq_ignore_ascii_case(SKILL_FILE) {
                self.not_a_file(&child);
                continue;
            }
            if self.is_full || self.is_ignored(&child, &ignores) {
                continue;
            }
            if is_link && !leads_down(&child) {
                continue;
            }
            if depth + 1 > self.options.depth_max {
                self.too_deep(&child);
                continue;
            }
            if let Err(error) = self.enter(&child, depth + 1, &ignores) {
                // A link to nowhere is no skill.
                if !(is_link && error.kind() == io::ErrorKind::NotFound) {
                    let message = format!("the folder cannot be read: {error}");
                    self.warn(Code::Io, &child, message, "check its permissions");
                }
            }
        }
        Ok(())
    }

    fn list(folder: &Path) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            if name.eq_ignore_ascii_case(SKILL_FILE) {
                if kind.is_dir() {
                    listing.folders.push(name);
                } else {
                    listing.skill_files.push(name);
                }
            } else if IGNORE_FILES.iter().any(|ignore| name == *ignore) {
                listing.has_ignore_files = true;
            } else if is_hidden(&name) && kind.is_dir() && name != ".git" {
                let n_skills = probe(&folder.join(&name));
                if n_skills > 0 {
                    listing.hidden.push((name, n_skills));
                }
            } else if is_walked(&name) && kind.is_dir() {
                listing.folders.push(name);
            } else if is_walked(&name) && kind.is_symlink() {
                listing.links.push(name);
            }
        }
        listing.folders.sort();
        listing.links.sort();
        listing.hidden.sort();
        listing.skill_files.sort();
        Ok(listing)
    }

    /// Takes the skill file of a folder: of names that differ in case only, the
    /// exact one or else the first.
    fn skill_files(&mut self, folder: &Path, listing: &Listing) {
        let names = &listing.skill_files;
        let exact = names.iter().position(|name| *name == SKILL_FILE).unwrap_or(0);
        for (at, name) in names.iter().enumerate() {
            let file = folder.join(name);
            if at == exact {
                self.files.push(file);
            } else {
                let name = name.to_string_lossy();
                let message = format!("`{name}` is left out beside another skill file");
                self.warn(Code::FilenameCase, &file, message, "remove one of the two files");
            }
        }
    }

    fn ignores(
        &self,
        folder: &Path,
        listing: &Listing,
        above: &[Arc<Gitignore>],
    ) -> Vec<Arc<Gitignore>> {
        let mut ignores = above.to_vec();
        if self.options.ignore_files && listing.has_ignore_files {
            let mut builder = GitignoreBuilder::new(folder);
            for name in IGNORE_FILES {
                // A pattern that cannot be read names nothing.
                let _ = builder.add(folder.join(name));
            }
            if let Ok(ignore) = builder.build() {
                ignores.push(Arc::new(ignore));
            }
        }
        ignores
    }

    /// Whether ignore files name a folder; one that holds a skill is reported.
    fn is_ignored(&mut self, folder: &Path, ignores: &[Arc<Gitignore>]) -> bool {
        let verdict = ignores.iter().rev().find_map(|ignore| {
            let matched = ignore.matched(folder, true);
            (!matched.is_none()).then(|| matched.is_ignore())
        });
        if verdict != Some(true) {
            return false;
        }
        let n_skills = probe(folder);
        if n_skills > 0 {
            let message =
                format!("an ignore file leaves this folder out; it holds {n_skills} skills");
            let hint = "change `.gitignore` or `.ignore` to have it loaded";
            self.warn(Code::Ignored, folder, message, hint);
        }
        true
    }

    fn too_deep(&mut self, folder: &Path) {
        let depth = self.options.depth_max;
        let message = format!("folders more than {depth} below the root are not searched");
        let hint = "move the skills up, or scan this folder by itself";
        self.warn(Code::DepthLimit, folder, message, hint);
    }

    fn not_a_file(&mut self, folder: &Path) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let message = format!("`{name}` is a folder, not a file");
        self.warn(Code::Io, folder, message, "make it a file, or rename it");
    }

    fn stop(&mut self, folder: &Path) {
        if !self.is_full {
            let limit = self.options.folders_max;
            let message = format!("the scan stopped after {limit} folders");
            self.warn(Code::DepthLimit, folder, message, "scan a smaller folder");
        }
        self.is_full = true;
    }

    fn warn(&mut self, code: Code, path: &Path, message: String, hint: &str) {
        self.findings.push(Diagnostic {
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

/// Folders and links in the order of their names.
fn children(listing: &Listing) -> Vec<(&OsString, bool)> {
    let folders = listing.folders.iter().map(|name| (name, false));
    let mut children: Vec<_> =
        folders.chain(listing.links.iter().map(|name| (name, true))).collect();
    children.sort();
    children
}

/// Hidden folders and installed packages hold copies of skills.
fn is_walked(name: &OsStr) -> bool {
    name != "node_modules" && !is_hidden(name)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The number of skill files in a folder that is not searched, as far as a short
/// look tells.
fn probe(folder: &Path) -> usize {
    let walk = WalkDir::new(folder).max_depth(PROBE_DEPTH_MAX).into_iter();
    let walked = walk.filter_entry(|entry| entry.depth() == 0 || is_walked(entry.file_name()));
    let entries = walked.take(PROBE_ENTRIES_MAX).flatten();
    let is_skill = |entry: &walkdir::DirEntry| {
        entry.file_name().eq_ignore_ascii_case(SKILL_FILE) && !entry.file_type().is_dir()
    };
    entries.filter(is_skill).count()
}

/// Whether a link leads to a folder that does not hold the link itself.
fn leads_down(link: &Path) -> bool {
    let Ok(target) = link.canonicalize() else { return false };
    let holder = link.parent().and_then(|folder| folder.canonicalize().ok());
    target.is_dir() && !holder.is_some_and(|holder| holder.starts_with(&target))
}
