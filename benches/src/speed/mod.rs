//! Speed: grafts against full prefill, and the machine beside them.
//!
//! **Invariant:** both ways of a comparison run in one process on the same token
//! ids, in turn, and every timed graft is checked to have been one. Tokenizing is
//! not timed, loading the model neither.

mod block;
mod peers;
mod rate;
mod session;
mod text;
mod turn;

use std::time::Instant;

use skillgraft_engine::Session;

use crate::error::Error;
use crate::machine;
use crate::peer::{Peer, PeerSpec};
use crate::report::{BenchReport, Machine};
use crate::stats::{median, percentile};
use crate::subject::Subject;
use crate::watch::Watch;

pub(crate) use text::Texts;

/// What is measured, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchPlan {
    /// Lengths of the blocks that are compiled, opened and grafted.
    pub block_lengths: Vec<usize>,
    /// Lengths of the skills in turns.
    pub turn_lengths: Vec<usize>,
    /// Lengths of the texts that are prefilled into an empty context.
    pub prefill_lengths: Vec<usize>,
    /// Contexts behind which tokens are decoded.
    pub decode_contexts: Vec<usize>,
    /// Turns and prefills timed, each.
    pub repeat: usize,
    /// Grafts timed for a block.
    pub n_grafts: usize,
    /// Whether a conversation of ten turns is measured, where the context has room.
    pub session: bool,
    /// Programs to measure beside.
    pub peers: Vec<PeerSpec>,
    /// Tokens timed for a decoding rate.
    pub n_decoded: usize,
}

impl BenchPlan {
    /// The usual plan.
    pub fn standard() -> Self {
        BenchPlan {
            block_lengths: vec![128, 256, 1024, 2048, 4096],
            // The shortest shows where grafting does not pay.
            turn_lengths: vec![64, 256, 1024, 4096],
            prefill_lengths: vec![32, 512, 2048],
            decode_contexts: vec![0, 1300],
            repeat: 9,
            n_grafts: 400,
            session: true,
            peers: Vec::new(),
            n_decoded: 64,
        }
    }

    /// A look in a few seconds.
    pub fn quick() -> Self {
        BenchPlan {
            block_lengths: vec![128, 1024],
            turn_lengths: vec![256, 1024],
            prefill_lengths: vec![32, 512],
            decode_contexts: vec![0],
            repeat: 3,
            n_grafts: 100,
            session: false,
            peers: Vec::new(),
            n_decoded: 16,
        }
    }

    /// Whether everything fits behind a prefix of `prefix_tokens` and `live_tokens`
    /// of a turn. Asked first, so that nothing fails after minutes.
    fn check(&self, texts: &Texts, limit: usize) -> Result<(), Error> {
        let around = texts.prefix.len() + texts.live_tokens();
        let blocks = self.block_lengths.iter().map(|&n| (n, 0));
        // Beside peers the skill is measured behind another text too.
        let has_peers = !self.peers.is_empty();
        let between = |n| if has_peers { peers::State::n_between(n) } else { 0 };
        let turns = self.turn_lengths.iter().map(|&n| (n, between(n)));
        let turns = blocks.chain(turns).map(|(n, between)| {
            (format!("a turn with a skill of {n} tokens"), around + between + n)
        });
        let prefills =
            self.prefill_lengths.iter().map(|&n| (format!("a prefill of {n} tokens"), n));
        let decodes = self.decode_contexts.iter();
        let decodes =
            decodes.map(|&n| (format!("decoding behind {n} tokens"), n + 2 + self.n_decoded));
        for (what, n_tokens) in turns.chain(prefills).chain(decodes) {
            if n_tokens > limit {
                return Err(Error::TooLong { what, n_tokens, limit });
            }
        }
        let least = texts.closing.len() + 1;
        match self.block_lengths.iter().chain(&self.turn_lengths).find(|&&n| n < least) {
            Some(&n_tokens) => Err(Error::TooShort { n_tokens, least }),
            None => Ok(()),
        }
    }
}

/// Measures speed. `command` is what the report says was run.
///
/// # Errors
/// When a workload does not fit into the context, a block cannot be kept on disk
/// or grafted, or the watch ends it.
///
/// # Panics
/// When the plan measures something zero times.
pub fn bench(
    subject: &Subject,
    plan: &BenchPlan,
    command: &str,
    watch: &mut Watch<'_>,
) -> Result<BenchReport, Error> {
    assert!(plan.repeat > 0 && plan.n_grafts > 0 && plan.n_decoded > 0, "nothing to measure");
    let model = &subject.model;
    if let Some(reason) = model.not_graftable() {
        return Err(Error::NotGrafted { reason: reason.to_owned() });
    }
    let texts = Texts::new(subject)?;
    plan.check(&texts, model.context_length() as usize)?;

    watch.step("measuring memory bandwidth")?;
    let threads = model.backend().cpu().threads();
    let n_stream_bytes = machine::stream_bytes();
    let mut read_gb_s = machine::read_rates(threads, n_stream_bytes);
    let is_counted = machine::reset_peak_rss();

    watch.step("prefilling the static prefix")?;
    let mut prefix = Session::new(std::sync::Arc::clone(model));
    prefix.prefill(&texts.prefix, "prefix", &watch.interrupt())?;

    let peers: Vec<Peer> = (plan.peers.iter())
        .map(|spec| Peer::open(spec, subject, watch))
        .collect::<Result<_, Error>>()?;
    let lab = Lab { texts: &texts, prefix: &prefix, plan, peers: &peers };
    let graft = each(&plan.block_lengths, |n| block::measure(&lab, n, watch))?;
    let workloads = each(&plan.turn_lengths, |n| turn::measure(&lab, n, watch))?;
    let room = model.context_length() as usize - texts.prefix.len();
    let session = (plan.session && session::n_tokens(&lab) <= room)
        .then(|| session::measure(&lab, watch))
        .transpose()?;
    let prefill = each(&plan.prefill_lengths, |n| rate::prefill(&lab, n, watch))?;
    let peak_before = machine::peak_rss_bytes("self");
    // Again beside what it limits: other programs come and go.
    read_gb_s.extend(machine::read_rates(threads, n_stream_bytes));
    let is_counted = machine::reset_peak_rss() && is_counted;
    let read_max_gb_s = percentile(&read_gb_s, 1.0);
    let decode = each(&plan.decode_contexts, |n| rate::decode(&lab, n, read_max_gb_s, watch))?;
    let machine = Machine {
        read_gb_s: Some(median(&read_gb_s)),
        read_max_gb_s: Some(read_max_gb_s),
        read_bytes: Some(n_stream_bytes),
        ..machine::describe(model)
    };
    Ok(BenchReport {
        run: machine::describe_run(subject, command),
        machine,
        peak_rss_bytes: peak_before.max(machine::peak_rss_bytes("self")).filter(|_| is_counted),
        model_bytes: std::fs::metadata(&subject.model_path).ok().map(|file| file.len()),
        peers: peers.iter().map(Peer::report).collect(),
        graft,
        workloads,
        session,
        prefill_tok_s: prefill.iter().map(|rate| (rate.tokens, rate.tok_s)).collect(),
        decode_tok_s: decode.iter().map(|rate| (rate.context, rate.tok_s)).collect(),
        prefill,
        decode,
    })
}

/// What all measurements share.
struct Lab<'a> {
    texts: &'a Texts,
    /// A context that holds the static prefix; measurements work on branches.
    prefix: &'a Session,
    plan: &'a BenchPlan,
    peers: &'a [Peer],
}

fn each<T>(
    lengths: &[usize],
    mut measure: impl FnMut(usize) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    lengths.iter().map(|&length| measure(length)).collect()
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
