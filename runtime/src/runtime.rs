//! The runtime: a model, a block store and a catalog of skills.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use skillgraft_engine::{BlockSource, Interrupt, Model, Session, take_block, uninterrupted};
use skillgraft_kv::{AnchorKind, BlockStore, Kept, Lookup, Tier, TokenId, TokenSpan};
use skillgraft_skills::{
    Catalog, CatalogFormat, ChooseSkill, Rendered, Root, ScanOptions, Scanner, SkillSession,
};

use crate::conversation::Conversation;
use crate::error::Error;
use crate::models::{ModelChoice, ModelStore, Progress};
use crate::prompt::Prompts;
use crate::report::{CatalogReport, PrefixReport, TurnReport};
use crate::salt;
use crate::settings::{Settings, SkillSettings};
use crate::snapshot::{Chooser, Snapshot};
use crate::usage::UsageLog;
use crate::warm::Background;

/// What the user of a base model should know.
const NO_TEMPLATE: &str = "the model file has no chat template, so it is a base model: \
    messages are put together as plain text, and the answer is how the text goes on";

/// A model, a block store and a catalog, shared by all conversations.
pub struct Runtime {
    model: Arc<Model>,
    model_name: String,
    store: Arc<dyn BlockStore>,
    skills: RwLock<Snapshot>,
    /// Where the skills come from; empty for those that were handed over.
    roots: Vec<Root>,
    scan: ScanOptions,
    catalog_share: f64,
    /// Chooses instead of the search.
    chooser: Option<Chooser>,
    background: Background,
    usage: Option<UsageLog>,
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
    /// and opens the block store. A store that cannot be written is no error, nor
    /// is a user who has no skills: [`notices`](Self::notices) says so.
    ///
    /// # Errors
    /// When a folder that was named has no skill, or there is no model.
    pub fn open(settings: &Settings, events: &mut dyn FnMut(OpenEvent)) -> Result<Self, Error> {
        // Skills first: a mistyped folder should not cost a download.
        let found = find_skills(&settings.skills)?;
        let models = ModelStore::open(&settings.cache_dir).cancelled_by(settings.stop.shared());
        let path = settings
            .model
            .obtain(&models, &mut |progress| events(OpenEvent::Fetching(progress)))?;
        events(OpenEvent::Loading);
        let started = Instant::now();
        let model = Model::load(&path, &settings.options)?;
        let load_ms = started.elapsed().as_secs_f64() * 1e3;

        let store = settings.open_store();
        let unwritable = store.degraded().map(str::to_owned);
        let mut runtime = Runtime::with_parts(
            model,
            &name_of(&settings.model),
            Arc::new(store),
            found.catalog,
            Some(&settings.cache_dir),
        );
        runtime.load_ms = load_ms;
        runtime.roots = found.roots;
        runtime.scan = settings.skills.scan.clone();
        runtime.catalog_share = settings.skills.catalog_share;
        runtime.notices.extend(found.notices.into_iter().chain(unwritable));
        Ok(runtime)
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
        let no_template = model.template().is_plain().then(|| NO_TEMPLATE.to_owned());
        let SkillSettings { scan, catalog_share, .. } = SkillSettings::default();
        Runtime {
            model,
            model_name: model_name.to_owned(),
            store,
            skills: RwLock::new(Snapshot::new(catalog, None)),
            roots: Vec::new(),
            scan,
            catalog_share,
            chooser: None,
            background: Background::default(),
            usage: cache_dir.map(UsageLog::of),
            salt,
            notices: problem.into_iter().chain(no_template).collect(),
            load_ms: 0.0,
        }
    }

    /// The same runtime with its skills looked for in these folders whenever they
    /// are [watched](Self::watch).
    #[must_use]
    pub fn with_roots(self, roots: Vec<Root>) -> Self {
        Runtime { roots, ..self }
    }

    /// The same runtime with another share of the context, from 0 to 1, for the
    /// catalog of its conversations.
    #[must_use]
    pub fn with_catalog_share(self, catalog_share: f64) -> Self {
        Runtime { catalog_share, ..self }
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

    /// The skills as they are now.
    pub fn catalog(&self) -> Catalog {
        self.snapshot().catalog
    }

    /// The skills as they are now, with what chooses among them.
    pub(crate) fn snapshot(&self) -> Snapshot {
        // A snapshot is replaced as a whole: it is right whoever panicked.
        self.skills.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another catalog in place, for turns that begin from now on, and gives
    /// the one before.
    pub fn replace_catalog(&self, catalog: Catalog) -> Catalog {
        let new = Snapshot::new(catalog, self.chooser.as_ref());
        let mut now = self.skills.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *now, new).catalog
    }

    /// Where the skills come from, and how they are looked for.
    pub(crate) fn folders(&self) -> (&[Root], &ScanOptions) {
        (&self.roots, &self.scan)
    }

    /// Counts what a turn has saved.
    pub(crate) fn record_usage(&self, report: &TurnReport) {
        if let Some(usage) = &self.usage {
            usage.record(&report.activations);
        }
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// The blocks.
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.store
    }

    /// The same runtime with another way of choosing a skill where the user
    /// named none. The default searches the full text of all skills.
    #[must_use]
    pub fn with_chooser(self, chooser: Box<dyn ChooseSkill + Send + Sync>) -> Self {
        let chooser: Chooser = Arc::from(chooser);
        let skills = RwLock::new(Snapshot::new(self.catalog(), Some(&chooser)));
        Runtime { chooser: Some(chooser), skills, ..self }
    }

    /// The per-user salt of block keys.
    pub fn salt(&self) -> [u8; 16] {
        self.salt
    }

    /// Starts a conversation: a context that holds the static prefix, with as
    /// much of the catalog as its budget allows. The prefix's KV is a block too,
    /// an exact one, so that only the first process computes it.
    ///
    /// # Errors
    /// When the prefix does not fit or the chat template refuses it.
    pub fn conversation(self: &Arc<Self>) -> Result<Conversation, Error> {
        let started = Instant::now();
        let catalog = self.catalog();
        let rendered = self.render(&catalog)?;
        let system = Prompts::system_message(&rendered.text);
        let prefix = Prompts::new(&self.model).prefix(&system)?;
        let limit = self.model.context_length() as usize;
        if prefix.len() >= limit {
            return Err(Error::PrefixTooLong { n_tokens: prefix.len(), limit });
        }
        let mut session = Session::new(Arc::clone(&self.model));
        let block = self.establish_prefix(&mut session, &prefix, &uninterrupted)?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let report =
            PrefixReport { tokens: prefix.len(), block, ms, catalog: CatalogReport::of(&rendered) };
        let skills = SkillSession::new(catalog, rendered.text);
        Ok(Conversation::new(Arc::clone(self), session, skills, system, report))
    }

    /// The catalog within its share of the context, as counted by the model's
    /// tokenizer.
    fn render(&self, catalog: &Catalog) -> Result<Rendered, Error> {
        let budget = (f64::from(self.model.context_length()) * self.catalog_share) as usize;
        let failed = std::cell::OnceCell::new();
        let count = |text: &str| match self.model.tokenizer().encode_content(text) {
            Ok(tokens) => tokens.len(),
            Err(error) => {
                let _ = failed.set(error);
                0
            }
        };
        let rendered = catalog.render_within(CatalogFormat::Lines, budget, &count);
        failed.into_inner().map_or(Ok(rendered), |error| Err(error.into()))
    }

    /// Puts the prefix into an empty context; says where its KV came from.
    pub(crate) fn establish_prefix(
        &self,
        session: &mut Session,
        prefix: &[TokenId],
        interrupt: Interrupt<'_>,
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
        session.prefill(prefix, "prefix", interrupt)?;
        let compile_ms = started.elapsed().as_secs_f64() * 1e3;
        let span = TokenSpan { len: prefix.len() as u32, ..TokenSpan::default() };
        let stored = self.store.put(take_block(session, &source, span, compile_ms));
        if let Kept::InMemory { reason } = stored.kept {
            tracing::debug!(reason, "the prefix was not written");
        }
        Ok("computed")
    }
}

/// The skills of some settings.
struct FoundSkills {
    catalog: Catalog,
    roots: Vec<Root>,
    notices: Vec<String>,
}

/// Searches the folders. Of the folders that were named one must hold a skill; a
/// user who named none and has none can still talk to the model.
fn find_skills(settings: &SkillSettings) -> Result<FoundSkills, Error> {
    let found = settings.roots()?;
    let catalog = Scanner::new(found.roots.clone(), settings.scan.clone()).scan()?;
    let mut notices: Vec<String> =
        found.findings.iter().map(|finding| format!("{finding}. {}", finding.hint)).collect();
    if settings.given.is_empty() && catalog.is_empty() {
        notices.push("no skills were found; `--skills DIR` names a folder of them".to_owned());
    }
    let is_given = |path: &Path| settings.given.iter().any(|given| path.starts_with(given));
    if !settings.given.is_empty() && !catalog.skills().iter().any(|skill| is_given(&skill.root)) {
        let omitted = catalog.omitted().filter(|finding| is_given(&finding.path)).cloned();
        let (roots, omitted) = (settings.given.clone(), omitted.collect());
        return Err(skillgraft_skills::Error::NoSkills { roots, omitted }.into());
    }
    Ok(FoundSkills { catalog, roots: found.roots, notices })
}

fn name_of(choice: &ModelChoice) -> String {
    match choice {
        ModelChoice::Known(model) => model.id.to_owned(),
        ModelChoice::File(path) => path.display().to_string(),
    }
}
