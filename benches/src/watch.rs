//! Who follows a measurement: is told how it goes, and may end it.

use std::ops::ControlFlow;

use skillgraft::StopFlag;

use crate::error::Error;

/// Follows a measurement.
pub struct Watch<'a> {
    /// Ends it from another thread.
    pub stop: &'a StopFlag,
    /// Gets a short text at each step.
    pub progress: &'a mut dyn FnMut(&str),
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Watch<'_> {
    /// Begins a step, unless somebody asked to stop.
    pub(crate) fn step(&mut self, text: &str) -> Result<(), Error> {
        if self.stop.is_set() {
            return Err(skillgraft::Error::Interrupted.into());
        }
        (self.progress)(text);
        Ok(())
    }

    /// What long work asks between its chunks.
    pub(crate) fn interrupt(&self) -> impl Fn() -> ControlFlow<()> + Sync + use<> {
        let stop = self.stop.clone();
        move || if stop.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
