//! The configuration file.
//!
//! **Invariant:** what the file does not say is as the defaults have it; what it
//! says and nobody knows is an error, so that a mistyped key is noticed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use skillgraft_skills::{CATALOG_SHARE, DEPTH_MAX, FOLDERS_MAX};
use skillgraft_store::{Access, Limits};

use crate::error::Error;

/// Name of the file in the configuration folder.
const FILE: &str = "config.toml";

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) skills: SkillConfig,
    pub(crate) cache: CacheConfig,
}

/// Its table `[cache]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CacheConfig {
    /// What all blocks may take, in 10^6 bytes.
    pub(crate) max_mb: u64,
    /// Days after which a block goes that was not used.
    pub(crate) max_age_days: u64,
    /// Whether blocks are read into memory instead of being mapped: for folders
    /// that other programs write to.
    pub(crate) copy: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        let Limits { max_bytes, max_age } = Limits::default();
        CacheConfig {
            max_mb: max_bytes / MEGABYTE,
            max_age_days: max_age.as_secs() / DAY,
            copy: false,
        }
    }
}

impl CacheConfig {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_bytes: self.max_mb.saturating_mul(MEGABYTE),
            max_age: Duration::from_secs(self.max_age_days.saturating_mul(DAY)),
        }
    }

    pub(crate) fn access(&self) -> Access {
        if self.copy { Access::Copy } else { Access::Map }
    }
}

/// 10^6 bytes.
const MEGABYTE: u64 = 1_000_000;
/// Seconds of a day.
const DAY: u64 = 24 * 3600;

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
    fn the_cache_has_limits() {
        let usual = Config::default().cache.limits();
        assert_eq!((usual.max_bytes / MEGABYTE, usual.max_age), (4294, Limits::default().max_age));
        let said = read("[cache]\nmax_mb = 100\nmax_age_days = 2\ncopy = true\n").unwrap().cache;
        let max_age = Duration::from_secs(2 * DAY);
        assert_eq!(said.limits(), Limits { max_bytes: 100 * MEGABYTE, max_age });
        assert_eq!(said.access(), Access::Copy);
    }

    #[test]
    fn what_nobody_knows_is_an_error() {
        for (text, told) in [
            ("[skills]\nfolder = []\n", "unknown field `folder`"),
            ("[skill]\n", "unknown field `skill`"),
            ("[cache]\nmax_size = 1\n", "unknown field `max_size`"),
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
