//! The folders whose skills may enter a prompt.
//!
//! **Invariant:** the file holds one absolute, canonical path a line, sorted, and
//! is replaced as a whole. A trusted folder covers what is below it.
//!
//! **Refuses:** folders that do not exist, and paths that no line can hold.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// The trusted folders, kept in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    file: PathBuf,
    folders: BTreeSet<PathBuf>,
}

impl Trust {
    /// Trusts no folder, and has no file.
    pub fn none() -> Self {
        Trust::default()
    }

    /// Reads a file; one that does not exist trusts no folder.
    ///
    /// # Errors
    /// [`Error::Trust`] when the file exists and cannot be read.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(Error::Trust { path: file.to_owned(), source }),
        };
        // A relative path would mean another folder from each working folder.
        let folders = text.lines().map(PathBuf::from).filter(|folder| folder.is_absolute());
        Ok(Trust { file: file.to_owned(), folders: folders.collect() })
    }

    /// The trusted folders, sorted.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(PathBuf::as_path)
    }

    /// Whether a folder is trusted, or lies in one that is. A folder that cannot
    /// be looked up is not.
    pub fn is_trusted(&self, folder: &Path) -> bool {
        let Ok(folder) = folder.canonicalize() else { return false };
        folder.ancestors().any(|level| self.folders.contains(level))
    }

    /// Trusts a folder from now on, and gives its canonical path.
    ///
    /// # Errors
    /// [`Error::Trust`] when the folder does not exist, its path cannot be kept,
    /// or the file cannot be written.
    pub fn add(&mut self, folder: &Path) -> Result<PathBuf, Error> {
        let failed = |source| Error::Trust { path: folder.to_owned(), source };
        let canonical = folder.canonicalize().map_err(failed)?;
        if !canonical.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::NotADirectory)));
        }
        if canonical.to_str().is_none_or(|path| path.contains(['\n', '\r'])) {
            return Err(failed(io::Error::other("the path is no line of text")));
        }
        self.folders.insert(canonical.clone());
        self.write()?;
        Ok(canonical)
    }

    /// Trusts a folder no longer; `false` when it was not trusted itself.
    ///
    /// # Errors
    /// [`Error::Trust`] when the file cannot be written.
    pub fn remove(&mut self, folder: &Path) -> Result<bool, Error> {
        // A folder that is gone can still be taken from the list.
        let canonical = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let was_there = self.folders.remove(&canonical);
        if was_there {
            self.write()?;
        }
        Ok(was_there)
    }

    fn write(&self) -> Result<(), Error> {
        let failed = |source| Error::Trust { path: self.file.clone(), source };
        let folder = self.file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        for trusted in &self.folders {
            writeln!(file, "{}", trusted.display()).map_err(failed)?;
        }
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&self.file).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn trust_is_kept_and_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let [project, other] = ["project", "other"].map(|name| folder.path().join(name));
        fs::create_dir_all(project.join("inner")).unwrap();
        fs::create_dir_all(&other).unwrap();
        let file = folder.path().join("state/trusted");
        let mut trust = Trust::open(&file).unwrap();
        assert!(!trust.is_trusted(&project));
        trust.add(&project.join("inner/..")).unwrap();
        let mut again = Trust::open(&file).unwrap();
        assert_eq!(again, trust);
        assert!(again.is_trusted(&project) && again.is_trusted(&project.join("inner")));
        assert!(!again.is_trusted(&other) && !again.is_trusted(folder.path()));
        assert!(!again.is_trusted(&project.join("gone")));
        assert!(again.remove(&project).unwrap() && !again.remove(&project).unwrap());
        assert!(!Trust::open(&file).unwrap().is_trusted(&project));
    }

    #[test]
    fn only_folders_that_exist_are_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let mut trust = Trust::open(&folder.path().join("trusted")).unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [folder.path().join("absent"), file] {
            assert!(matches!(trust.add(&path), Err(Error::Trust { path: got, .. }) if got == path));
        }
        assert_eq!(trust.folders().count(), 0);
    }
}
