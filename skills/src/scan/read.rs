//! Reads skill files, those that changed only.
//!
//! **Invariant:** after a call every file of the list has a memo that is as new
//! as its content.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use super::stamp::Stamp;
use crate::parse::{Parsed, parse, too_large};
use crate::{Code, Diagnostic, FILE_BYTES_MAX, Severity, Skill};

/// Files that one thread reads before another is worth starting.
const FILES_PER_THREAD: usize = 64;
/// Threads of one scan: a few fill the disk and memory channels.
const THREADS_MAX: usize = 8;

/// What is known of one file.
#[derive(Debug)]
pub(super) struct FileMemo {
    /// `None` while a second change could leave it equal.
    stamp: Option<Stamp>,
    digest: Option<[u8; 32]>,
    /// The skill, when it is usable.
    pub(super) skill: Option<Arc<Skill>>,
    pub(super) findings: Vec<Diagnostic>,
}

/// What reading came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) n_read: usize,
    /// Whether any content differs from the memos before.
    pub(super) has_changed: bool,
}

/// Brings the memos up to date with the files of a list, and forgets others.
pub(super) fn read_all(
    found: &[(usize, PathBuf)],
    memos: &mut HashMap<PathBuf, FileMemo>,
) -> Outcome {
    let now = SystemTime::now();
    let mut kept = HashMap::with_capacity(found.len());
    let mut stale: Vec<&Path> = Vec::new();
    for (_, file) in found {
        match memos.remove(file) {
            Some(memo) if memo.is_current(file, now) => {
                kept.insert(file.clone(), memo);
            }
            Some(memo) => {
                stale.push(file);
                kept.insert(file.clone(), memo);
            }
            None => stale.push(file),
        }
    }
    let mut has_changed = !memos.is_empty();
    *memos = kept;
    for (file, fresh) in stale.iter().zip(read_files(&stale, now)) {
        match memos.get_mut(*file) {
            // Content that is the same keeps the skill that others share.
            Some(memo) if memo.digest.is_some() && memo.digest == fresh.digest => {
                memo.stamp = fresh.stamp;
            }
            _ => {
                has_changed = true;
                memos.insert((*file).to_owned(), fresh);
            }
        }
    }
    Outcome { n_read: stale.len(), has_changed }
}

/// Reads files on as many threads as are worth it, in order.
fn read_files(files: &[&Path], now: SystemTime) -> Vec<FileMemo> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let n_threads = (files.len() / FILES_PER_THREAD).clamp(1, cores.min(THREADS_MAX));
    if n_threads == 1 {
        return files.iter().map(|file| FileMemo::read(file, now)).collect();
    }
    let share = files.len().div_ceil(n_threads);
    thread::scope(|scope| {
        let read = |part: &[&Path]| -> Vec<FileMemo> {
            part.iter().map(|file| FileMemo::read(file, now)).collect()
        };
        let workers: Vec<_> =
            files.chunks(share).map(|part| scope.spawn(move || read(part))).collect();
        let joined = workers.into_iter().flat_map(|worker| match worker.join() {
            Ok(memos) => memos,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    })
}

impl FileMemo {
    fn is_current(&self, file: &Path, now: SystemTime) -> bool {
        let Some(stamp) = self.stamp else { return false };
        std::fs::metadata(file).is_ok_and(|metadata| Stamp::of(&metadata, now).0 == stamp)
    }

    fn read(file: &Path, now: SystemTime) -> Self {
        let mut memo = FileMemo { stamp: None, digest: None, skill: None, findings: Vec::new() };
        let (bytes, stamp) = match read_file(file, now) {
            Ok(read) => read,
            Err(finding) => {
                memo.findings.push(*finding);
                return memo;
            }
        };
        memo.stamp = stamp;
        match parse(&bytes, file) {
            Ok(Parsed { skill, warnings }) => {
                memo.digest = Some(skill.digest);
                memo.findings = warnings;
                memo.skill = Some(Arc::new(skill));
            }
            Err(finding) => {
                memo.digest = Some(*blake3::hash(&bytes).as_bytes());
                memo.findings.push(finding);
            }
        }
        memo
    }
}

/// The bytes of a file, and its stamp when it is settled.
fn read_file(file: &Path, now: SystemTime) -> Result<(Vec<u8>, Option<Stamp>), Box<Diagnostic>> {
    let failed = |error: io::Error| {
        let (what, hint) = match error.kind() {
            io::ErrorKind::NotFound => ("the link leads nowhere", "remove it or mend it"),
            _ => ("the file cannot be read", "check that it is a readable file"),
        };
        Box::new(Diagnostic {
            code: Code::Io,
            severity: Severity::Error,
            path: file.to_owned(),
            line: None,
            column: None,
            message: format!("{what}: {error}"),
            hint: hint.to_owned(),
        })
    };
    // A pipe or a device would block for ever: only files are opened.
    let metadata = std::fs::metadata(file).map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("it is no regular file")));
    }
    let handle = File::open(file).map_err(failed)?;
    let metadata = handle.metadata().map_err(failed)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(Box::new(too_large(file, metadata.len())));
    }
    let (stamp, settled) = Stamp::of(&metadata, now);
    // A file may grow between the check and the read.
    let mut content = Vec::with_capacity(metadata.len() as usize + 1);
    handle.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    Ok((content, settled.then_some(stamp)))
}
