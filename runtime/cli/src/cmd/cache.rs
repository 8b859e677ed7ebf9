//! `skillgraft cache`: the compiled blocks on disk, and what they have saved.

use std::collections::BTreeMap;

use serde::Serialize;
use skillgraft::kv::{BlockStore as _, Lookup};
use skillgraft::store::{DirStore, Entry};
use skillgraft::{Settings, Usage, UsageLog};

use crate::ui::Ui;

/// Subcommands of `skillgraft cache`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Sum up the blocks, and what grafts have saved since ever.
    Stats {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// List the blocks.
    List {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Check every block to the last byte.
    Verify {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove all blocks; they are compiled again when they are needed.
    Clear {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Stats {
    blocks: usize,
    bytes: u64,
    #[serde(flatten)]
    usage: Usage,
}

#[derive(Serialize)]
struct List {
    blocks: Vec<Row>,
    bytes: u64,
}

#[derive(Serialize)]
struct Row {
    /// `null` when the header cannot be read.
    name: Option<String>,
    anchor: Option<&'static str>,
    tokens: Option<usize>,
    bytes: u64,
    file: String,
    /// Why it is not usable; `null` when it is, as far as was looked.
    fault: Option<String>,
}

#[derive(Serialize)]
struct Cleared {
    removed: usize,
}

pub(crate) fn run(command: &Command, ui: &Ui) -> anyhow::Result<()> {
    let settings = Settings::from_env()?;
    let store = DirStore::open(settings.cache_dir.join("blocks"));
    match command {
        Command::Stats { json } => {
            let entries = store.entries()?;
            let bytes = entries.iter().map(|entry| entry.file_bytes).sum();
            let usage = UsageLog::of(&settings.cache_dir).read()?;
            stats(&Stats { blocks: entries.len(), bytes, usage }, *json, ui)
        }
        Command::List { json } => {
            let rows: Vec<Row> = store.entries()?.iter().map(row).collect();
            list(rows, *json, ui)
        }
        Command::Verify { json } => verify(&store, *json, ui),
        Command::Clear { json } => {
            let removed = store.clear()?;
            if *json {
                return ui.json(&Cleared { removed });
            }
            ui.line(&format!("{removed} blocks removed"));
            Ok(())
        }
    }
}

fn row(entry: &Entry) -> Row {
    let header = entry.header.as_ref();
    let file = entry.path.file_name().unwrap_or(entry.path.as_os_str());
    Row {
        name: header.ok().map(|header| header.label.clone()),
        anchor: header.ok().map(|header| header.anchor.name()),
        tokens: header.ok().map(skillgraft::kv::BlockHeader::n_tokens),
        bytes: entry.file_bytes,
        file: file.to_string_lossy().into_owned(),
        fault: header.err().map(ToString::to_string),
    }
}

fn stats(stats: &Stats, json: bool, ui: &Ui) -> anyhow::Result<()> {
    if json {
        return ui.json(stats);
    }
    let total = &stats.usage.total;
    let misses: u64 = total.misses.values().sum();
    ui.data(&format!(
        "{} blocks, {:.1} MB\n{} found, {misses} not found\n{} tokens and {:.1} s saved\n",
        stats.blocks,
        stats.bytes as f64 / 1e6,
        total.hits,
        total.saved_tokens,
        total.saved_ms / 1e3,
    ))?;
    let mut skills: Vec<_> = stats.usage.skills.iter().collect();
    skills.sort_by(|a, b| b.1.saved_ms.total_cmp(&a.1.saved_ms));
    for (name, saved) in skills {
        let (tokens, seconds) = (saved.saved_tokens, saved.saved_ms / 1e3);
        ui.data(&format!("{name:<28} {tokens:>9} tokens {seconds:>9.1} s\n"))?;
    }
    Ok(())
}

fn list(blocks: Vec<Row>, json: bool, ui: &Ui) -> anyhow::Result<()> {
    if json {
        let bytes = blocks.iter().map(|row| row.bytes).sum();
        return ui.json(&List { blocks, bytes });
    }
    for row in &blocks {
        let name = row.name.as_deref().unwrap_or("?");
        let tokens = row.tokens.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let what = row.fault.as_deref().or(row.anchor).unwrap_or("?");
        let megabytes = row.bytes as f64 / 1e6;
        ui.data(&format!("{name:<28} {tokens:>6} tokens {megabytes:>8.1} MB  {what}\n"))?;
    }
    Ok(())
}

/// Reads every block as a turn would. Ends with status 1 when one is not usable.
fn verify(store: &DirStore, json: bool, ui: &Ui) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut faults = BTreeMap::new();
    for entry in store.entries()? {
        let mut row = row(&entry);
        if let Ok(header) = &entry.header
            && let Lookup::Miss(reason) = store.get(&header.key)
        {
            row.fault = Some(reason.name().to_owned());
        }
        if let Some(fault) = &row.fault {
            faults.insert(row.file.clone(), fault.clone());
        }
        rows.push(row);
    }
    let n_blocks = rows.len();
    if json {
        let bytes = rows.iter().map(|row| row.bytes).sum();
        ui.json(&List { blocks: rows, bytes })?;
    } else {
        for (file, fault) in &faults {
            ui.data(&format!("{file}: {fault}\n"))?;
        }
        ui.line(&format!("{n_blocks} blocks, {} not usable", faults.len()));
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(skillgraft::Error::BadBlocks { n_bad: faults.len(), n_blocks }.into())
}
