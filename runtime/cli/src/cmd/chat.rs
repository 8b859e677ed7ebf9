//! `skillgraft chat`: turn after turn in one conversation, while the skills may
//! change.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use skillgraft::skills::{ChangeKind, WatchOptions};
use skillgraft::{Error, Runtime, SkillEvent, StopFlag};

use super::Common;
use super::turn::{TurnArgs, ms, print_report, say_what_is_odd, turn};
use crate::ui::Ui;

/// Arguments of `skillgraft chat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    turn: TurnArgs,
}

pub(crate) fn run(args: &Args, ui: &Ui, stop: &StopFlag) -> anyhow::Result<()> {
    let settings = args.common.settings(stop)?;
    let runtime = Arc::new(Runtime::open(&settings, &mut |event| ui.opening(event))?);
    say_what_is_odd(&runtime, ui);
    let (tell, events) = channel();
    let _watch = runtime.watch(WatchOptions::default(), move |event| {
        // Nobody listens any more once the conversation has ended.
        let _ = tell.send(event);
    })?;
    let mut conversation = runtime.conversation()?;
    if let Some(cut) = &conversation.prefix().catalog.cut {
        ui.field("catalog", cut);
    }
    let n_skills = runtime.catalog().len();
    ui.line(&format!("{n_skills} skills; end with Ctrl-D, an answer with Ctrl-C"));

    let mut lines = std::io::stdin().lock().lines();
    loop {
        say_events(&events, ui);
        ui.prompt("> ");
        let Some(line) = lines.next().transpose()? else { return Ok(()) };
        say_events(&events, ui);
        let prompt = line.trim();
        if prompt.is_empty() {
            continue;
        }
        let options = args.turn.options(&[], stop);
        match turn(&mut conversation, prompt, &options, true, ui) {
            Ok(report) => {
                ui.data("\n")?;
                print_report(&report, runtime.load_ms(), ui);
            }
            Err(error) if is_of_the_turn(&error) => {
                crate::error::report(&error, ui);
            }
            Err(error) => return Err(error),
        }
        stop.clear();
    }
}

/// Whether the conversation can go on after an error: with another prompt it may
/// work.
fn is_of_the_turn(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(Error::is_user_error)
}

/// Says what has happened to the skills meanwhile.
fn say_events(events: &Receiver<SkillEvent>, ui: &Ui) {
    for event in events.try_iter() {
        match event {
            SkillEvent::Changed(changes) => {
                for change in changes {
                    let what = match change.kind {
                        ChangeKind::Added => "added",
                        ChangeKind::Removed => "removed",
                        ChangeKind::Changed { front_matter_only: true } => {
                            "changed, its text is as it was"
                        }
                        ChangeKind::Changed { front_matter_only: false } => "changed",
                    };
                    ui.field("skill", &format!("{}: {what}", change.id));
                }
            }
            SkillEvent::Warmed(warmed) => {
                let (tokens, took) = (warmed.n_tokens, ms(warmed.ms));
                let anchor = warmed.anchor.name();
                let edited = warmed.edited_ms.map_or_else(String::new, |after| {
                    format!("; one that will do was made after {}", ms(after))
                });
                let text = format!(
                    "{}: compiled in {took} behind the {anchor} anchor, {tokens} tokens{edited}",
                    warmed.name
                );
                ui.field("block", &text);
            }
            SkillEvent::NotWarmed(error) => ui.warning(&format!("not compiled: {error}")),
            SkillEvent::Notice(notice) => ui.warning(&notice),
            _ => {}
        }
    }
}
