//! `skillgraft fidelity`: answers, grafts against full prefill.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use skillgraft::StopFlag;
use skillgraft_bench::{
    Error, EvalSet, FidelityOptions, FidelityReport, FidelityRun, Setting, Subject, Watch, edits,
    edits_table, fidelity, fidelity_page, fidelity_table, parse_methods,
};

use super::{ModelArgs, command_line};
use crate::ui::Ui;

/// Length of the greedy continuation along which modes are compared.
const N_GREEDY: usize = 64;

/// Arguments of `skillgraft fidelity`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// A folder with `skills.jsonl`, `cases.jsonl` and `env.json` [default: built in].
    #[arg(long, value_name = "DIR")]
    evalset: Option<PathBuf>,

    /// Make cases from the skills of this folder: lines cut before a fact.
    #[arg(long, value_name = "DIR", conflicts_with = "evalset")]
    skills: Option<PathBuf>,

    /// Your own cases, on the skills of `--skills` or the built-in ones: lines of JSON
    /// with `id`, `skills`, `question`, `answer_stub` and `answer`.
    #[arg(long, value_name = "FILE", conflicts_with = "evalset")]
    cases: Option<PathBuf>,

    /// Cases to make of each skill.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    per_skill: u32,

    /// What to compare with full prefill: `graft`, or single modes.
    #[arg(long, value_name = "MODE,...", default_value = "exact,no-skill,graft,repair")]
    modes: String,

    /// Where the question stands.
    #[arg(long, value_enum, default_value_t = Order::After)]
    order: Order,

    /// Skills at once, the right one among them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    n_skills: u32,

    /// Tokens of other talk between the static prefix and the skill.
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    distance: u32,

    /// Cut the skill's text, or lengthen it with other skills', to about this many
    /// tokens.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(16..))]
    length: Option<u32>,

    /// Measure edits instead: what answers are after a skill has changed in a
    /// context, and what is done about it.
    #[arg(long, conflicts_with_all = ["modes", "cases_out", "html"])]
    edits: bool,

    /// With `--edits`: real edits too, pairs of `NAME.old.md` and `NAME.new.md` in this
    /// folder.
    #[arg(long, value_name = "DIR", requires = "edits")]
    pairs: Option<PathBuf>,

    /// The most cases to run, spread over the set.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    /// Write the report with every case into this file, as JSON.
    #[arg(long, value_name = "FILE")]
    cases_out: Option<PathBuf>,

    /// Write the report as a page of HTML into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    /// Behind the skill.
    After,
    /// Before it, as in the middle of a turn.
    Before,
}

impl Args {
    fn set(&self) -> Result<EvalSet, Error> {
        match (&self.evalset, &self.skills, &self.cases) {
            (Some(folder), _, _) => EvalSet::read(folder),
            (None, skills, Some(cases)) => EvalSet::of_cases(skills.as_deref(), cases),
            (None, Some(folder), None) => EvalSet::of_skills(folder, self.per_skill as usize),
            (None, None, None) => EvalSet::built_in(),
        }
    }

    fn setting(&self) -> Setting {
        Setting {
            order: match self.order {
                Order::After => skillgraft_bench::Order::After,
                Order::Before => skillgraft_bench::Order::Before,
            },
            n_skills: self.n_skills as usize,
            distance: self.distance as usize,
            length: self.length.map(|length| length as usize),
        }
    }
}

pub(crate) fn run(args: &Args, ui: &Ui, stop: &StopFlag) -> anyhow::Result<()> {
    let methods = parse_methods(&args.modes)?;
    let set = args.set()?;
    let mut settings = args.model.settings(stop)?;
    // The set brings its own skills.
    settings.skills.given.clear();
    // A file that cannot be written should not cost minutes first.
    let cases_out = args.cases_out.as_deref().map(create).transpose()?;
    let html = args.html.as_deref().map(create).transpose()?;
    let subject = Subject::open(&settings, &mut |event| ui.opening(event))?;
    let limit = args.limit.map(|limit| limit as usize);
    let command = command_line();
    let mut watch = Watch { stop, progress: &mut |text| ui.status(text) };
    if args.edits {
        let report = edits(&subject, &set, limit, args.pairs.as_deref(), &command, &mut watch)?;
        ui.finish_progress();
        return if args.json { ui.json(&report) } else { Ok(ui.data(&edits_table(&report))?) };
    }
    let options = FidelityOptions {
        setting: args.setting(),
        methods,
        limit,
        n_greedy: N_GREEDY,
        list_cases: args.cases_out.is_some() || args.html.is_some(),
    };
    let run = FidelityRun { subject: &subject, set: &set, options: &options, command: &command };
    let mut report = fidelity(&run, &mut watch)?;
    ui.finish_progress();
    if let Some((file, path)) = cases_out {
        write_cases(&report, file, path)?;
    }
    if let Some((mut file, path)) = html {
        let page = fidelity_page(&report)?;
        file.write_all(page.as_bytes()).map_err(|source| cannot_write(path, source))?;
    }
    if args.cases_out.is_none() {
        report.cases = None;
    }
    if args.json { ui.json(&report) } else { Ok(ui.data(&fidelity_table(&report))?) }
}

pub(super) fn create(path: &Path) -> Result<(File, &Path), Error> {
    let file = File::create(path).map_err(|source| cannot_write(path, source))?;
    Ok((file, path))
}

fn write_cases(report: &FidelityReport, mut file: File, path: &Path) -> anyhow::Result<()> {
    let text = format!("{}\n", serde_json::to_string_pretty(report)?);
    file.write_all(text.as_bytes()).map_err(|source| cannot_write(path, source))?;
    Ok(())
}

pub(super) fn cannot_write(path: &Path, source: std::io::Error) -> Error {
    Error::Io { action: "write", path: path.to_owned(), source }
}
