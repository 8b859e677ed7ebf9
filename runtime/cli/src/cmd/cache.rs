//! `skillgraft cache`: the compiled blocks on disk, and what they have saved.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use skillgraft::store::{Collected, DirStore, Entry, Removed};
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
    /// Remove blocks that are of no use, were not used for long, or are too many.
    Gc {
        /// What all blocks may take, in 10^6 bytes [default: as configured, 4294].
        #[arg(long, value_name = "MB")]
        max_mb: Option<u64>,

        /// Days after which a block goes that was not used [default: as configured,
        /// 90].
        #[arg(long, value_name = "DAYS")]
        max_age: Option<u64>,

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
    /// When it was used last, in seconds since 1970.
    last_used_unix: u64,
    file: String,
    /// Why it is not usable; `null` when it is, as far as was looked.
    fault: Option<String>,
}

#[derive(Serialize)]
struct Collection {
    removed: Vec<Gone>,
    stale: usize,
    blocks: usize,
    bytes: u64,
}

#[derive(Serialize)]
struct Gone {
    file: String,
    bytes: u64,
    /// `unusable`, `old` or `size`.
    reason: &'static str,
}

#[derive(Serialize)]
struct Cleared {
    removed: usize,
}

pub(crate) fn run(command: &Command, ui: &Ui) -> anyhow::Result<()> {
    let settings = Settings::from_env()?;
    let store = settings.open_store();
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
        Command::Gc { max_mb, max_age, json } => {
            let mut limits = settings.cache_limits;
            if let Some(megabytes) = max_mb {
                limits.max_bytes = megabytes.saturating_mul(1_000_000);
            }
            if let Some(days) = max_age {
                limits.max_age = Duration::from_secs(days.saturating_mul(24 * 3600));
            }
            collected(&store.collect(&limits)?, *json, ui)
        }
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
    let used = entry.used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Row {
        name: header.ok().map(|header| header.label.clone()),
        anchor: header.ok().map(|header| header.anchor.name()),
        tokens: header.ok().map(skillgraft::kv::BlockHeader::n_tokens),
        bytes: entry.file_bytes,
        last_used_unix: used.as_secs(),
        file: file_name(&entry.path),
        fault: header.err().map(ToString::to_string),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn collected(collected: &Collected, json: bool, ui: &Ui) -> anyhow::Result<()> {
    let gone = |removed: &Removed| Gone {
        file: file_name(&removed.path),
        bytes: removed.bytes,
        reason: removed.reason.name(),
    };
    let removed: Vec<Gone> = collected.removed.iter().map(gone).collect();
    let Collected { stale, kept, kept_bytes, .. } = *collected;
    if json {
        return ui.json(&Collection { removed, stale, blocks: kept, bytes: kept_bytes });
    }
    for gone in &removed {
        ui.data(&format!(
            "{:<8} {:>8.1} MB  {}\n",
            gone.reason,
            gone.bytes as f64 / 1e6,
            gone.file
        ))?;
    }
    let bytes: u64 = removed.iter().map(|gone| gone.bytes).sum();
    ui.line(&format!(
        "{} blocks removed, {:.1} MB; {stale} unfinished files removed; {kept} blocks left, {:.1} MB",
        removed.len(),
        bytes as f64 / 1e6,
        kept_bytes as f64 / 1e6,
    ));
    Ok(())
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
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(row.last_used_unix);
        let days = used.elapsed().unwrap_or_default().as_secs_f64() / (24.0 * 3600.0);
        ui.data(&format!(
            "{name:<28} {tokens:>6} tokens {megabytes:>8.1} MB used {days:>5.1} days ago  {what}\n"
        ))?;
    }
    Ok(())
}

/// Reads every block to its end. Ends with status 1 when one is not usable.
fn verify(store: &DirStore, json: bool, ui: &Ui) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut faults = BTreeMap::new();
    for entry in store.entries()? {
        let mut row = row(&entry);
        if entry.header.is_ok()
            && let Err(error) = store.check(&entry)
        {
            row.fault = Some(error.miss_reason().name().to_owned());
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
