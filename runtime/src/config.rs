//! The configuration file.
//!
//! **Invariant:** what the file does not say is as the defaults have it; what it
//! says and nobody knows is an error, so that a mistyped key is noticed.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use skillgraft_skills::{CATALOG_SHARE, DEPTH_MAX, FOLDERS_MAX};

use crate::error::Error;

/// Name of the file in the configuration folder.
const FILE: &str = "config.toml";

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) skills: SkillConfig,
}

/// Its table `[skills]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SkillConfig {
    /// Further folders of the user's; `~` is the home folder, and a relative path
    /// starts at the file's own folder.
    pub(crate) folders: Vec<PathBuf>,
    /// Whether the project's and the user's usual folders are searched.
    pub(crate) discover: bool,
    /// Folders below a root that are entered.
    pub(crate) depth: usize,
    /// Folders that one scan enters.
    pub(crate) max_folders: usize,
    /// Share of the context that the catalog may take, from 0 to 1.
    pub(crate) catalog_share: f64,
}

impl Default for SkillConfig {
    fn default() -> Self {
        SkillConfig {
            folders: Vec::new(),
            discover: true,
            depth: DEPTH_MAX,
            max_folders: FOLDERS_MAX,
            catalog_share: CATALOG_SHARE,
        }
    }
}

impl Config {
    /// Reads the file of a configuration folder; none says nothing.
    ///
    /// # Errors
    /// [`Error::BadConfig`] when it cannot be read or understood.
    pub(crate) fn read(folder: &Path, home: Option<&Path>) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let bad = |reason: String| Error::BadConfig { path: path.clone(), reason };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(error) => return Err(bad(error.to_string())),
        };
        let mut config: Config =
            toml::from_str(&text).map_err(|error| bad(error.to_string().trim_end().to_owned()))?;
        if !(0.0..=1.0).contains(&config.skills.catalog_share) {
            let share = config.skills.catalog_share;
            return Err(bad(format!("`skills.catalog_share` is {share}, expected 0 to 1")));
        }
        for path in &mut config.skills.folders {
            *path = match (path.strip_prefix("~"), home) {
                (Ok(below), Some(home)) => home.join(below),
                _ => folder.join(&*path),
            };
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Error> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        Config::read(folder.path(), Some(Path::new("/home/ana")))
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let none = tempfile::tempdir().unwrap();
        assert_eq!(Config::read(none.path(), None).unwrap(), Config::default());
        let config =
            read("[skills]\nfolders = [\"~/team\", \"/srv/skills\"]\ndepth = 3\n").unwrap();
        let folders = ["/home/ana/team", "/srv/skills"].map(PathBuf::from);
        assert_eq!(config.skills.folders, folders);
        assert_eq!((config.skills.depth, config.skills.discover), (3, true));
    }

    #[test]
    fn what_nobody_knows_is_an_error() {
        for (text, told) in [
            ("[skills]\nfolder = []\n", "unknown field `folder`"),
            ("[skill]\n", "unknown field `skill`"),
            ("[skills]\ndepth = -1\n", "depth"),
            ("[skills]\ncatalog_share = 2.0\n", "expected 0 to 1"),
            ("[skills\n", "expected"),
        ] {
            let error = read(text).unwrap_err();
            assert!(
                matches!(&error, Error::BadConfig { reason, .. } if reason.contains(told)),
                "{error}"
            );
        }
    }
}
