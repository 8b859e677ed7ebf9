//! The runtime: a model, a block store and a catalog of skills.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use skillgraft_engine::{BlockSource, Model, Session, take_block, uninterrupted};
use skillgraft_kv::{AnchorKind, BlockStore, Kept, Lookup, Tier, TokenId, TokenSpan};
use skillgraft_skills::{Bm25Chooser, Catalog, ChooseSkill, scan};
use skillgraft_store::DirStore;

use crate::conversation::Conversation;
use crate::error::Error;
use crate::models::{ModelChoice, ModelStore, Progress};
use crate::prompt::Prompts;
use crate::report::PrefixReport;
use crate::salt;
use crate::settings::Settings;

/// A model, a block store and a catalog, shared by all conversations.
pub struct Runtime {
    model: Arc<Model>,
    model_name: String,
    store: Arc<dyn BlockStore>,
    catalog: Catalog,
    chooser: Box<dyn ChooseSkill + Send + Sync>,
    salt: [u8; 16],
    notices: Vec<String>,
    load_ms: f64,
}

/// What happens while a runtime is opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenEvent {
    /// A model file is being fetched.
    Fetching(Progress),
    /// The model file is there and is being loaded.
    Loading,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("model", &self.model_name).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Reads the skills, fetches the model where it is not there yet, loads it,
    /// and opens the block store. A store that cannot be written is no error:
    /// [`notices`](Self::notices) says so.
    ///
    /// # Errors
    /// When there is no skill or no model.
    pub fn open(settings: &Settings, events: &mut dyn FnMut(OpenEvent)) -> Result<Self, Error> {
        // Skills first: a mistyped folder should not cost a download.
        let catalog = scan(&settings.skills)?.require_skills()?;
        let models = ModelStore::open(&settings.cache_dir).cancelled_by(settings.stop.shared());
        let path = settings
            .model
            .obtain(&models, &mut |progress| events(OpenEvent::Fetching(progress)))?;
        events(OpenEvent::Loading);
        let started = Instant::now();
        let model = Model::load(&path, &settings.options)?;
        let load_ms = started.elapsed().as_secs_f64() * 1e3;

        let store = DirStore::open(settings.cache_dir.join("blocks"));
        let unwritable = store.degraded().map(str::to_owned);
        let runtime = Runtime::with_parts(
            model,
            &name_of(&settings.model),
            Arc::new(store),
            catalog,
            Some(&settings.cache_dir),
        );
        Ok(Runtime { load_ms, ..runtime.with_notice(unwritable) })
    }

    /// A runtime of parts that are already there. Without a cache folder, block
    /// keys have no salt.
    pub fn with_parts(
        model: Arc<Model>,
        model_name: &str,
        store: Arc<dyn BlockStore>,
        catalog: Catalog,
        cache_dir: Option<&Path>,
    ) -> Self {
        let (salt, problem) = cache_dir.map_or(([0; 16], None), salt::load_or_create);
        Runtime {
            model,
            model_name: model_name.to_owned(),
            store,
            chooser: Box::new(Bm25Chooser::new(&catalog)),
            catalog,
            salt,
            notices: Vec::new(),
            load_ms: 0.0,
        }
        .with_notice(problem)
    }

    fn with_notice(mut self, notice: Option<String>) -> Self {
        self.notices.extend(notice);
        self
    }

    /// What works less well than it should, for the user to know.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Id or file name of the model.
    pub fn model_name(&self) -> &str {
        &self.model_name
    }

    /// What loading the model took, in milliseconds.
    pub fn load_ms(&self) -> f64 {
        self.load_ms
    }

    /// The skills.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The blocks.
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.store
    }

    /// The same runtime with another way of choosing a skill where the user
    /// named none. The default searches the full text of all skills.
    #[must_use]
    pub fn with_chooser(self, chooser: Box<dyn ChooseSkill + Send + Sync>) -> Self {
        Runtime { chooser, ..self }
    }

    /// What chooses a skill where the user named none.
    pub fn chooser(&self) -> &dyn ChooseSkill {
        self.chooser.as_ref()
    }

    /// The per-user salt of block keys.
    pub fn salt(&self) -> [u8; 16] {
        self.salt
    }

    /// Starts a conversation: a context that holds the static prefix. The
    /// prefix's KV is a block too, an exact one, so that only the first process
    /// computes it.
    ///
    /// # Errors
    /// When the prefix does not fit or the chat template refuses it.
    pub fn conversation(self: &Arc<Self>) -> Result<Conversation, Error> {
        let started = Instant::now();
        let system = Prompts::system_message(&self.catalog);
        let prefix = Prompts::new(&self.model).prefix(&system)?;
        let limit = self.model.context_length() as usize;
        if prefix.len() >= limit {
            return Err(Error::PrefixTooLong { n_tokens: prefix.len(), limit });
        }
        let mut session = Session::new(Arc::clone(&self.model));
        let block = self.establish_prefix(&mut session, &prefix)?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let report = PrefixReport { tokens: prefix.len(), block, ms };
        Ok(Conversation::new(Arc::clone(self), session, system, report))
    }

    /// Puts the prefix into an empty context; says where its KV came from.
    fn establish_prefix(
        &self,
        session: &mut Session,
        prefix: &[TokenId],
    ) -> Result<&'static str, Error> {
        let source = BlockSource {
            label: "prefix",
            anchor: AnchorKind::None,
            anchor_tokens: &[],
            tokens: prefix,
            salt: self.salt,
        };
        if let Lookup::Hit(block, tier) = self.store.get(&source.key(&self.model)) {
            match session.graft(block, "prefix") {
                Ok(_) => {
                    return Ok(match tier {
                        Tier::Memory => "memory",
                        Tier::Disk => "disk",
                    });
                }
                Err(error) => tracing::warn!(%error, "the stored prefix cannot be used"),
            }
        }
        let started = Instant::now();
        session.prefill(prefix, "prefix", &uninterrupted)?;
        let compile_ms = started.elapsed().as_secs_f64() * 1e3;
        let span = TokenSpan { len: prefix.len() as u32, ..TokenSpan::default() };
        let stored = self.store.put(take_block(session, &source, span, compile_ms));
        if let Kept::InMemory { reason } = stored.kept {
            tracing::debug!(reason, "the prefix was not written");
        }
        Ok("computed")
    }
}

fn name_of(choice: &ModelChoice) -> String {
    match choice {
        ModelChoice::Known(model) => model.id.to_owned(),
        ModelChoice::File(path) => path.display().to_string(),
    }
}
