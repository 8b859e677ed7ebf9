//! `skillgraft trust`: whose skills may enter a prompt.

use std::path::{Path, PathBuf};

use serde::Serialize;
use skillgraft::Settings;
use skillgraft::skills::project_folder;

use crate::ui::Ui;

/// Arguments of `skillgraft trust`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder of a project [default: the one around the working folder].
    path: Option<PathBuf>,

    /// Trust it no longer.
    #[arg(long)]
    remove: bool,

    /// List the trusted folders and change nothing.
    #[arg(long, conflicts_with_all = ["path", "remove"])]
    list: bool,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    trusted: Vec<&'a Path>,
    /// The folder that was added or removed.
    changed: Option<&'a Path>,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut trust = Settings::from_env()?.skills.trust()?;
    let mut changed = None;
    if !args.list {
        let path = match &args.path {
            Some(path) => path.clone(),
            None => project_folder(&std::env::current_dir()?),
        };
        if args.remove {
            let was_trusted = trust.remove(&path).map_err(skillgraft::Error::from)?;
            changed = was_trusted.then_some(path);
        } else {
            changed = Some(trust.add(&path).map_err(skillgraft::Error::from)?);
        }
    }
    if args.json {
        let trusted = trust.folders().collect();
        return ui.json(&Report { trusted, changed: changed.as_deref() });
    }
    if args.list {
        for folder in trust.folders() {
            ui.data(&format!("{}\n", folder.display()))?;
        }
        return Ok(());
    }
    match changed {
        Some(path) if args.remove => ui.line(&format!("no longer trusted: {}", path.display())),
        Some(path) => ui.line(&format!("trusted: {}", path.display())),
        None => ui.line("it was not trusted"),
    }
    Ok(())
}
