//! Notices changed skills while a program runs.
//!
//! **Invariant:** every change that lasts is reported once, as the difference of
//! two snapshots; how often a file was touched on the way does not matter. After
//! the folders are watched they are scanned once more, so that nothing slips
//! between.
//!
//! **Refuses:** to stop silently where the system's watches run out: it says so
//! and looks at regular intervals instead.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use crate::{Catalog, CatalogChange, Origin, Scanner};

mod debounce;

use debounce::Debouncer;

/// How changes are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchOptions {
    /// How long it must be quiet before the folders are scanned: an editor saves
    /// in several steps.
    pub quiet: Duration,
    /// How long a scan is put off when it is never quiet.
    pub wait_max: Duration,
    /// How often the folders are scanned where they cannot be watched.
    pub poll: Duration,
    /// Whether to scan at intervals though the folders could be watched, as on a
    /// network file system that tells of no changes.
    pub always_poll: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        WatchOptions {
            quiet: Duration::from_millis(150),
            wait_max: Duration::from_secs(2),
            poll: Duration::from_secs(2),
            always_poll: false,
        }
    }
}

/// What a watcher tells.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WatchEvent {
    /// Skills or findings have changed.
    Reload {
        /// The new snapshot.
        catalog: Catalog,
        /// What differs from the snapshot before; empty when findings differ only.
        changes: Vec<CatalogChange>,
    },
    /// Something works less well than it should, in words.
    Notice(String),
}

/// Watches the folders of a scanner on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct SkillWatcher {
    signals: Sender<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl SkillWatcher {
    /// Starts to watch. `known` is the snapshot that the receiver has; `tell` is
    /// called on the watcher's thread.
    pub fn start(
        scanner: Scanner,
        known: Catalog,
        options: WatchOptions,
        tell: impl FnMut(WatchEvent) + Send + 'static,
    ) -> Self {
        let (signals, received) = channel();
        let watches = Watches::new(signals.clone());
        let debouncer = Debouncer::new(options.quiet, options.wait_max);
        let (tell, last_error) = (Box::new(tell), None);
        let work = Work { scanner, known, options, watches, debouncer, last_error, tell };
        let thread = std::thread::spawn(move || work.run(&received));
        SkillWatcher { signals, thread: Some(thread) }
    }
}

impl Drop for SkillWatcher {
    fn drop(&mut self) {
        // A thread that has ended by itself receives nothing.
        let _ = self.signals.send(Signal::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What reaches the watcher's thread.
#[derive(Debug)]
enum Signal {
    /// Something has changed.
    Changed,
    /// These have gone from their place, and their watches with them.
    Moved(Vec<PathBuf>),
    Stop,
}

struct Work {
    scanner: Scanner,
    known: Catalog,
    options: WatchOptions,
    watches: Watches,
    debouncer: Debouncer,
    /// What the last scan failed for.
    last_error: Option<String>,
    tell: Box<dyn FnMut(WatchEvent) + Send>,
}

impl Work {
    fn run(mut self, signals: &Receiver<Signal>) {
        if self.options.always_poll {
            self.watches.give_up();
        }
        self.watch();
        self.debouncer.event(Instant::now());
        loop {
            let now = Instant::now();
            if self.debouncer.take(now) {
                self.look();
                continue;
            }
            let wait = match self.debouncer.due() {
                Some(due) => due.saturating_duration_since(now),
                None if self.watches.is_polling() => self.options.poll,
                None => Duration::MAX,
            };
            match receive(signals, wait) {
                Ok(Signal::Changed) => self.debouncer.event(Instant::now()),
                Ok(Signal::Moved(paths)) => {
                    self.watches.forget(&paths);
                    self.debouncer.event(Instant::now());
                }
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if self.debouncer.due().is_none() => self.look(),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Scans, tells of changes, and watches what is new.
    fn look(&mut self) {
        let outcome = self.scanner.scan();
        if outcome.is_ok() {
            self.last_error = None;
        }
        match outcome {
            Ok(catalog) if catalog.is_same(&self.known) => {}
            Ok(catalog) => {
                let changes = catalog.changes_since(&self.known);
                let is_news =
                    !changes.is_empty() || catalog.diagnostics() != self.known.diagnostics();
                self.known = catalog.clone();
                if is_news {
                    (self.tell)(WatchEvent::Reload { catalog, changes });
                }
            }
            Err(error) => {
                let error = error.to_string();
                // A root that is gone stays gone for many scans: it is told once.
                if self.last_error.as_ref() != Some(&error) {
                    (self.tell)(WatchEvent::Notice(error.clone()));
                }
                self.last_error = Some(error);
            }
        }
        if self.watch() {
            // A folder may have changed before it was watched.
            self.debouncer.event(Instant::now());
        }
    }

    /// Watches the folders of the last scan; whether any was not watched before.
    fn watch(&mut self) -> bool {
        let mut wanted: HashSet<PathBuf> = self.scanner.folders().map(Path::to_owned).collect();
        for root in self.scanner.roots() {
            // A root that is not there yet shows in the folder that will hold it. A
            // project's may be anywhere above the working folder: those are many.
            let near = if root.origin == Origin::Project { 2 } else { usize::MAX };
            let above = root.path.ancestors().skip(1).take(near);
            if !root.path.exists()
                && let Some(holder) = above.into_iter().find(|folder| folder.is_dir())
            {
                wanted.insert(holder.to_owned());
            }
        }
        match self.watches.update(&wanted) {
            Ok(n_new) => n_new > 0,
            Err(reason) => {
                self.watches.give_up();
                let seconds = self.options.poll.as_secs_f32();
                (self.tell)(WatchEvent::Notice(format!(
                    "the skill folders cannot be watched ({reason}): they are looked at every \
                     {seconds} s instead"
                )));
                false
            }
        }
    }
}

/// Waits for a signal, without end for the longest duration.
fn receive(signals: &Receiver<Signal>, wait: Duration) -> Result<Signal, RecvTimeoutError> {
    if wait == Duration::MAX {
        return signals.recv().map_err(|_| RecvTimeoutError::Disconnected);
    }
    signals.recv_timeout(wait)
}

/// The system's watches, one for each folder: a recursive one would also watch
/// the folders that no scan enters, of which there may be many more.
struct Watches {
    watcher: Option<RecommendedWatcher>,
    /// Why there is no watcher, until it has been told.
    failure: Option<String>,
    watched: HashSet<PathBuf>,
}

impl Watches {
    fn new(signals: Sender<Signal>) -> Self {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // The receiver is gone only when everything ends.
            if let Some(signal) = signal_of(event) {
                let _ = signals.send(signal);
            }
        });
        let (watcher, failure) = match watcher {
            Ok(watcher) => (Some(watcher), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Watches { watcher, failure, watched: HashSet::new() }
    }

    fn is_polling(&self) -> bool {
        self.watcher.is_none()
    }

    fn give_up(&mut self) {
        self.watcher = None;
        self.failure = None;
        self.watched.clear();
    }

    /// Watches exactly the folders wanted; the number of new ones.
    fn update(&mut self, wanted: &HashSet<PathBuf>) -> Result<usize, String> {
        let Some(watcher) = &mut self.watcher else {
            return self.failure.take().map_or(Ok(0), Err);
        };
        let stale: Vec<PathBuf> = self.watched.difference(wanted).cloned().collect();
        for folder in stale {
            // The watch of a folder that is gone has gone with it.
            let _ = watcher.unwatch(&folder);
            self.watched.remove(&folder);
        }
        let mut n_new = 0;
        for folder in wanted {
            if self.watched.contains(folder) {
                continue;
            }
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder.clone());
                    n_new += 1;
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(n_new)
    }

    /// Folders have gone from their place; what comes there is watched anew.
    fn forget(&mut self, gone: &[PathBuf]) {
        let below = |folder: &PathBuf| gone.iter().any(|gone| folder.starts_with(gone));
        let stale: Vec<PathBuf> =
            self.watched.iter().filter(|folder| below(folder)).cloned().collect();
        for folder in stale {
            if let Some(watcher) = &mut self.watcher {
                let _ = watcher.unwatch(&folder);
            }
            self.watched.remove(&folder);
        }
    }
}

fn is_missing(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// What an event of the system means; `None` for one that changes nothing.
fn signal_of(event: notify::Result<notify::Event>) -> Option<Signal> {
    // An event that was lost may have been a change.
    let Ok(event) = event else { return Some(Signal::Changed) };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Signal::Changed),
        // Scanning itself opens folders and files.
        EventKind::Access(_) if !event.need_rescan() => None,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
            Some(Signal::Moved(event.paths))
        }
        _ => Some(Signal::Changed),
    }
}

#[cfg(test)]
mod tests;
