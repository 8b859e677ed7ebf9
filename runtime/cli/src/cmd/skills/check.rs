//! `skillgraft skills check`: findings like a compiler's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use skillgraft::skills::{Catalog, Diagnostic, Error, Level, Root, ScanOptions, Scanner, Severity};

use crate::ui::Ui;

/// Longest line that is shown, in characters.
const LINE_CHARS_MAX: usize = 120;

/// Arguments of `skillgraft skills check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Skills, folders of skills, or `SKILL.md` files.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// What the specification does not allow is an error.
    #[arg(long)]
    strict: bool,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    skills: Vec<Checked<'a>>,
    diagnostics: &'a [Diagnostic],
}

#[derive(Serialize)]
struct Checked<'a> {
    name: &'a str,
    path: &'a Path,
}

pub(super) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let level = if args.strict { Level::Strict } else { Level::Lenient };
    let mut catalogs = Vec::new();
    let mut findings = Vec::new();
    for path in &args.paths {
        let (catalog, found) = look(path, level)?;
        catalogs.push((catalog, path));
        findings.extend(found);
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings.dedup();
    let loaded = catalogs.iter().flat_map(|(catalog, path)| {
        catalog.skills().iter().filter(move |skill| !path.is_file() || skill.file == **path)
    });
    let skills: Vec<Checked<'_>> =
        loaded.map(|skill| Checked { name: &skill.id, path: &skill.file }).collect();
    let mut refused: Vec<&Path> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| finding.path.as_path())
        .collect();
    refused.dedup();
    let (n_refused, n_files) = (refused.len(), refused.len() + skills.len());
    let ok = n_refused == 0 && !skills.is_empty();
    if args.json {
        ui.json(&Report { ok, skills, diagnostics: &findings })?;
    } else {
        for finding in &findings {
            ui.data(&shown(finding))?;
        }
        let n_warnings = findings.iter().filter(|f| f.severity == Severity::Warning).count();
        ui.line(&format!(
            "{n_files} skill files: {} load, {n_refused} do not; {n_warnings} warnings",
            skills.len()
        ));
    }
    if ok {
        return Ok(());
    }
    let error = match n_files {
        0 => Error::NoSkills { roots: args.paths.clone(), omitted: Vec::new() },
        _ => Error::Refused { n_refused, n_files },
    };
    Err(skillgraft::Error::from(error).into())
}

/// The skills under one path, and what was found about them.
fn look(path: &Path, level: Level) -> anyhow::Result<(Catalog, Vec<Diagnostic>)> {
    // A file is checked as one of its folder, whose name counts.
    let folder = match path.parent() {
        Some(folder) if path.is_file() && folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) if path.is_file() => folder,
        _ => path,
    };
    // A folder that is itself a skill has its name from the path as it really is.
    let real = folder.canonicalize();
    let folder = match &real {
        Ok(real) if folder.file_name().is_none() => real.as_path(),
        _ => folder,
    };
    let options = ScanOptions { level, ignore_files: false, ..ScanOptions::default() };
    let catalog = Scanner::new(vec![Root::given(folder)], options).scan();
    let catalog = catalog.map_err(skillgraft::Error::from)?;
    let links = catalog.skills().iter().flat_map(|skill| skill.link_findings());
    let mut findings: Vec<Diagnostic> =
        catalog.diagnostics().iter().cloned().chain(links).collect();
    if path.is_file() {
        let name = path.file_name();
        findings.retain(|f| f.path.parent() == Some(folder) && f.path.file_name() == name);
    }
    Ok((catalog, findings))
}

/// A finding with its line, a mark under it, and a hint.
fn shown(finding: &Diagnostic) -> String {
    let mut out = String::new();
    let place = match (finding.line, finding.column) {
        (Some(line), Some(column)) => format!(":{line}:{column}"),
        (Some(line), None) => format!(":{line}"),
        _ => String::new(),
    };
    let severity = finding.severity.name();
    let _ = writeln!(out, "{severity}[{}]: {}", finding.code, finding.message);
    let _ = writeln!(out, "  --> {}{place}", finding.path.display());
    let text = finding.line.and_then(|line| {
        let text = std::fs::read_to_string(&finding.path).ok()?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        Some((line, text.lines().nth(line as usize - 1)?.to_owned()))
    });
    if let Some((line, text)) = text.filter(|(_, text)| !text.trim().is_empty()) {
        let shown: String = text
            .chars()
            .take(LINE_CHARS_MAX)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let n_chars = shown.trim_end().chars().count();
        let indent = shown.chars().take_while(|c| c.is_whitespace()).count();
        // Without a column the whole line is meant.
        let (before, n_marks) = match finding.column {
            Some(column) => ((column as usize - 1).min(n_chars), 1),
            None => (indent, n_chars - indent),
        };
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let _ = writeln!(out, "{margin} |");
        let _ = writeln!(out, "{number} | {}", shown.trim_end());
        let _ = writeln!(out, "{margin} | {}{}", " ".repeat(before), "^".repeat(n_marks.max(1)));
    }
    let _ = writeln!(out, "  = hint: {}\n", finding.hint);
    out
}
