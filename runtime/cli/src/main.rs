//! The `skillgraft` command: parse, call the library, print, exit.
//!
//! stdout is for data, stderr for everything else. Exit status: 0 done, 1 the
//! user's side, 2 ours, 130 interrupted.
#![forbid(unsafe_code)]

mod answer;
mod cmd;
mod error;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use skillgraft::StopFlag;

use crate::ui::Ui;

/// A local LLM runtime that treats Agent Skills as cached objects.
#[derive(Debug, Parser)]
#[command(name = "skillgraft", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Say less: no progress, no report.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Say more; twice for debugging.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer one prompt with the skills of some folders.
    Run(cmd::run::Args),
    /// Talk, turn after turn; skills that change meanwhile are noticed.
    Chat(cmd::chat::Args),
    /// List, show, check, search and add skills.
    #[command(subcommand)]
    Skills(cmd::skills::Command),
    /// Compile skills' blocks ahead of need.
    Compile(cmd::compile::Args),
    /// The compiled blocks, and what they have saved.
    #[command(subcommand)]
    Cache(cmd::cache::Command),
    /// Let a project's own skills be used.
    Trust(cmd::trust::Args),
    /// Fetch and list models.
    #[command(subcommand)]
    Model(cmd::model::Command),
    /// Measure speed: grafts against full prefill.
    Bench(cmd::bench::Args),
    /// Measure answers: grafts against full prefill.
    Fidelity(cmd::fidelity::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return error::report_usage(&usage),
    };
    let ui = Ui::new(cli.quiet);
    init_log(cli.verbose);
    let stop = stop_on_interrupt();
    let done = match cli.command {
        Command::Run(args) => cmd::run::run(&args, &ui, &stop),
        Command::Chat(args) => cmd::chat::run(&args, &ui, &stop),
        Command::Skills(command) => cmd::skills::run(command, &ui, &stop),
        Command::Compile(args) => cmd::compile::run(&args, &ui, &stop),
        Command::Cache(command) => cmd::cache::run(&command, &ui),
        Command::Trust(args) => cmd::trust::run(&args, &ui),
        Command::Model(command) => cmd::model::run(command, &ui, &stop),
        Command::Bench(args) => cmd::bench::run(&args, &ui, &stop),
        Command::Fidelity(args) => cmd::fidelity::run(&args, &ui, &stop),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::report(&error, &ui),
    }
}

/// Logs to stderr: warnings, or what `SKILLGRAFT_LOG` asks for.
fn init_log(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let level = match verbose {
        0 => "error",
        1 => "skillgraft=info,warn",
        _ => "skillgraft=debug,info",
    };
    let filter =
        EnvFilter::try_from_env("SKILLGRAFT_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
}

/// The first Ctrl-C asks the work to end, the second ends the process. Blocks
/// and models are written under other names first, so neither leaves a half one.
fn stop_on_interrupt() -> StopFlag {
    let stop = StopFlag::default();
    let flag = stop.clone();
    // Where no handler can be set, Ctrl-C ends the process as it always does.
    let _ = ctrlc::set_handler(move || {
        if flag.is_set() {
            std::process::exit(error::INTERRUPTED.into());
        }
        flag.stop();
    });
    stop
}
