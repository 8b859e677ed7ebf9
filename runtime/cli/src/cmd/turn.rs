//! What `run` and `chat` have in common: the options of a turn, and its report.

use std::ops::ControlFlow;

use clap::ValueEnum;
use skillgraft::engine::SamplingOptions;
use skillgraft::{
    ActivationReport, Conversation, Placement, Runtime, StopFlag, TurnEvent, TurnMode, TurnOptions,
    TurnReport, VerifiedReport,
};

use crate::answer::AnswerView;
use crate::ui::Ui;

/// Skills left out that are named one by one before a turn.
const OMITTED_SHOWN_MAX: usize = 5;

/// Options of a turn.
#[derive(Debug, clap::Args)]
pub(crate) struct TurnArgs {
    /// How skills get into the context.
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    mode: Mode,

    /// Where skills are placed.
    #[arg(long, value_enum, default_value_t = Place::Before)]
    placement: Place,

    /// The most tokens to generate.
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_tokens: u32,

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
    /// Graft, and compute the lines anew that the prompt is about.
    Repair,
    /// Begin on the graft, check against a full prefill, and correct.
    Verified,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Place {
    /// Before the prompt.
    Before,
    /// Behind the prompt.
    Tail,
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

impl TurnArgs {
    pub(crate) fn options(&self, use_skills: &[String], stop: &StopFlag) -> TurnOptions {
        TurnOptions {
            mode: match self.mode {
                Mode::Auto => TurnMode::Auto,
                Mode::Exact => TurnMode::Exact,
                Mode::Graft => TurnMode::Graft,
                Mode::Repair => TurnMode::Repair,
                Mode::Verified => TurnMode::Verified,
            },
            placement: match self.placement {
                Place::Before => Placement::Before,
                Place::Tail => Placement::Tail,
            },
            use_skills: use_skills.to_vec(),
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

/// Runs the turn; the answer appears as it is generated, where it is to be shown.
pub(crate) fn turn(
    conversation: &mut Conversation,
    prompt: &str,
    options: &TurnOptions,
    is_shown: bool,
    ui: &Ui,
) -> anyhow::Result<TurnReport> {
    let mut closed = None;
    let mut answer = AnswerView::new(ui, options.mode == TurnMode::Verified);
    let report = conversation.run_turn(prompt, options, &mut |event| {
        match event {
            TurnEvent::Activating { name, n_tokens } => {
                ui.status(&format!("activating {name} ({n_tokens} tokens)"));
            }
            TurnEvent::Activated(_) => ui.finish_progress(),
            TurnEvent::Text(_) | TurnEvent::Corrected { .. } if is_shown => {
                let shown = match event {
                    TurnEvent::Corrected { keep_bytes } => answer.correct(keep_bytes),
                    TurnEvent::Text(text) => answer.push(text),
                    _ => Ok(()),
                };
                if let Err(error) = shown {
                    closed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    if closed.is_none() {
        closed = answer.finish().err();
    }
    match closed {
        Some(error) => Err(error.into()),
        None => Ok(report),
    }
}

/// Says what was left out of the skills, and what works less well than it should.
pub(crate) fn say_what_is_odd(runtime: &Runtime, ui: &Ui) {
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

pub(crate) fn print_report(report: &TurnReport, load_ms: f64, ui: &Ui) {
    ui.line("");
    if report.activations.is_empty() && report.already.is_empty() {
        ui.field("skill", &format!("none: {}", report.choice.reason));
    }
    for already in &report.already {
        let place = already.position;
        ui.field("skill", &format!("{}: in the context already, from token {place}", already.name));
    }
    for patch in &report.patched {
        let told = if patch.told { " and told at the tail" } else { "" };
        let (n, of, took) = (patch.recomputed_tokens, patch.tokens, ms(patch.ms));
        let text = format!("{}: edited in place{told}, {n} of {of} tokens in {took}", patch.name);
        ui.field("changed", &text);
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
    if let Some(verified) = &report.verified {
        ui.field("verified", &describe_verified(verified));
    }
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
            if tokens == 0 {
                let n = activation.prefilled_tokens;
                return format!(
                    "none yet{why}: {n} tokens prefilled, kept as a block in {compile}"
                );
            }
            format!("compiled now in {compile}{why}, {tokens} tokens grafted in {graft}")
        }
        (place, _) => {
            let lookup = ms(activation.lookup_ms);
            let exact = if activation.exact { ", exact here" } else { "" };
            let anchor = activation.anchor;
            let repair = match activation.repaired_tokens {
                0 => String::new(),
                n => format!(", {n} of them computed anew in {}", ms(activation.repair_ms)),
            };
            format!(
                "from {place}, opened and checked in {lookup}, {tokens} tokens grafted in {graft} \
                 ({anchor} anchor{exact}){repair}"
            )
        }
    }
}

fn describe_verified(verified: &VerifiedReport) -> String {
    let VerifiedReport { prefilled_tokens, checked_tokens, prefill_ms, wait_ms, .. } = *verified;
    if verified.unchecked {
        return "no: the answer was stopped before it could be checked".to_owned();
    }
    if prefilled_tokens == 0 {
        return "all was exact from the beginning".to_owned();
    }
    let found = match verified.first_difference {
        None => format!("{checked_tokens} tokens checked, all right"),
        Some(at) => format!("{checked_tokens} tokens checked, corrected from token {}", at + 1),
    };
    let (prefill, wait) = (ms(prefill_ms), ms(wait_ms));
    format!("{found}; {prefilled_tokens} tokens prefilled beside it in {prefill}, waited {wait}")
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
pub(crate) fn ms(value: f64) -> String {
    match value {
        value if value < 0.1 => format!("{:.1} us", value * 1e3),
        value if value < 10.0 => format!("{value:.2} ms"),
        value if value < 10_000.0 => format!("{value:.0} ms"),
        value => format!("{:.1} s", value / 1e3),
    }
}
