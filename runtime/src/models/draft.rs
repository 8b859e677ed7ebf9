//! A model file in the making.
//!
//! **Invariant:** bytes are hashed as they are written, and [`Draft::finish`]
//! is the only way from the temporary name to the final one: it compares size
//! and SHA-256 with the manifest, syncs, and renames. A draft never grows
//! beyond the size of the model, whatever a source sends.
//!
//! A draft that its source can continue (it gave a validator) survives a
//! failed pull beside a small note; any other is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::error::ModelError;
use super::manifest::KnownModel;
use super::progress::Progress;
use super::source::SourceError;
use super::stamp::{CHUNK_BYTES, hash_into, hex};

/// Where unfinished bytes came from, kept beside them.
#[derive(Debug, Deserialize)]
struct Note {
    origin: String,
    validator: String,
}

/// Whether copying tells how many bytes have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Tell [`Progress::Bytes`] after each chunk.
    Bytes,
    /// Tell nothing: the bytes were counted on their way to this machine.
    Quiet,
}

/// How copying from a reader ended.
#[derive(Debug)]
pub enum Copied {
    /// The reader has no more bytes.
    ToEnd,
    /// The reader failed; what came before is kept.
    Broken(std::io::Error),
}

/// The file that a source delivers into. Made by the store for each pull.
pub struct Draft<'a> {
    model: &'a KnownModel,
    dir: PathBuf,
    part: PathBuf,
    note: PathBuf,
    file: Option<File>,
    hasher: Sha256,
    received: u64,
    resumed: bool,
    resumable: bool,
    verifying: bool,
    progress: &'a mut dyn FnMut(Progress),
    cancel: &'a AtomicBool,
}

impl std::fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft")
            .field("model", &self.model.id)
            .field("part", &self.part)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

impl<'a> Draft<'a> {
    /// A draft of `model` in `dir`. Touches no file yet.
    pub(super) fn new(
        model: &'a KnownModel,
        dir: &Path,
        progress: &'a mut dyn FnMut(Progress),
        cancel: &'a AtomicBool,
    ) -> Self {
        Draft {
            model,
            dir: dir.to_owned(),
            part: dir.join(format!(".{}.part", model.file_name)),
            note: dir.join(format!(".{}.part.json", model.file_name)),
            file: None,
            hasher: Sha256::new(),
            received: 0,
            resumed: false,
            resumable: false,
            verifying: false,
            progress,
            cancel,
        }
    }

    /// Size that the finished file must have, in bytes.
    pub fn expected_bytes(&self) -> u64 {
        self.model.bytes
    }

    /// Bytes delivered so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Tells the user something.
    pub fn tell(&mut self, event: Progress) {
        (self.progress)(event);
    }

    /// Tells once that the bytes are being unpacked or checked.
    pub fn tell_verifying(&mut self) {
        if !self.verifying {
            self.verifying = true;
            self.tell(Progress::Verifying);
        }
    }

    /// Returns an error once the caller of the pull asked to stop.
    ///
    /// # Errors
    /// [`ModelError::Cancelled`].
    pub fn check_cancelled(&self) -> Result<(), SourceError> {
        check_cancelled(self.model, self.cancel).map_err(SourceError::Fatal)
    }

    /// A fresh folder for a source's own temporary files, on the file system
    /// of the draft. It is removed when the returned value is dropped.
    ///
    /// # Errors
    /// [`ModelError::Io`] as fatal.
    pub fn scratch_dir(&self) -> Result<tempfile::TempDir, SourceError> {
        let dir = &self.dir;
        tempfile::Builder::new()
            .prefix(&scratch_prefix(self.model))
            .tempdir_in(dir)
            .map_err(|source| ModelError::io("create a temporary folder in", dir)(source).into())
    }

    /// Starts an empty file. With a `validator` (a strong entity tag) the bytes can
    /// be continued later by the source that names the same `origin`.
    ///
    /// # Errors
    /// [`ModelError::Io`] as fatal.
    pub fn begin(&mut self, origin: &str, validator: Option<&str>) -> Result<(), SourceError> {
        self.reset();
        // Without its note a part is never continued, so the note goes first.
        remove_if_there(&self.note);
        let file = File::create(&self.part).map_err(ModelError::io("create", &self.part))?;
        if let Some(validator) = validator {
            let note = json!({ "origin": origin, "validator": validator });
            fs::write(&self.note, note.to_string()).map_err(ModelError::io("write", &self.note))?;
            self.resumable = true;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Takes up the bytes that an earlier try left from the same `origin`, and
    /// returns their validator. `None`, with nothing taken up, when there are
    /// none: then call [`Draft::begin`].
    ///
    /// # Errors
    /// [`ModelError::Io`] as fatal, when the bytes cannot be read.
    pub fn resume(&mut self, origin: &str) -> Result<Option<String>, SourceError> {
        self.reset();
        let Ok(text) = fs::read(&self.note) else { return Ok(None) };
        let Ok(note) = serde_json::from_slice::<Note>(&text) else { return Ok(None) };
        let left = fs::metadata(&self.part).map_or(0, |metadata| metadata.len());
        if note.origin != origin || left == 0 || left >= self.model.bytes {
            return Ok(None);
        }
        // After reading all of it, writing goes on at the end.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.part)
            .map_err(ModelError::io("open", &self.part))?;
        self.received =
            hash_into(&mut self.hasher, &mut file).map_err(ModelError::io("read", &self.part))?;
        self.file = Some(file);
        self.resumed = true;
        self.resumable = true;
        Ok(Some(note.validator))
    }

    /// Appends everything that `reader` gives.
    ///
    /// # Errors
    /// [`SourceError::Refused`] when more bytes come than the model has;
    /// [`ModelError::Io`] and [`ModelError::Cancelled`] as fatal.
    ///
    /// # Panics
    /// When neither [`Draft::begin`] nor [`Draft::resume`] opened the file.
    pub fn copy_from(
        &mut self,
        reader: &mut dyn Read,
        report: Report,
    ) -> Result<Copied, SourceError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            self.check_cancelled()?;
            let n = match reader.read(&mut chunk) {
                Ok(0) => return Ok(Copied::ToEnd),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Copied::Broken(error)),
            };
            self.append(&chunk[..n])?;
            if report == Report::Bytes {
                let (done, total) = (self.received, Some(self.model.bytes));
                self.tell(Progress::Bytes { done, total });
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        let after = self.received + bytes.len() as u64;
        if after > self.model.bytes {
            self.discard();
            return Err(SourceError::refused(format!(
                "sent more than the expected {} bytes",
                self.model.bytes
            )));
        }
        let file = self.file.as_mut().expect("a source begins or resumes before it writes");
        file.write_all(bytes).map_err(ModelError::io("write", &self.part))?;
        self.hasher.update(bytes);
        self.received = after;
        Ok(())
    }

    /// Whether some bytes came from an earlier try.
    pub(super) fn was_resumed(&self) -> bool {
        self.resumed
    }

    /// Checks the bytes and moves the file to `target`.
    ///
    /// # Errors
    /// [`SourceError::Refused`] when size or checksum differ: the bytes are
    /// dropped, except those of a file that is merely short and can be
    /// continued. [`ModelError::Io`] as fatal.
    pub(super) fn finish(&mut self, target: &Path) -> Result<(), SourceError> {
        self.tell_verifying();
        let (received, expected) = (self.received, self.model.bytes);
        if received != expected {
            self.abandon();
            return Err(SourceError::refused(format!(
                "delivered {received} bytes instead of {expected}"
            )));
        }
        let found = hex(&self.hasher.finalize_reset());
        if found != self.model.sha256 {
            self.discard();
            return Err(SourceError::refused(format!(
                "delivered a file with SHA-256 {found} instead of {}",
                self.model.sha256
            )));
        }
        let file = self.file.take().expect("bytes were received into it");
        file.sync_all().map_err(ModelError::io("sync", &self.part))?;
        // Some systems refuse to rename an open file.
        drop(file);
        fs::rename(&self.part, target).map_err(ModelError::io("create", target))?;
        remove_if_there(&self.note);
        sync_dir(&self.dir)?;
        self.reset();
        Ok(())
    }

    /// After a failed try: keeps what can be continued, removes the rest.
    pub(super) fn abandon(&mut self) {
        if !self.resumable {
            self.discard();
        }
        self.reset();
    }

    /// Removes all bytes received so far.
    pub fn discard(&mut self) {
        self.reset();
        remove_if_there(&self.note);
        remove_if_there(&self.part);
    }

    fn reset(&mut self) {
        self.file = None;
        self.hasher.reset();
        self.received = 0;
        self.resumed = false;
        self.resumable = false;
    }
}

/// Name prefix of the temporary folders of a model's sources.
pub(super) fn scratch_prefix(model: &KnownModel) -> String {
    format!(".{}.scratch-", model.file_name)
}

/// See [`Draft::check_cancelled`].
pub(super) fn check_cancelled(model: &KnownModel, cancel: &AtomicBool) -> Result<(), ModelError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(ModelError::Cancelled { id: model.id.to_owned() });
    }
    Ok(())
}

/// Leftovers are harmless (they are overwritten or ignored), so failing to
/// remove them is only logged.
fn remove_if_there(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::debug!(path = %path.display(), %error, "leftover not removed");
        }
        _ => {}
    }
}

/// Makes a rename in `dir` survive a power cut. Only Unix can open a folder for
/// that.
fn sync_dir(dir: &Path) -> Result<(), ModelError> {
    if cfg!(unix) {
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(ModelError::io("sync folder", dir))?;
    }
    Ok(())
}
