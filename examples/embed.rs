//! Embedding the runtime: one question, with what the turn did.
//!
//! `cargo run --release -p skillgraft-examples --example embed -- "How do I roll back a deploy?"`
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::ops::ControlFlow;
use std::sync::Arc;

use skillgraft::{Runtime, Settings, TurnEvent, TurnOptions};

fn main() -> anyhow::Result<()> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "How do I undo a release?".to_owned());
    let skills = concat!(env!("CARGO_MANIFEST_DIR"), "/skills");
    let settings = Settings::from_env()?.with_skills([skills]);
    let runtime = Arc::new(Runtime::open(&settings, &mut |event| eprintln!("{event:?}"))?);
    let mut conversation = runtime.conversation()?;

    let report = conversation.run_turn(&prompt, &TurnOptions::default(), &mut |event| {
        if let TurnEvent::Text(text) = event {
            print!("{text}");
        }
        ControlFlow::Continue(())
    })?;

    println!("\n\n{} tokens grafted, {} prefilled", report.tokens.grafted, report.tokens.prefilled);
    for segment in conversation.ledger().segments() {
        let (start, end) = (segment.span.start, segment.span.end());
        println!("{start:>6}..{end:<6} {:<24} {:?}", segment.label, segment.origin);
    }
    Ok(())
}
