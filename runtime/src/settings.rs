//! What a user may set, and the environment variables it is read from.

use std::path::PathBuf;

use skillgraft_engine::{BackendOptions, ModelOptions};

use crate::conversation::StopFlag;
use crate::error::Error;
use crate::models::ModelChoice;

/// Everything a [`Runtime`](crate::Runtime) is opened with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where models and blocks are kept.
    pub cache_dir: PathBuf,
    /// Folders to look for skills in.
    pub skills: Vec<PathBuf>,
    /// Which model to run.
    pub model: ModelChoice,
    /// How to run it.
    pub options: ModelOptions,
    /// Ends a download from another thread.
    pub stop: StopFlag,
}

impl Settings {
    /// Reads `SKILLGRAFT_CACHE_DIR` (or `XDG_CACHE_HOME`, or `HOME`),
    /// `SKILLGRAFT_SKILLS` (folders, separated as in `PATH`),
    /// `SKILLGRAFT_MODEL` and `SKILLGRAFT_THREADS`.
    ///
    /// # Errors
    /// [`Error::NoCacheDir`], [`Error::BadVariable`], [`Error::Model`].
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables(
        variable: &dyn Fn(&'static str) -> Option<std::ffi::OsString>,
    ) -> Result<Self, Error> {
        let cache_dir = variable("SKILLGRAFT_CACHE_DIR")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("skillgraft")))
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/skillgraft")))
            .ok_or(Error::NoCacheDir)?;
        let skills = variable("SKILLGRAFT_SKILLS")
            .map(|folders| std::env::split_paths(&folders).collect())
            .unwrap_or_default();
        let model = match variable("SKILLGRAFT_MODEL") {
            Some(model) => ModelChoice::parse(&model.to_string_lossy())?,
            None => ModelChoice::default(),
        };
        let n_threads = variable("SKILLGRAFT_THREADS").map(|value| parse_threads(&value));
        let backend = BackendOptions { n_threads: n_threads.transpose()? };
        let options = ModelOptions { backend, ..ModelOptions::default() };
        Ok(Settings { cache_dir, skills, model, options, stop: StopFlag::default() })
    }

    /// The same settings with these skill folders.
    #[must_use]
    pub fn with_skills<P: Into<PathBuf>>(self, folders: impl IntoIterator<Item = P>) -> Self {
        Settings { skills: folders.into_iter().map(Into::into).collect(), ..self }
    }
}

fn parse_threads(value: &std::ffi::OsStr) -> Result<usize, Error> {
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
