//! `skillgraft compile`: blocks ahead of need.

use serde::Serialize;
use skillgraft::skills::SkillIdx;
use skillgraft::{Error, Runtime, StopFlag};

use super::Common;
use super::turn::{ms, say_what_is_odd};
use crate::ui::Ui;

/// Arguments of `skillgraft compile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Skills to compile.
    #[arg(required_unless_present = "all")]
    names: Vec<String>,

    /// Compile all skills.
    #[arg(long, conflicts_with = "names")]
    all: bool,

    #[command(flatten)]
    common: Common,

    /// Print a JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    tokens: usize,
    bytes: usize,
    ms: f64,
    anchor: &'static str,
    /// `compiled`, `present` or `not_kept`.
    status: &'static str,
}

pub(crate) fn run(args: &Args, ui: &Ui, stop: &StopFlag) -> anyhow::Result<()> {
    let settings = args.common.settings(stop)?;
    let runtime = Runtime::open(&settings, &mut |event| ui.opening(event))?;
    say_what_is_odd(&runtime, ui);
    let catalog = runtime.catalog();
    let skills: Vec<SkillIdx> = if args.all {
        (0..catalog.len()).map(SkillIdx).collect()
    } else {
        // All names before the first block: a mistyped one should not come late.
        let found = args.names.iter().map(|name| catalog.resolve(name).map_err(Error::from));
        found.collect::<Result<_, _>>()?
    };
    for skill in skills {
        ui.status_on_terminal(&format!("compiling {}", catalog.get(skill).id));
        let warmed = match runtime.warm(&catalog, skill, stop) {
            Ok(warmed) => warmed,
            Err(error @ Error::Interrupted) => return Err(error.into()),
            Err(error) => {
                ui.warning(&format!("`{}` is not compiled: {error}", catalog.get(skill).id));
                continue;
            }
        };
        let line = Line {
            name: &warmed.name,
            tokens: warmed.n_tokens,
            bytes: runtime.model().kv_geometry().bytes(warmed.n_tokens),
            ms: warmed.ms,
            anchor: warmed.anchor.name(),
            status: match (&warmed.not_kept, warmed.was_there) {
                (Some(_), _) => "not_kept",
                (None, true) => "present",
                (None, false) => "compiled",
            },
        };
        if args.json {
            ui.data(&format!("{}\n", serde_json::to_string(&line)?))?;
        } else {
            let (name, tokens, took) = (line.name, line.tokens, ms(line.ms));
            ui.data(&format!("{name:<28} {tokens:>6} tokens  {} {took}\n", line.status))?;
        }
    }
    Ok(())
}
