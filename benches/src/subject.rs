//! What is measured: a model and the skills around it.

use std::path::PathBuf;
use std::sync::Arc;

use skillgraft::models::{ModelChoice, ModelStore};
use skillgraft::skills::{Catalog, Skill, scan};
use skillgraft::{OpenEvent, Settings};
use skillgraft_engine::Model;

use crate::error::Error;
use crate::fidelity::EvalSet;

/// A model and the skills around it.
#[derive(Debug)]
pub struct Subject {
    /// The model.
    pub model: Arc<Model>,
    /// Its id or file name.
    pub model_name: String,
    /// Where its file is.
    pub model_path: PathBuf,
    /// Skills whose catalog is the static prefix.
    pub catalog: Catalog,
    /// Whether they are the user's; their text is what is grafted then.
    pub own_skills: bool,
}

impl Subject {
    /// Loads the model, fetching it where it is not there yet. Where the settings
    /// name no skill folder, the catalog is that of the built-in evaluation set.
    ///
    /// # Errors
    /// When there is no model, or no skill in the folders that were named.
    pub fn open(settings: &Settings, events: &mut dyn FnMut(OpenEvent)) -> Result<Self, Error> {
        let own_skills = !settings.skills.given.is_empty();
        let catalog = if own_skills {
            scan(&settings.skills.given)
                .and_then(Catalog::require_skills)
                .map_err(skillgraft::Error::from)?
        } else {
            built_in_catalog()?
        };
        let models = ModelStore::open(&settings.cache_dir).cancelled_by(settings.stop.shared());
        let path = settings
            .model
            .obtain(&models, &mut |progress| events(OpenEvent::Fetching(progress)))
            .map_err(skillgraft::Error::from)?;
        events(OpenEvent::Loading);
        let model = Model::load(&path, &settings.options)?;
        let model_name = match &settings.model {
            ModelChoice::Known(known) => known.id.to_owned(),
            // The folder is nobody's business: reports are published.
            ModelChoice::File(_) => {
                path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
        };
        Ok(Subject { model, model_name, model_path: path, catalog, own_skills })
    }
}

fn built_in_catalog() -> Result<Catalog, Error> {
    let set = EvalSet::built_in()?;
    let in_memory = set.skills.iter();
    let skills =
        in_memory.map(|skill| Skill::in_memory(&skill.name, &skill.description, &skill.body));
    Ok(Catalog::from_skills(skills.collect()))
}
