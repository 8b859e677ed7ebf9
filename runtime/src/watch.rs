//! Skills that change while conversations are open.
//!
//! **Invariant:** the order is: the new snapshot is in place, then the receiver is
//! told, then changed blocks are compiled. What a conversation has in
//! its context is not touched; it hears of changes at its next turn.
//!
//! **Refuses:** to compile what nobody has used.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use skillgraft_skills::{CatalogChange, Scanner, SkillWatcher, WatchEvent, WatchOptions};

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
    /// A block has been compiled ahead of need: of a changed skill, or of one in
    /// use behind another anchor.
    Warmed(Warmed),
    /// A block could not be compiled; it will be tried again when it is needed.
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

impl Runtime {
    /// Watches the skill folders on a thread of its own, and compiles blocks ahead
    /// of need on another while no turn runs: those of changed skills, and those
    /// that turns have found worth it (see [`work_off`](Self::work_off)).
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
        let compiler = {
            let (runtime, tell, stop) = (Arc::clone(self), Arc::clone(&tell), stop.clone());
            std::thread::spawn(move || compile_all(&runtime, &tell, &stop))
        };
        let scanner = Scanner::new(roots.to_vec(), scan.clone());
        let runtime = Arc::clone(self);
        let watcher = SkillWatcher::start(scanner, self.catalog(), options, move |event| {
            runtime.on_watch(event, &tell);
        });
        let runtime = Arc::clone(self);
        Ok(SkillWatch { watcher: Some(watcher), compiler: Some(compiler), runtime, stop })
    }

    fn on_watch(&self, event: WatchEvent, tell: &Tell) {
        match event {
            WatchEvent::Reload { catalog, changes } => {
                let before = self.replace_catalog(catalog.clone());
                let jobs = self.to_warm(&changes, &before, &catalog);
                if !changes.is_empty() {
                    say(tell, SkillEvent::Changed(changes));
                }
                for job in jobs {
                    self.background().push(job);
                }
            }
            WatchEvent::Notice(notice) => say(tell, SkillEvent::Notice(notice)),
            _ => {}
        }
    }
}

impl Drop for SkillWatch {
    fn drop(&mut self) {
        drop(self.watcher.take());
        self.stop.stop();
        self.runtime.background().wake();
        if let Some(compiler) = self.compiler.take() {
            let _ = compiler.join();
        }
    }
}

fn compile_all(runtime: &Runtime, tell: &Tell, stop: &StopFlag) {
    while let Some(job) = runtime.background().wait_for_job(stop) {
        match runtime.work(&job, stop) {
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
