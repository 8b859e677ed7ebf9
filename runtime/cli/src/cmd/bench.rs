//! `skillgraft bench`: speed, grafts against full prefill.

use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use skillgraft::StopFlag;
use skillgraft_bench::{BenchPlan, PeerSpec, Subject, Watch, bench, bench_page, bench_table};

use super::fidelity::{cannot_write, create};
use super::{Common, command_line};
use crate::ui::Ui;

/// Arguments of `skillgraft bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// Measure less, in some seconds.
    #[arg(long)]
    quick: bool,

    /// Tokens of the skills [default: 64 to 4096].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    lengths: Vec<u32>,

    /// Turns and prefills timed, each [default: 9].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeat: Option<u16>,

    /// What is measured beside blocks and rates [default: all that fits the context].
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',')]
    workloads: Vec<Workload>,

    /// A program to measure beside, in turn with ours on the same model file and token
    /// ids: `llama-server=URL` of one that runs, or `llama-server=PATH` to start one;
    /// may be given several times.
    #[arg(long = "peer", value_name = "NAME=URL|PATH")]
    peers: Vec<PeerSpec>,

    /// Write the report as a page of HTML into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// A turn that activates a skill, by the skill's length.
    Turns,
    /// A conversation of ten turns with five skills, one of which is edited.
    Session,
}

pub(crate) fn run(args: &Args, ui: &Ui, stop: &StopFlag) -> anyhow::Result<()> {
    let settings = args.common.settings(stop)?;
    // A file that cannot be written should not cost minutes first.
    let html = args.html.as_deref().map(create).transpose()?;
    let subject = Subject::open(&settings, &mut |event| ui.opening(event))?;
    let mut watch = Watch { stop, progress: &mut |text| ui.status(text) };
    let report = bench(&subject, &args.plan(), &command_line(), &mut watch)?;
    ui.finish_progress();
    if let Some((mut file, path)) = html {
        let page = bench_page(&report)?;
        file.write_all(page.as_bytes()).map_err(|source| cannot_write(path, source))?;
    }
    if args.json { ui.json(&report) } else { Ok(ui.data(&bench_table(&report))?) }
}

impl Args {
    fn plan(&self) -> BenchPlan {
        let mut plan = if self.quick { BenchPlan::quick() } else { BenchPlan::standard() };
        plan.peers.clone_from(&self.peers);
        if !self.lengths.is_empty() {
            let lengths: Vec<usize> = self.lengths.iter().map(|&n| n as usize).collect();
            plan.block_lengths.clone_from(&lengths);
            plan.turn_lengths = lengths;
        }
        if !self.workloads.is_empty() {
            plan.session = self.workloads.contains(&Workload::Session);
            if !self.workloads.contains(&Workload::Turns) {
                plan.turn_lengths.clear();
            }
        }
        if let Some(repeat) = self.repeat {
            plan.repeat = repeat.into();
        }
        plan
    }
}
