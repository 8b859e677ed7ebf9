//! The skills as they are now, and what chooses among them.
//!
//! **Invariant:** a snapshot never changes. A turn works with one from beginning
//! to end; a changed folder is a new snapshot for the next turn.

use std::sync::Arc;

use skillgraft_skills::{Bm25Chooser, Catalog, Choice, ChooseSkill, Error};

/// Chooses skills, from any thread.
pub(crate) type Chooser = Arc<dyn ChooseSkill + Send + Sync>;

/// One state of the skills.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) catalog: Catalog,
    chooser: Chooser,
}

impl Snapshot {
    /// Indexes a catalog, unless another way of choosing was given.
    pub(crate) fn new(catalog: Catalog, own: Option<&Chooser>) -> Self {
        let chooser = own.map_or_else(|| Arc::new(Bm25Chooser::new(&catalog)) as _, Arc::clone);
        Snapshot { catalog, chooser }
    }

    /// The skills for a request where the user named none.
    pub(crate) fn choose(&self, request: &str) -> Result<Choice, Error> {
        self.chooser.choose(request, &self.catalog)
    }
}
