//! What grafts have saved, over all processes and for ever.
//!
//! A file in the cache folder with a line of JSON for each activation, some
//! hundred bytes. Lines are appended in one write each, so any number of
//! processes may do so without a lock.
//!
//! **Invariant:** the counter never fails a turn: what cannot be written is not
//! counted. Lines that cannot be read are counted as such, and skipped.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::report::ActivationReport;

/// Name of the file in the cache folder.
const FILE: &str = "usage.jsonl";

/// The activations of a cache folder.
#[derive(Debug, Clone)]
pub struct UsageLog {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Line {
    skill: String,
    /// `disk`, `memory`, `compiled` or `none`.
    block: String,
    grafted: u64,
    /// What prefilling would have taken, less what was done instead; below 0
    /// where a block was compiled for it.
    saved_ms: f64,
    miss: Option<String>,
}

/// Sums over activations.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Savings {
    /// Activations whose block was found.
    pub hits: u64,
    /// Activations whose block was not found, by reason.
    pub misses: BTreeMap<String, u64>,
    /// Tokens that were grafted instead of prefilled.
    pub saved_tokens: u64,
    /// Milliseconds saved, what compiling took subtracted.
    pub saved_ms: f64,
}

/// What a log says.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Of all skills.
    #[serde(flatten)]
    pub total: Savings,
    /// Of each skill, and of each file as `skill/path`.
    pub skills: BTreeMap<String, Savings>,
    /// Lines that could not be read.
    pub unreadable_lines: u64,
}

impl UsageLog {
    /// The log of a cache folder, whether it is there or not.
    pub fn of(cache_dir: &Path) -> Self {
        UsageLog { path: cache_dir.join(FILE) }
    }

    /// Adds what a turn has activated.
    pub(crate) fn record(&self, activations: &[ActivationReport]) {
        for activation in activations {
            if let Err(error) = self.append(activation) {
                tracing::debug!(%error, path = %self.path.display(), "usage is not counted");
            }
        }
    }

    fn append(&self, activation: &ActivationReport) -> io::Result<()> {
        let spent = activation.graft_ms
            + activation.repair_ms
            + activation.lookup_ms
            + activation.compile_ms;
        let is_grafted = activation.grafted_tokens > 0;
        let line = Line {
            skill: activation.name.clone(),
            block: activation.block.to_owned(),
            grafted: activation.grafted_tokens as u64,
            saved_ms: if is_grafted { activation.saved_ms - spent } else { 0.0 },
            miss: activation.miss.map(str::to_owned),
        };
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(&line)
    }

    /// Adds everything up. A log that does not exist says nothing.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub fn read(&self) -> io::Result<Usage> {
        let file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Usage::default()),
            Err(error) => return Err(error),
        };
        let mut usage = Usage::default();
        for line in BufReader::new(file).split(b'\n') {
            match serde_json::from_slice::<Line>(&line?) {
                Ok(line) => {
                    usage.total.add(&line);
                    usage.skills.entry(line.skill.clone()).or_default().add(&line);
                }
                Err(_) => usage.unreadable_lines += 1,
            }
        }
        Ok(usage)
    }
}

impl Savings {
    fn add(&mut self, line: &Line) {
        match (&line.miss, line.block.as_str()) {
            (Some(reason), _) => *self.misses.entry(reason.clone()).or_default() += 1,
            (None, "none") => {}
            (None, _) => self.hits += 1,
        }
        self.saved_tokens += line.grafted;
        self.saved_ms += line.saved_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activation(name: &str, grafted: usize, miss: Option<&'static str>) -> ActivationReport {
        ActivationReport {
            name: name.to_owned(),
            reason: String::new(),
            note: None,
            placement: "before",
            block: if miss.is_some() { "compiled" } else { "disk" },
            anchor: "prefix",
            exact: true,
            grafted_tokens: grafted,
            repaired_tokens: 0,
            prefilled_tokens: 9,
            graft_ms: 1.0,
            repair_ms: 0.0,
            lookup_ms: 2.0,
            compile_ms: 0.0,
            saved_ms: 103.0,
            fallback: None,
            miss,
            not_kept: None,
        }
    }

    #[test]
    fn savings_add_up_over_processes() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(UsageLog::of(folder.path()).read().unwrap(), Usage::default());
        UsageLog::of(folder.path()).record(&[activation("tea \"1\"\n", 0, Some("absent"))]);
        UsageLog::of(folder.path())
            .record(&[activation("tea \"1\"\n", 40, None), activation("b", 2, None)]);
        // Half a line, as a full disk leaves it.
        let mut file =
            std::fs::OpenOptions::new().append(true).open(folder.path().join(FILE)).unwrap();
        file.write_all(b"{\"skill\":\"te\n").unwrap();
        let usage = UsageLog::of(folder.path()).read().unwrap();
        assert_eq!((usage.total.hits, usage.total.saved_tokens), (2, 42));
        assert_eq!((usage.total.saved_ms, usage.unreadable_lines), (200.0, 1));
        let tea = &usage.skills["tea \"1\"\n"];
        assert_eq!((tea.hits, tea.misses["absent"], tea.saved_ms), (1, 1, 100.0));
    }

    #[test]
    fn a_log_that_cannot_be_written_fails_nothing() {
        let log = UsageLog::of(Path::new("/dev/null/nowhere"));
        log.record(&[activation("a", 1, None)]);
    }
}
