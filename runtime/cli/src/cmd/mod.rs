//! One file per subcommand.

pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod chat;
pub(crate) mod compile;
pub(crate) mod fidelity;
pub(crate) mod model;
pub(crate) mod run;
pub(crate) mod skills;
pub(crate) mod trust;
mod turn;

use std::path::PathBuf;

use skillgraft::models::ModelChoice;
use skillgraft::skills::{Catalog, Scanner};
use skillgraft::{Settings, StopFlag};

use crate::ui::Ui;

/// Options of every command that runs a model on skills.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    skills: SkillArgs,

    #[command(flatten)]
    model: ModelArgs,
}

/// Where skills are looked for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SkillArgs {
    /// A folder to look for skills in before all others; may be given several times.
    #[arg(long = "skills", value_name = "DIR")]
    skills: Vec<PathBuf>,

    /// Look in no other folders than those of `--skills`.
    #[arg(long)]
    only: bool,
}

/// Options of every command that runs a model.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ModelArgs {
    /// A known model, or a GGUF file [default: the first of `skillgraft model list`].
    #[arg(long, value_name = "ID|FILE")]
    model: Option<String>,

    /// Context limit in tokens [default: the model's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    context: Option<u32>,

    /// CPU threads [default: as many as the process may use].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Unpack the weights and compute in 32-bit floats throughout: slower, and more
    /// memory.
    #[arg(long)]
    strict_f32: bool,
}

impl Common {
    /// The environment's settings, with what the command line says over them.
    pub(crate) fn settings(&self, stop: &StopFlag) -> Result<Settings, skillgraft::Error> {
        Ok(self.skills.apply(self.model.settings(stop)?))
    }
}

impl SkillArgs {
    /// Settings with what the command line says over them.
    fn apply(&self, mut settings: Settings) -> Settings {
        if !self.skills.is_empty() {
            settings = settings.with_skills(self.skills.clone());
        }
        if self.only { settings.without_discovery() } else { settings }
    }

    /// Scans the folders; what was left out is said.
    fn scan(&self, ui: &Ui) -> Result<Catalog, skillgraft::Error> {
        let settings = self.apply(Settings::from_env()?).skills;
        let roots = settings.roots()?;
        for finding in &roots.findings {
            ui.warning(&format!("{finding}. {}", finding.hint));
        }
        let catalog = Scanner::new(roots.roots, settings.scan).scan()?;
        for finding in catalog.omitted() {
            ui.warning(&format!("{finding}; left out. {}", finding.hint));
        }
        Ok(catalog)
    }
}

impl ModelArgs {
    /// The environment's settings, with what the command line says over them.
    pub(crate) fn settings(&self, stop: &StopFlag) -> Result<Settings, skillgraft::Error> {
        let mut settings = Settings::from_env()?;
        if let Some(model) = &self.model {
            settings.model = ModelChoice::parse(model)?;
        }
        if self.context.is_some() {
            settings.options.context_length = self.context;
        }
        if let Some(n) = self.threads {
            settings.options.backend.n_threads = Some(n.into());
        }
        settings.options.backend.strict_f32 = self.strict_f32;
        settings.stop = stop.clone();
        Ok(settings)
    }
}

/// The command line as reports show it: without the folder of the program.
pub(crate) fn command_line() -> String {
    let arguments = std::env::args_os().skip(1);
    let arguments = arguments.map(|argument| format!(" {}", argument.to_string_lossy()));
    format!("skillgraft{}", arguments.collect::<String>())
}
