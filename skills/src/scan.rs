//! Folders to [`Catalog`]: finds every `SKILL.md` under the given roots.
//!
//! **Invariant:** the catalog depends only on the files and the order of the
//! roots, never on the order in which a file system lists them, nor on earlier
//! scans. Every file found is in the catalog or among the omitted. Symlinked
//! folders are followed, each real folder once, so that a cycle ends.
//!
//! **Refuses:** to enter hidden folders and `node_modules`, which hold copies of
//! skills and not skills, and to go deeper than [`DEPTH_MAX`].
//!
//! A skill whose folder lies inside another skill's folder is *nested*: its
//! identifier is `outer/inner`. An earlier root wins over a later one, and an
//! earlier path over a later one, when two skills have the same identifier.
//!
//! A [`Scanner`] remembers what it read, and reads only what has changed since.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Catalog, Code, Diagnostic, Error, Level, Root, Severity, Skill};

mod read;
mod stamp;
mod walk;

use read::{FileMemo, read_all};
use walk::{FolderMemo, Walk};

/// The name of a skill's file.
pub const SKILL_FILE: &str = "SKILL.md";
/// Folders below a root that are entered: deeper ones are reported.
pub const DEPTH_MAX: usize = 8;
/// Folders that one scan enters: a scan of a whole disk stops there.
pub const FOLDERS_MAX: usize = 50_000;

/// How a scan is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOptions {
    /// Which findings leave a skill out.
    pub level: Level,
    /// Folders below a root that are entered.
    pub depth_max: usize,
    /// Folders that one scan enters.
    pub folders_max: usize,
    /// Whether `.gitignore` and `.ignore` files at and below a root count.
    pub ignore_files: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        ScanOptions {
            level: Level::Lenient,
            depth_max: DEPTH_MAX,
            folders_max: FOLDERS_MAX,
            ignore_files: true,
        }
    }
}

/// Reads all skills under `roots`, in order of precedence. A catalog without
/// skills is a result too; [`Catalog::require_skills`] makes it an error.
///
/// # Errors
/// [`Error::NoRoots`] without roots; [`Error::Root`] when a root is no readable
/// folder. Anything wrong further down is a diagnostic of the catalog.
pub fn scan(roots: &[PathBuf]) -> Result<Catalog, Error> {
    let roots = roots.iter().map(|path| Root::given(path)).collect();
    Scanner::new(roots, ScanOptions::default()).scan()
}

/// Scans the same roots again and again. A scan that finds nothing changed reads
/// no file and gives the snapshot of the scan before.
#[derive(Debug)]
pub struct Scanner {
    roots: Vec<Root>,
    options: ScanOptions,
    folders: HashMap<PathBuf, FolderMemo>,
    files: HashMap<PathBuf, FileMemo>,
    /// What the walk of the last snapshot came upon.
    seen: Option<Seen>,
    last: Option<Catalog>,
    n_read: usize,
}

/// What a walk came upon.
#[derive(Debug)]
struct Seen {
    findings: Vec<Diagnostic>,
    /// Files with the index of their root.
    files: Vec<(usize, PathBuf)>,
}

impl Scanner {
    /// A scanner of `roots`, in order of precedence.
    pub fn new(roots: Vec<Root>, options: ScanOptions) -> Self {
        Scanner {
            roots,
            options,
            folders: HashMap::new(),
            files: HashMap::new(),
            seen: None,
            last: None,
            n_read: 0,
        }
    }

    /// The roots, in order of precedence.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// The folders that the last scan entered: what has to be watched.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.keys().map(PathBuf::as_path)
    }

    /// Files that the last scan read, since they were new or changed.
    pub fn n_read(&self) -> usize {
        self.n_read
    }

    /// The skills as they are now.
    ///
    /// # Errors
    /// As [`scan`]. A root that need not exist is no error when it does not.
    pub fn scan(&mut self) -> Result<Catalog, Error> {
        if self.roots.is_empty() {
            return Err(Error::NoRoots);
        }
        let mut walk = Walk::new(&self.options, std::mem::take(&mut self.folders));
        let mut found: Vec<(usize, PathBuf)> = Vec::new();
        let mut failed = None;
        for (at, root) in self.roots.iter().enumerate() {
            match walk.root(&root.path) {
                Ok(files) => found.extend(files.into_iter().map(|file| (at, file))),
                Err(error) if root.is_missing(&error) => {}
                Err(source) => {
                    failed = Some(Error::Root { path: root.path.clone(), source });
                    break;
                }
            }
        }
        let findings = walk.findings;
        self.folders = walk.kept;
        if let Some(error) = failed {
            return Err(error);
        }
        let outcome = read_all(&found, &mut self.files);
        self.n_read = outcome.n_read;
        let is_same =
            self.seen.as_ref().is_some_and(|seen| seen.findings == findings && seen.files == found);
        if let Some(last) = &self.last
            && is_same
            && !outcome.has_changed
        {
            return Ok(last.clone());
        }
        let catalog = self.assemble(&findings, &found);
        self.seen = Some(Seen { findings, files: found });
        self.last = Some(catalog.clone());
        Ok(catalog)
    }

    /// Puts what was read together.
    fn assemble(&mut self, findings: &[Diagnostic], found: &[(usize, PathBuf)]) -> Catalog {
        let level = self.options.level;
        let mut diagnostics: Vec<Diagnostic> = findings.to_vec();
        let mut skills = Vec::new();
        for (at, file) in found {
            let memo = self.files.get_mut(file).expect("every file found has been read");
            diagnostics.extend(memo.findings.iter().cloned().map(|finding| finding.at(level)));
            let is_refused =
                memo.findings.iter().any(|finding| level == Level::Strict && finding.breaks_spec());
            if let Some(skill) = &mut memo.skill
                && !is_refused
            {
                set_root(skill, &self.roots[*at].path);
                skills.push((*at, skill.clone()));
            }
        }
        let nested = with_ids(skills);
        let (skills, shadowed) = without_shadowed(nested);
        diagnostics.extend(shadowed);
        let roots = self.roots.iter().map(|root| root.path.clone()).collect();
        Catalog::shared(skills, diagnostics, roots)
    }
}

/// Sets what depends on the root, and copies a shared skill only to change it.
fn set_root(skill: &mut Arc<Skill>, root: &Path) {
    if skill.root != root {
        root.clone_into(&mut Arc::make_mut(skill).root);
    }
}

/// Gives nested skills their identifiers. The result is sorted by root and path.
fn with_ids(mut skills: Vec<(usize, Arc<Skill>)>) -> Vec<Arc<Skill>> {
    // Shallow folders first: the identifier of the enclosing skill must be final.
    skills.sort_by_key(|(root, skill)| (*root, skill.folder.components().count()));
    let mut ids: HashMap<usize, HashMap<PathBuf, String>> = HashMap::new();
    for (root, skill) in &mut skills {
        let root_path = &skill.root;
        let mut outer =
            skill.folder.ancestors().skip(1).take_while(|dir| dir.starts_with(root_path));
        let parent = outer.find_map(|outer| ids.get(root)?.get(outer)).cloned();
        let id = match &parent {
            Some(parent) => format!("{parent}/{}", skill.name),
            None => skill.name.clone(),
        };
        if skill.parent != parent || skill.id != id {
            let skill = Arc::make_mut(skill);
            (skill.parent, skill.id) = (parent, id);
        }
        ids.entry(*root).or_default().insert(skill.folder.clone(), skill.id.clone());
    }
    skills.sort_by(|(root_a, a), (root_b, b)| (root_a, &a.file).cmp(&(root_b, &b.file)));
    skills.into_iter().map(|(_, skill)| skill).collect()
}

/// Keeps the first skill of each identifier. Copies with equal bytes collapse
/// without a word; others are reported. What is nested in a skill that was not
/// kept is not kept either: it belongs to another version of the outer one.
fn without_shadowed(skills: Vec<Arc<Skill>>) -> (Vec<Arc<Skill>>, Vec<Diagnostic>) {
    let mut kept: Vec<Arc<Skill>> = Vec::with_capacity(skills.len());
    let mut at: HashMap<String, usize> = HashMap::with_capacity(skills.len());
    let mut diagnostics = Vec::new();
    for skill in by_depth(skills) {
        let outer = skill.parent.as_ref().and_then(|parent| at.get(parent));
        let is_inside = outer.is_none_or(|&outer| skill.folder.starts_with(&kept[outer].folder));
        let first = at.get(&skill.id).map(|&first| kept[first].clone());
        let first = match (first, is_inside) {
            (None, true) => {
                at.insert(skill.id.clone(), kept.len());
                kept.push(skill);
                continue;
            }
            (Some(first), _) => first,
            (None, false) => kept[*outer.expect("only a nested skill is outside")].clone(),
        };
        if first.digest != skill.digest {
            diagnostics.push(Diagnostic {
                code: Code::Shadowed,
                severity: Severity::Warning,
                path: skill.file.clone(),
                line: None,
                column: None,
                message: format!("`{}` is already taken by `{}`", first.id, first.file.display()),
                hint: "rename one of the two skills".to_owned(),
            });
        }
    }
    (kept, diagnostics)
}

/// Outer skills before those inside them, and otherwise in the order given.
fn by_depth(mut skills: Vec<Arc<Skill>>) -> Vec<Arc<Skill>> {
    skills.sort_by_key(|skill| skill.id.matches('/').count());
    skills
}

#[cfg(test)]
mod tests;
