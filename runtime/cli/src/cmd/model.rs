//! `skillgraft model`: fetch and list models.

use std::path::PathBuf;

use serde::Serialize;
use skillgraft::engine::{WeightFormat, requantize};
use skillgraft::models::{ModelChoice, ModelStore, Support, default_model};
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
    /// Write a model file anew with its weights in another format; metadata stay, the
    /// output head becomes `Q8_0`. Never overwrites.
    Requantize {
        /// The format.
        #[arg(long)]
        to: Format,
        /// A known model, or a GGUF file [default: the first of `skillgraft model list`].
        #[arg(long, value_name = "ID|FILE")]
        model: Option<String>,
        /// The file to write.
        #[arg(value_name = "OUT.gguf")]
        out: PathBuf,
    },
    /// List the known models.
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// A format of weights.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Format {
    /// Four bits and a scale for each 32 weights.
    #[value(name = "q4_0")]
    Q4_0,
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
        Command::Requantize { to, model, out } => {
            let choice = model.as_deref().map(ModelChoice::parse).transpose()?;
            let choice = choice.unwrap_or(settings.model);
            let source = choice
                .obtain(&store, &mut |progress| ui.fetching(progress))
                .map_err(skillgraft::Error::from)?;
            let Format::Q4_0 = to;
            let done =
                requantize(&source, &out, WeightFormat::Q4_0).map_err(skillgraft::Error::from)?;
            Ok(ui.data(&format!(
                "{}: {} tensors as Q4_0, {} as Q8_0 (output head), {} as they were; \
                 {:.1} MB instead of {:.1} MB\n",
                out.display(),
                done.converted,
                done.head,
                done.kept,
                done.bytes_after as f64 / 1e6,
                done.bytes_before as f64 / 1e6
            ))?)
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
