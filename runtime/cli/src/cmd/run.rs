//! `skillgraft run`: one turn.

use std::ops::ControlFlow;
use std::sync::Arc;

use skillgraft::{
    Conversation, Error, FullPrefill, Runtime, StopFlag, TurnMode, TurnOptions, TurnReport,
};

use super::Common;
use super::turn::{TurnArgs, print_report, say_what_is_odd, turn};
use crate::ui::Ui;

/// Arguments of `skillgraft run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask. `$name` in it forces the skill of that name.
    prompt: String,

    #[command(flatten)]
    common: Common,

    /// Use this skill, or `skill/path` of a file, instead of searching; may be given
    /// several times.
    #[arg(long = "use", value_name = "NAME")]
    use_skills: Vec<String>,

    /// Measure the same turn with a full prefill too.
    #[arg(long)]
    compare: bool,

    /// Print one JSON object instead of the answer.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    turn: TurnArgs,
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
    if let Some(cut) = &conversation.prefix().catalog.cut {
        ui.field("catalog", cut);
    }
    let untouched = args.compare.then(|| conversation.branch());

    let options = args.turn.options(&args.use_skills, stop);
    let mut report = turn(&mut conversation, &args.prompt, &options, !args.json, ui)?;
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
    if stop.is_set() {
        return Err(Error::Interrupted.into());
    }
    ui.status_on_terminal("compiling for later contexts; Ctrl-C leaves it");
    // The answer is out: what is not compiled now will be when it is needed.
    if let Err(error) = runtime.work_off(stop, &mut |_| {}) {
        tracing::info!(%error, "not compiled ahead of need");
    }
    ui.finish_progress();
    Ok(())
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
