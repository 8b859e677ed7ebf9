//! `skillgraft run`: one turn.

use std::ops::ControlFlow;
use std::sync::Arc;

use clap::ValueEnum;
use skillgraft::engine::SamplingOptions;
use skillgraft::{
    ActivationReport, Conversation, Error, FullPrefill, Runtime, StopFlag, TurnEvent, TurnMode,
    TurnOptions, TurnReport,
};

use super::Common;
use crate::ui::Ui;

/// Skills left out that are named one by one before a turn.
const OMITTED_SHOWN_MAX: usize = 5;

/// Arguments of `skillgraft run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask. `$name` in it forces the skill of that name.
    prompt: String,

    #[command(flatten)]
    common: Common,

    /// How skills get into the context.
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    mode: Mode,

    /// Use this skill, or `skill/path` of a file, instead of searching; may be given
    /// several times.
    #[arg(long = "use", value_name = "NAME")]
    use_skills: Vec<String>,

    /// Measure the same turn with a full prefill too.
    #[arg(long)]
    compare: bool,

    /// The most tokens to generate.
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_tokens: u32,

    /// Print one JSON object instead of the answer.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    sampling: Sampling,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// The runtime chooses.
    Auto,
    /// Prefill everything.
    Exact,
    /// Graft the skills' blocks.
    Graft,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
struct Sampling {
    /// 0 takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, value_parser = parse_non_negative)]
    temperature: f32,

    /// Keep the most likely tokens whose probabilities sum to this.
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true, value_parser = parse_share)]
    top_p: f32,

    /// Keep this many most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,

    /// Keep tokens at least this likely, relative to the most likely one.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, value_parser = parse_share)]
    min_p: f32,

    /// Make recent tokens less likely; 1 changes nothing.
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, value_parser = parse_penalty)]
    repetition_penalty: f32,

    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

fn parse_number(text: &str, accept: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number: &f32| number.is_finite() && accept(*number));
    number.ok_or_else(|| format!("expected {expected}"))
}

fn parse_non_negative(text: &str) -> Result<f32, String> {
    parse_number(text, |number| number >= 0.0, "a number that is not negative")
}

fn parse_share(text: &str) -> Result<f32, String> {
    parse_number(text, |number| (0.0..=1.0).contains(&number), "a number from 0 to 1")
}

fn parse_penalty(text: &str) -> Result<f32, String> {
    parse_number(text, |number| number > 0.0, "a number above 0")
}

/// The turn's report, with what only the command knows.
#[derive(serde::Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    turn: &'a TurnReport,
    /// What loading the model took, in milliseconds.
    load_ms: f64,
    /// What works less well than it should.
    notices: &'a [String],
}

pub(crate) fn run(args: &Args, ui: &Ui, stop: &StopFlag) -> anyhow::Result<()> {
    let settings = args.common.settings(stop)?;
    let runtime = Arc::new(Runtime::open(&settings, &mut |event| ui.opening(event))?);
    say_what_is_odd(&runtime, ui);
    if stop.is_set() {
        return Err(Error::Interrupted.into());
    }
    let mut conversation = runtime.conversation()?;
    let untouched = args.compare.then(|| conversation.branch());

    let options = args.turn_options(stop);
    let mut report = turn(&mut conversation, args, &options, ui)?;
    if let Some(branch) = untouched
        && !stop.is_set()
    {
        ui.status("measuring the same turn with a full prefill");
        report.full_prefill = full_prefill(branch, &args.prompt, &options)?;
        ui.finish_progress();
    }
    if args.json {
        let (load_ms, notices) = (runtime.load_ms(), runtime.notices());
        ui.json(&Report { turn: &report, load_ms, notices })?;
    } else {
        ui.data("\n")?;
        print_report(&report, runtime.load_ms(), ui);
    }
    if stop.is_set() { Err(Error::Interrupted.into()) } else { Ok(()) }
}

/// Says what was left out of the skills, and what works less well than it should.
fn say_what_is_odd(runtime: &Runtime, ui: &Ui) {
    let catalog = runtime.catalog();
    for finding in catalog.omitted().take(OMITTED_SHOWN_MAX) {
        ui.warning(&format!("{finding}; left out. {}", finding.hint));
    }
    let n_more = catalog.omitted().count().saturating_sub(OMITTED_SHOWN_MAX);
    if n_more > 0 {
        ui.warning(&format!("{n_more} more were left out: `skillgraft skills list` names them"));
    }
    for notice in runtime.notices() {
        ui.warning(notice);
    }
}

impl Args {
    fn turn_options(&self, stop: &StopFlag) -> TurnOptions {
        TurnOptions {
            mode: match self.mode {
                Mode::Auto => TurnMode::Auto,
                Mode::Exact => TurnMode::Exact,
                Mode::Graft => TurnMode::Graft,
            },
            use_skills: self.use_skills.clone(),
            max_tokens: self.max_tokens as usize,
            sampling: SamplingOptions {
                temperature: self.sampling.temperature,
                top_p: self.sampling.top_p,
                top_k: self.sampling.top_k,
                min_p: self.sampling.min_p,
                repetition_penalty: self.sampling.repetition_penalty,
                seed: self.sampling.seed,
                ..SamplingOptions::default()
            },
            stop: stop.clone(),
        }
    }
}

/// Runs the turn; the answer appears as it is generated.
fn turn(
    conversation: &mut Conversation,
    args: &Args,
    options: &TurnOptions,
    ui: &Ui,
) -> anyhow::Result<TurnReport> {
    let mut closed = None;
    let report = conversation.run_turn(&args.prompt, options, &mut |event| {
        match event {
            TurnEvent::Activating { name, n_tokens } => {
                ui.status(&format!("activating {name} ({n_tokens} tokens)"));
            }
            TurnEvent::Activated(_) => ui.finish_progress(),
            TurnEvent::Text(text) if !args.json => {
                if let Err(error) = ui.data(text) {
                    closed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    match closed {
        Some(error) => Err(error.into()),
        None => Ok(report),
    }
}

/// Measures the turn in mode `exact`, up to its first token.
fn full_prefill(
    mut untouched: Conversation,
    prompt: &str,
    options: &TurnOptions,
) -> anyhow::Result<FullPrefill> {
    let options = TurnOptions { mode: TurnMode::Exact, max_tokens: 1, ..options.clone() };
    let report = untouched.run_turn(prompt, &options, &mut |_| ControlFlow::Continue(()))?;
    Ok(FullPrefill { ttft_ms: report.ttft_ms, estimated: false })
}

fn print_report(report: &TurnReport, load_ms: f64, ui: &Ui) {
    ui.line("");
    if let Some(cut) = &report.prefix.catalog.cut {
        ui.field("catalog", cut);
    }
    if report.activations.is_empty() && report.already.is_empty() {
        ui.field("skill", &format!("none: {}", report.choice.reason));
    }
    for already in &report.already {
        let place = already.position;
        ui.field("skill", &format!("{}: in the context already, from token {place}", already.name));
    }
    for activation in &report.activations {
        ui.field("skill", &format!("{}: {}", activation.name, activation.reason));
        if let Some(note) = &activation.note {
            ui.field("note", note);
        }
        ui.field("block", &describe_block(activation));
        if let Some(reason) = &activation.fallback {
            ui.warning(&format!("`{}` was prefilled instead: {reason}", activation.name));
        }
        if let Some(reason) = &activation.not_kept {
            ui.warning(&format!("the block of `{}` is not kept: {reason}", activation.name));
        }
    }
    let tokens = report.tokens;
    ui.field(
        "tokens",
        &format!(
            "{} grafted, {} prefilled, {} generated, behind a prefix of {} ({} in {})",
            tokens.grafted,
            tokens.prefilled,
            tokens.generated,
            tokens.prefix,
            if report.prefix.block == "computed" { "computed" } else { "from disk" },
            ms(report.prefix.ms),
        ),
    );
    ui.field("ttft", &describe_ttft(report));
    let rate = if report.tpot_ms > 0.0 { 1e3 / report.tpot_ms } else { 0.0 };
    ui.field("decode", &format!("{} a token, {rate:.0} token/s", ms(report.tpot_ms)));
    ui.field("mode", &format!("{}; model {} loaded in {}", report.mode, report.model, ms(load_ms)));
    if report.stop != "end_of_turn" {
        ui.field("stop", report.stop);
    }
}

fn describe_block(activation: &ActivationReport) -> String {
    let tokens = activation.grafted_tokens;
    let graft = ms(activation.graft_ms);
    match (activation.block, activation.miss) {
        ("none", _) => format!("none: {} tokens prefilled", activation.prefilled_tokens),
        ("compiled", miss) => {
            let why = match miss {
                None | Some("absent") => String::new(),
                Some(reason) => format!(" (the stored one is {reason})"),
            };
            let compile = ms(activation.compile_ms);
            format!("compiled now in {compile}{why}, {tokens} tokens grafted in {graft}")
        }
        (place, _) => {
            let lookup = ms(activation.lookup_ms);
            format!(
                "from {place}, opened and checked in {lookup}, {tokens} tokens grafted in {graft}"
            )
        }
    }
}

fn describe_ttft(report: &TurnReport) -> String {
    let ttft = ms(report.ttft_ms);
    if report.tokens.grafted == 0 {
        return ttft;
    }
    let full = report.full_prefill;
    let how = if full.estimated { "estimated; --compare measures" } else { "measured" };
    let ratio = full.ttft_ms / report.ttft_ms;
    format!("{ttft}; with a full prefill {} ({how}): {ratio:.1}x", ms(full.ttft_ms))
}

/// Milliseconds with about three digits.
fn ms(value: f64) -> String {
    match value {
        value if value < 0.1 => format!("{:.1} us", value * 1e3),
        value if value < 10.0 => format!("{value:.2} ms"),
        value if value < 10_000.0 => format!("{value:.0} ms"),
        value => format!("{:.1} s", value / 1e3),
    }
}
