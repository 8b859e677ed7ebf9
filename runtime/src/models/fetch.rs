//! The cache folder of model files, and pulling into it.
//!
//! A pull looks into the folder, takes the model's lock, looks again (another
//! process may have been quicker), and asks the sources in order.
//!
//! **Invariant:** a path that is handed out leads to a file that had the
//! manifest's SHA-256 when it was last hashed and has not changed since
//! (`stamp.rs` says how that is decided). Reading needs no lock and no right
//! to write.
//!
//! It refuses to fetch a model that this version cannot run.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::draft::{Draft, check_cancelled, scratch_prefix};
use super::error::{ModelError, Refusal};
use super::lock::PullLock;
use super::manifest::{KnownModel, MODELS, Support};
use super::progress::Progress;
use super::resolve::unknown;
use super::source::{ModelSource, SourceError};
use super::stamp;

/// Name of the cache folder among the sources that refused.
const CACHE_LABEL: &str = "local cache";

/// Where a pulled model came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was there already, or another process pulled it meanwhile.
    Cache,
    /// This source delivered it now.
    Source(String),
}

/// A model file in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledModel {
    /// The model's id.
    pub id: String,
    /// The checked file.
    pub path: PathBuf,
    /// Size of the file.
    pub bytes: u64,
    /// Where it came from.
    pub origin: Origin,
}

/// What is under a model's name in the cache folder.
enum Presence {
    Absent,
    Good,
    Damaged { reason: String },
}

/// The model files under one cache folder.
#[derive(Debug, Clone)]
pub struct ModelStore {
    dir: PathBuf,
    models: &'static [KnownModel],
    cancel: Arc<AtomicBool>,
}

impl ModelStore {
    /// The known models under `cache_dir/models`. Touches no file: the folder
    /// is made by the first pull.
    pub fn open(cache_dir: impl AsRef<Path>) -> Self {
        Self::with_models(cache_dir, MODELS)
    }

    /// As [`ModelStore::open`], with another list of models.
    pub fn with_models(cache_dir: impl AsRef<Path>, models: &'static [KnownModel]) -> Self {
        let dir = cache_dir.as_ref().join("models");
        ModelStore { dir, models, cancel: Arc::default() }
    }

    /// Pulls of this store end soon after `flag` becomes true, with
    /// [`ModelError::Cancelled`]; what can be continued is kept.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = flag;
        self
    }

    /// The folder that holds the model files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The models that this store knows.
    pub fn models(&self) -> &'static [KnownModel] {
        self.models
    }

    /// The file of model `id`, if it is in place. A file that is there but
    /// damaged counts as absent and is logged; pulling replaces it.
    ///
    /// # Errors
    /// [`ModelError::UnknownModel`]; [`ModelError::Io`] when a file is there
    /// and cannot be read.
    pub fn locate(&self, id: &str) -> Result<Option<PathBuf>, ModelError> {
        let model = self.known(id)?;
        match self.inspect(model)? {
            Presence::Good => Ok(Some(self.path_of(model))),
            Presence::Absent => Ok(None),
            Presence::Damaged { reason } => {
                tracing::warn!(path = %self.path_of(model).display(), %reason, "damaged model file");
                Ok(None)
            }
        }
    }

    /// Hashes the file of model `id`, whatever its stamp says.
    ///
    /// # Errors
    /// [`ModelError::UnknownModel`], [`ModelError::NotPulled`],
    /// [`ModelError::Damaged`], [`ModelError::Io`].
    pub fn verify(&self, id: &str) -> Result<PathBuf, ModelError> {
        let model = self.known(id)?;
        let path = self.path_of(model);
        let id = model.id.to_owned();
        let Some(metadata) = metadata_of(&path)? else {
            return Err(ModelError::NotPulled { id, path });
        };
        match self.hash(model, &path, &metadata)? {
            Presence::Damaged { reason } => Err(ModelError::Damaged { id, path, reason }),
            Presence::Good | Presence::Absent => Ok(path),
        }
    }

    /// Brings model `id` into the cache folder, if it is not there. Only one
    /// process pulls a model at a time; the others wait and then find it.
    ///
    /// # Errors
    /// [`ModelError::UnknownModel`], [`ModelError::Unsupported`];
    /// [`ModelError::NoSource`] when every source refused;
    /// [`ModelError::Io`] when the folder cannot be used (read-only, full);
    /// [`ModelError::Cancelled`].
    pub fn pull(
        &self,
        id: &str,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PulledModel, ModelError> {
        let model = self.known(id)?;
        if let Presence::Good = self.inspect(model)? {
            return Ok(self.done(model, Origin::Cache, progress));
        }
        if let Support::NotYet { reason } = model.support {
            return Err(ModelError::Unsupported {
                id: model.id.to_owned(),
                family: model.family.to_owned(),
                reason: reason.to_owned(),
            });
        }
        fs::create_dir_all(&self.dir).map_err(ModelError::io("create folder", &self.dir))?;
        let lock = self.dir.join(format!(".{}.lock", model.file_name));
        let _lock = PullLock::acquire(
            &lock,
            || progress(Progress::WaitingForLock { path: lock.clone() }),
            || check_cancelled(model, &self.cancel),
        )?;
        let mut refusals = Vec::new();
        match self.inspect(model)? {
            Presence::Good => return Ok(self.done(model, Origin::Cache, progress)),
            Presence::Absent => {}
            Presence::Damaged { reason } => {
                refuse(CACHE_LABEL.to_owned(), reason, &mut refusals, progress);
            }
        }
        self.sweep(model);
        let origin = self.ask_sources(model, refusals, progress)?;
        Ok(self.done(model, origin, progress))
    }

    /// Asks the sources in order until one has delivered a good file.
    fn ask_sources(
        &self,
        model: &'static KnownModel,
        mut refusals: Vec<Refusal>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Origin, ModelError> {
        for source in model.sources {
            check_cancelled(model, &self.cancel)?;
            let label = source.label();
            progress(Progress::SourceStarted { source: label.clone() });
            match self.ask(model, *source, progress) {
                Ok(()) => return Ok(Origin::Source(label)),
                Err(SourceError::Fatal(error)) => return Err(error),
                Err(SourceError::Refused { reason }) => {
                    refuse(label, reason, &mut refusals, progress);
                }
            }
        }
        Err(ModelError::NoSource { id: model.id.to_owned(), refusals })
    }

    fn ask(
        &self,
        model: &'static KnownModel,
        source: &dyn ModelSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SourceError> {
        let target = self.path_of(model);
        let mut draft = Draft::new(model, &self.dir, progress, &self.cancel);
        let mut retried = false;
        loop {
            if let Err(error) = source.fetch(&mut draft) {
                draft.abandon();
                return Err(error);
            }
            let resumed = draft.was_resumed();
            match draft.finish(&target) {
                Ok(()) => break,
                // The bytes of an earlier try were bad: they are gone now, and
                // the second time round nothing is resumed.
                Err(SourceError::Refused { reason }) if resumed && !retried => {
                    retried = true;
                    tracing::debug!(%reason, "fetching again from the beginning");
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(metadata) = metadata_of(&target)? {
            stamp::write(&self.stamp_of(model), &metadata, model.sha256);
        }
        Ok(())
    }

    /// Looks at the file in place, hashing it only when its stamp does not
    /// vouch for it.
    fn inspect(&self, model: &KnownModel) -> Result<Presence, ModelError> {
        let path = self.path_of(model);
        let Some(metadata) = metadata_of(&path)? else { return Ok(Presence::Absent) };
        if metadata.len() == model.bytes
            && stamp::vouches(&self.stamp_of(model), &metadata, model.sha256)
        {
            return Ok(Presence::Good);
        }
        self.hash(model, &path, &metadata)
    }

    fn hash(
        &self,
        model: &KnownModel,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<Presence, ModelError> {
        let (found, expected) = (metadata.len(), model.bytes);
        if found != expected {
            let reason = format!("has {found} bytes instead of {expected}");
            return Ok(Presence::Damaged { reason });
        }
        let found = stamp::sha256_of_file(path).map_err(ModelError::io("read", path))?;
        if found != model.sha256 {
            let reason = format!("has SHA-256 {found} instead of {}", model.sha256);
            return Ok(Presence::Damaged { reason });
        }
        stamp::write(&self.stamp_of(model), metadata, model.sha256);
        Ok(Presence::Good)
    }

    /// Removes temporary folders of pulls that were killed. The caller holds
    /// the lock, so none is in use.
    fn sweep(&self, model: &KnownModel) {
        let prefix = scratch_prefix(model);
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix)
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::debug!(path = %entry.path().display(), %error, "leftover not removed");
            }
        }
    }

    fn done(
        &self,
        model: &KnownModel,
        origin: Origin,
        progress: &mut dyn FnMut(Progress),
    ) -> PulledModel {
        let path = self.path_of(model);
        progress(Progress::Done { path: path.clone() });
        PulledModel { id: model.id.to_owned(), path, bytes: model.bytes, origin }
    }

    fn known(&self, id: &str) -> Result<&'static KnownModel, ModelError> {
        let models = self.models;
        models.iter().find(|model| model.id == id).ok_or_else(|| unknown(id, models))
    }

    fn path_of(&self, model: &KnownModel) -> PathBuf {
        self.dir.join(model.file_name)
    }

    fn stamp_of(&self, model: &KnownModel) -> PathBuf {
        self.dir.join(format!(".{}.stamp", model.file_name))
    }
}

/// Tells and records that a source refused.
fn refuse(
    source: String,
    reason: String,
    refusals: &mut Vec<Refusal>,
    progress: &mut dyn FnMut(Progress),
) {
    progress(Progress::SourceRefused { source: source.clone(), reason: reason.clone() });
    refusals.push(Refusal { source, reason });
}

/// Metadata of what is at `path`, `None` when nothing is.
fn metadata_of(path: &Path) -> Result<Option<Metadata>, ModelError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ModelError::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests;
