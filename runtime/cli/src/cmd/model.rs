//! `skillgraft model`: fetch and list models.

use serde::Serialize;
use skillgraft::models::{ModelStore, Support, default_model};
use skillgraft::{Settings, StopFlag};

use crate::ui::Ui;

/// Subcommands of `skillgraft model`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Fetch a known model into the cache folder.
    Pull {
        /// Which one [default: the first of the list].
        id: Option<String>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// List the known models.
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// A model in the JSON of both commands.
#[derive(Serialize)]
struct Row {
    id: &'static str,
    title: &'static str,
    path: Option<String>,
    bytes: u64,
    license: &'static str,
    family: &'static str,
    graftable: bool,
    reason: Option<&'static str>,
}

#[derive(Serialize)]
struct Models {
    models: Vec<Row>,
}

pub(crate) fn run(command: Command, ui: &Ui, stop: &StopFlag) -> anyhow::Result<()> {
    let settings = Settings::from_env()?;
    let store = ModelStore::open(&settings.cache_dir).cancelled_by(stop.shared());
    match command {
        Command::Pull { id, json } => {
            let id = id.unwrap_or_else(|| default_model().id.to_owned());
            let pulled = store
                .pull(&id, &mut |progress| ui.fetching(progress))
                .map_err(skillgraft::Error::from)?;
            if json {
                let models = rows(&store)?.into_iter().filter(|row| row.id == pulled.id);
                ui.json(&Models { models: models.collect() })
            } else {
                Ok(ui.data(&format!("{}\n", pulled.path.display()))?)
            }
        }
        Command::List { json: true } => ui.json(&Models { models: rows(&store)? }),
        Command::List { json: false } => {
            for row in rows(&store)? {
                let mb = row.bytes as f64 / 1e6;
                let state = match (&row.path, row.reason) {
                    (_, Some(reason)) => format!("cannot be run: {reason}"),
                    (Some(path), None) => path.clone(),
                    (None, None) => "not fetched yet".to_owned(),
                };
                ui.data(&format!("{:<36} {mb:>6.0} MB  {:<11} {state}\n", row.id, row.license))?;
            }
            Ok(())
        }
    }
}

fn rows(store: &ModelStore) -> Result<Vec<Row>, skillgraft::Error> {
    store
        .models()
        .iter()
        .map(|model| {
            let path = store.locate(model.id)?;
            let reason = match model.support {
                Support::Supported => None,
                Support::NotYet { reason } => Some(reason),
            };
            Ok(Row {
                id: model.id,
                title: model.title,
                path: path.map(|path| path.display().to_string()),
                bytes: model.bytes,
                license: model.license,
                family: model.family,
                graftable: reason.is_none(),
                reason,
            })
        })
        .collect()
}
