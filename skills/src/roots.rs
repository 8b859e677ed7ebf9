//! Where skills are looked for, and whose word counts first.
//!
//! **Invariant:** the order is that of precedence: folders given by name, then
//! the project's from the working folder up to the repository's, then the
//! user's. No folder occurs twice.
//!
//! **Refuses:** a project's folders unless the project is trusted: descriptions
//! enter the prompt, and a project may come from anyone.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Code, Diagnostic, Severity, Trust};

/// Folders of a project that hold skills, nearest client first.
const PROJECT_FOLDERS: [&str; 3] = [".skillgraft/skills", ".agents/skills", ".claude/skills"];
/// Folders of a user's home that hold skills, beside our own.
const HOME_FOLDERS: [&str; 2] = [".agents/skills", ".claude/skills"];
/// Folders above the working folder that are looked at: a path is not longer.
const LEVELS_MAX: usize = 64;

/// Whose folder it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Named on the command line or in the configuration.
    Given,
    /// The project's.
    Project,
    /// The user's own.
    User,
}

/// A folder that is searched for skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The folder.
    pub path: PathBuf,
    /// Whose it is.
    pub origin: Origin,
}

impl Root {
    /// A folder named by the user: it must exist.
    pub fn given(path: &Path) -> Self {
        Root { path: path.to_owned(), origin: Origin::Given }
    }

    /// Whether the error is that a folder does not exist that need not.
    pub(crate) fn is_missing(&self, error: &io::Error) -> bool {
        self.origin != Origin::Given && error.kind() == io::ErrorKind::NotFound
    }
}

/// The folders from which roots follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// The working folder, absolute; empty where there is none.
    pub working: PathBuf,
    /// The user's home, where there is one.
    pub home: Option<PathBuf>,
    /// The folder of our own configuration, such as `~/.config/skillgraft`.
    pub config: Option<PathBuf>,
    /// Further folders of the user's, from the configuration.
    pub further: Vec<PathBuf>,
}

/// The roots to search, and what was found about them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roots {
    /// In order of precedence.
    pub roots: Vec<Root>,
    /// Project folders that were left out, since they are not trusted.
    pub findings: Vec<Diagnostic>,
}

impl Roots {
    /// The roots for some places. `given` come first and are taken as they are;
    /// project folders are taken when `trust` has the project.
    pub fn discover(given: &[PathBuf], places: &Places, trust: &Trust) -> Self {
        let user = user_folders(places);
        let mut found = Roots::default();
        for path in given {
            found.push(path.clone(), Origin::Given);
        }
        let project = project_folder(&places.working);
        let is_trusted = trust.is_trusted(&project);
        for level in levels(&places.working, &project) {
            for folder in PROJECT_FOLDERS.map(|folder| level.join(folder)) {
                // In the home folder these are the user's own.
                let is_users = user.iter().any(|user| is_same(user, &folder));
                if is_users || found.has(&folder) {
                    continue;
                }
                if is_trusted {
                    found.push(folder, Origin::Project);
                } else if folder.is_dir() {
                    found.findings.push(untrusted(folder, &project));
                }
            }
        }
        for folder in user {
            found.push(folder, Origin::User);
        }
        found
    }

    fn has(&self, folder: &Path) -> bool {
        self.roots.iter().any(|root| is_same(&root.path, folder))
    }

    fn push(&mut self, path: PathBuf, origin: Origin) {
        if !self.has(&path) {
            self.roots.push(Root { path, origin });
        }
    }
}

/// The folder that is trusted as a whole: the repository that holds the working
/// folder, or the working folder itself.
pub fn project_folder(working: &Path) -> PathBuf {
    let mut levels = working.ancestors().take(LEVELS_MAX);
    levels.find(|level| level.join(".git").exists()).unwrap_or(working).to_owned()
}

fn levels<'a>(working: &'a Path, project: &'a Path) -> impl Iterator<Item = &'a Path> {
    let levels = working.ancestors().take(LEVELS_MAX);
    levels.take_while(move |level| !level.as_os_str().is_empty() && level.starts_with(project))
}

fn user_folders(places: &Places) -> Vec<PathBuf> {
    let own = places.config.iter().map(|config| config.join("skills"));
    let homes = places.home.iter().flat_map(|home| HOME_FOLDERS.map(|folder| home.join(folder)));
    own.chain(homes).chain(places.further.iter().cloned()).collect()
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn untrusted(folder: PathBuf, project: &Path) -> Diagnostic {
    Diagnostic {
        code: Code::Untrusted,
        severity: Severity::Warning,
        path: folder,
        line: None,
        column: None,
        message: "the project's skills are not read, since it is not trusted".to_owned(),
        hint: format!("`skillgraft trust {}` trusts it", project.display()),
    }
}

#[cfg(test)]
mod tests;
