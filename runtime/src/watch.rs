//! Skills that change while conversations are open.
//!
//! **Invariant:** the order is: the new snapshot is in place, then changed blocks
//! are compiled, then the receiver is told of each. What a conversation has in
//! its context is not touched; it hears of changes at its next turn.
//!
//! **Refuses:** to compile what nobody has used.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use skillgraft_skills::{
    Catalog, CatalogChange, Scanner, SkillIdx, SkillWatcher, WatchEvent, WatchOptions,
};

use crate::conversation::StopFlag;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::warm::Warmed;

/// What happens to skills while they are watched.
#[derive(Debug)]
#[non_exhaustive]
pub enum SkillEvent {
    /// Skills have changed; the next turn of each conversation knows of it.
    Changed(Vec<CatalogChange>),
    /// The block of a changed skill has been compiled.
    Warmed(Warmed),
    /// The block of a changed skill could not be compiled; it will be tried again
    /// when it is needed.
    NotWarmed(Error),
    /// Something works less well than it should, in words.
    Notice(String),
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct SkillWatch {
    watcher: Option<SkillWatcher>,
    compiler: Option<JoinHandle<()>>,
    runtime: Arc<Runtime>,
    stop: StopFlag,
}

/// Called from the threads that watch and compile.
type Tell = Arc<Mutex<Box<dyn FnMut(SkillEvent) + Send>>>;

/// A skill whose block is to be compiled, of a snapshot.
type Job = (Catalog, SkillIdx);

impl Runtime {
    /// Watches the skill folders on a thread of its own, and compiles the blocks
    /// of changed skills on another while no turn runs.
    ///
    /// # Errors
    /// [`Error::Skills`] when this runtime's skills come from no folder.
    pub fn watch(
        self: &Arc<Self>,
        options: WatchOptions,
        tell: impl FnMut(SkillEvent) + Send + 'static,
    ) -> Result<SkillWatch, Error> {
        let (roots, scan) = self.folders();
        if roots.is_empty() {
            return Err(skillgraft_skills::Error::NoRoots.into());
        }
        let tell: Tell = Arc::new(Mutex::new(Box::new(tell)));
        let stop = StopFlag::default();
        let (jobs, queue) = channel();
        let compiler = {
            let (runtime, tell, stop) = (Arc::clone(self), Arc::clone(&tell), stop.clone());
            std::thread::spawn(move || compile_all(&runtime, &queue, &tell, &stop))
        };
        let scanner = Scanner::new(roots.to_vec(), scan.clone());
        let runtime = Arc::clone(self);
        let watcher = SkillWatcher::start(scanner, self.catalog(), options, move |event| {
            runtime.on_watch(event, &jobs, &tell);
        });
        let runtime = Arc::clone(self);
        Ok(SkillWatch { watcher: Some(watcher), compiler: Some(compiler), runtime, stop })
    }

    fn on_watch(&self, event: WatchEvent, jobs: &Sender<Job>, tell: &Tell) {
        match event {
            WatchEvent::Reload { catalog, changes } => {
                let before = self.replace_catalog(catalog.clone());
                for skill in self.to_warm(&changes, &before, &catalog) {
                    // The receiver ends only after this thread.
                    let _ = jobs.send((catalog.clone(), skill));
                }
                if !changes.is_empty() {
                    say(tell, SkillEvent::Changed(changes));
                }
            }
            WatchEvent::Notice(notice) => say(tell, SkillEvent::Notice(notice)),
            _ => {}
        }
    }
}

impl Drop for SkillWatch {
    fn drop(&mut self) {
        // The watcher first: it holds the queue open.
        drop(self.watcher.take());
        self.stop.stop();
        self.runtime.activity().wake();
        if let Some(compiler) = self.compiler.take() {
            let _ = compiler.join();
        }
    }
}

fn compile_all(runtime: &Runtime, queue: &Receiver<Job>, tell: &Tell, stop: &StopFlag) {
    for (catalog, skill) in queue {
        if stop.is_set() {
            return;
        }
        match runtime.warm(&catalog, skill, stop) {
            Ok(warmed) => say(tell, SkillEvent::Warmed(warmed)),
            Err(Error::Interrupted) => return,
            Err(error) => say(tell, SkillEvent::NotWarmed(error)),
        }
    }
}

fn say(tell: &Tell, event: SkillEvent) {
    // A receiver that panicked is told all the same.
    tell.lock().unwrap_or_else(PoisonError::into_inner)(event);
}
