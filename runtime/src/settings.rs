//! What a user may set, and the environment variables it is read from.

use std::ffi::OsString;
use std::path::PathBuf;

use skillgraft_engine::{BackendOptions, ModelOptions};
use skillgraft_skills::{CATALOG_SHARE, Places, Root, Roots, ScanOptions, Trust};
use skillgraft_store::{Access, DirStore, Limits};

use crate::config::{CacheConfig, Config};
use crate::conversation::StopFlag;
use crate::error::Error;
use crate::models::ModelChoice;

/// Everything a [`Runtime`](crate::Runtime) is opened with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where models and blocks are kept.
    pub cache_dir: PathBuf,
    /// What the blocks may take.
    pub cache_limits: Limits,
    /// How blocks are read.
    pub cache_access: Access,
    /// Where skills are looked for.
    pub skills: SkillSettings,
    /// Which model to run.
    pub model: ModelChoice,
    /// How to run it.
    pub options: ModelOptions,
    /// Ends a download from another thread.
    pub stop: StopFlag,
}

/// Where skills are looked for, and how.
#[derive(Debug, Clone)]
pub struct SkillSettings {
    /// Folders named by the user, searched before all others. They must exist.
    pub given: Vec<PathBuf>,
    /// Whether the project's folders and the user's own are searched too.
    pub discover: bool,
    /// The folders from which those follow.
    pub places: Places,
    /// The list of trusted projects; without one no project is.
    pub trust_file: Option<PathBuf>,
    /// How folders are searched.
    pub scan: ScanOptions,
    /// Share of the context that the catalog may take, from 0 to 1.
    pub catalog_share: f64,
}

impl SkillSettings {
    /// The folders to search, in order of precedence, with what was left out.
    ///
    /// # Errors
    /// When the list of trusted projects cannot be read.
    pub fn roots(&self) -> Result<Roots, Error> {
        if self.discover {
            return Ok(Roots::discover(&self.given, &self.places, &self.trust()?));
        }
        let roots = self.given.iter().map(|path| Root::given(path)).collect();
        Ok(Roots { roots, findings: Vec::new() })
    }

    /// The trusted projects.
    ///
    /// # Errors
    /// When their list cannot be read.
    pub fn trust(&self) -> Result<Trust, Error> {
        let trust = self.trust_file.as_deref().map_or_else(|| Ok(Trust::none()), Trust::open);
        Ok(trust?)
    }
}

impl Default for SkillSettings {
    /// No folder at all.
    fn default() -> Self {
        SkillSettings {
            given: Vec::new(),
            discover: false,
            places: Places::default(),
            trust_file: None,
            scan: ScanOptions::default(),
            catalog_share: CATALOG_SHARE,
        }
    }
}

/// Gives the value of an environment variable that is set and not empty.
type Variables<'a> = &'a dyn Fn(&'static str) -> Option<OsString>;

impl Settings {
    /// Reads `SKILLGRAFT_CACHE_DIR` (or `XDG_CACHE_HOME`, or `HOME`),
    /// `SKILLGRAFT_SKILLS` (folders, separated as in `PATH`),
    /// `SKILLGRAFT_MODEL` and `SKILLGRAFT_THREADS`, and the file
    /// `skillgraft/config.toml` in `XDG_CONFIG_HOME` (or `HOME/.config`).
    ///
    /// # Errors
    /// [`Error::NoCacheDir`], [`Error::BadVariable`], [`Error::BadConfig`],
    /// [`Error::Model`].
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: Variables<'_>) -> Result<Self, Error> {
        let cache_dir = variable("SKILLGRAFT_CACHE_DIR")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("skillgraft")))
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/skillgraft")))
            .ok_or(Error::NoCacheDir)?;
        let (skills, cache) = configured(variable)?;
        let model = match variable("SKILLGRAFT_MODEL") {
            Some(model) => ModelChoice::parse(&model.to_string_lossy())?,
            None => ModelChoice::default(),
        };
        let n_threads = variable("SKILLGRAFT_THREADS").map(|value| parse_threads(&value));
        let backend =
            BackendOptions { n_threads: n_threads.transpose()?, ..BackendOptions::default() };
        let options = ModelOptions { backend, ..ModelOptions::default() };
        Ok(Settings {
            cache_dir,
            cache_limits: cache.limits(),
            cache_access: cache.access(),
            skills,
            model,
            options,
            stop: StopFlag::default(),
        })
    }

    /// The blocks in the cache folder.
    pub fn open_store(&self) -> DirStore {
        let store = DirStore::open(self.cache_dir.join("blocks"));
        store.with_access(self.cache_access).with_limits(self.cache_limits)
    }

    /// The same settings with these skill folders.
    #[must_use]
    pub fn with_skills<P: Into<PathBuf>>(self, folders: impl IntoIterator<Item = P>) -> Self {
        let given = folders.into_iter().map(Into::into).collect();
        Settings { skills: SkillSettings { given, ..self.skills }, ..self }
    }

    /// The same settings without the project's and the user's own skills: those
    /// of the folders that were named are all.
    #[must_use]
    pub fn without_discovery(self) -> Self {
        Settings { skills: SkillSettings { discover: false, ..self.skills }, ..self }
    }
}

/// What the variables and the configuration file say.
fn configured(variable: Variables<'_>) -> Result<(SkillSettings, CacheConfig), Error> {
    let home = variable("HOME").map(PathBuf::from);
    let in_home = |folder: &str| home.as_ref().map(|home| home.join(folder));
    let folder = |name| variable(name).map(PathBuf::from);
    let config = folder("XDG_CONFIG_HOME").or_else(|| in_home(".config"));
    let config = config.map(|folder| folder.join("skillgraft"));
    let state = folder("XDG_STATE_HOME").or_else(|| in_home(".local/state"));
    let Config { skills: said, cache } = match &config {
        Some(folder) => Config::read(folder, home.as_deref())?,
        None => Config::default(),
    };
    let given = variable("SKILLGRAFT_SKILLS");
    let skills = SkillSettings {
        given: given.map(|all| std::env::split_paths(&all).collect()).unwrap_or_default(),
        discover: said.discover,
        // Without a working folder there is no project.
        places: Places {
            working: std::env::current_dir().unwrap_or_default(),
            home,
            config,
            further: said.folders,
        },
        trust_file: state.map(|folder| folder.join("skillgraft/trusted-folders")),
        scan: ScanOptions {
            depth_max: said.depth,
            folders_max: said.max_folders,
            ..ScanOptions::default()
        },
        catalog_share: said.catalog_share,
    };
    Ok((skills, cache))
}

fn parse_threads(value: &OsString) -> Result<usize, Error> {
    let value = value.to_string_lossy();
    value.parse().ok().filter(|&n| n > 0).ok_or_else(|| Error::BadVariable {
        name: "SKILLGRAFT_THREADS",
        value: value.into_owned(),
        expected: "a number of threads, at least 1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::from_variables(&|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_most_specific_cache_folder_wins() {
        let all = [("SKILLGRAFT_CACHE_DIR", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(from(&all).unwrap().cache_dir, PathBuf::from("/a"));
        assert_eq!(from(&all[1..]).unwrap().cache_dir, PathBuf::from("/b/skillgraft"));
        assert_eq!(from(&all[2..]).unwrap().cache_dir, PathBuf::from("/c/.cache/skillgraft"));
        assert!(matches!(from(&[]), Err(Error::NoCacheDir)));
    }

    #[test]
    fn threads_are_a_positive_number() {
        let threads = |value| from(&[("HOME", "/c"), ("SKILLGRAFT_THREADS", value)]);
        assert_eq!(threads("3").unwrap().options.backend.n_threads, Some(3));
        for bad in ["0", "-1", "many"] {
            assert!(matches!(threads(bad), Err(Error::BadVariable { .. })), "{bad}");
        }
    }
}
