//! The reports, in the names of the commands' JSON.
//!
//! **Invariant:** keys stay once they are released; more may be added. Durations
//! end in `_ms`, sizes in `_bytes`; what was not measured is `null`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::fidelity::Setting;
use crate::stats::Interval;

mod edits;
mod session;

pub use edits::{EditMethodReport, EditsReport, PairMethod, PairsReport};
pub use session::{SessionReport, SessionTiming, SessionTurn};

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// Version of the program.
    pub version: &'static str,
    /// Id or file name of the model.
    pub model: String,
    /// BLAKE3 of the model file.
    pub model_blake3: String,
    /// Element type of the KV cache.
    pub kv_dtype: &'static str,
    /// Context limit in tokens.
    pub context: u32,
}

/// What it was run on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Instruction set architecture.
    pub arch: &'static str,
    /// Operating system.
    pub os: &'static str,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Instruction set of the kernels.
    pub isa: &'static str,
    /// Threads of the kernels.
    pub threads: usize,
    /// Median rate at which the threads together read memory, in 1e9 bytes per
    /// second.
    pub read_gb_s: Option<f64>,
    /// The best rate seen.
    pub read_max_gb_s: Option<f64>,
    /// Size of the buffer that was read.
    pub read_bytes: Option<usize>,
}

/// Speed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchReport {
    /// What was run.
    pub run: Run,
    /// What it was run on.
    pub machine: Machine,
    /// The most memory that this process has had resident, the buffer that measures
    /// bandwidth not counted; `None` where the system cannot leave it out.
    pub peak_rss_bytes: Option<u64>,
    /// Bytes of the model file.
    pub model_bytes: Option<u64>,
    /// Programs that were measured beside it.
    pub peers: Vec<PeerReport>,
    /// Blocks: what compiling, keeping, opening and grafting them takes.
    pub graft: Vec<GraftTiming>,
    /// Turns with a skill, in several modes.
    pub workloads: Vec<Workload>,
    /// A conversation of ten turns; `None` when it was not asked for, or the context
    /// has no room for it.
    pub session: Option<SessionReport>,
    /// Tokens per second by the number of tokens prefilled.
    pub prefill_tok_s: BTreeMap<usize, f64>,
    /// Tokens per second by the number of tokens in the context.
    pub decode_tok_s: BTreeMap<usize, f64>,
    /// Prefill in detail.
    pub prefill: Vec<PrefillRate>,
    /// Decoding in detail.
    pub decode: Vec<DecodeRate>,
}

/// A peer: another program that was measured beside ours.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PeerReport {
    /// What it is called.
    pub name: String,
    /// What it says its version is.
    pub version: Option<String>,
    /// How we started it, without folders; `None` when it ran already.
    pub command: Option<String>,
    /// The model file that it says it serves.
    pub model: Option<String>,
    /// Median time of a request that does nothing: part of its every TTFT, and of
    /// none of ours.
    pub http_ms: f64,
    /// The most memory it has had resident; `None` when it is not our child.
    pub peak_rss_bytes: Option<u64>,
    /// What else must be known of it.
    pub notes: Vec<String>,
}

/// A peer in one state of its cache, on the same turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerTiming {
    /// Median wall time over HTTP to the first token.
    pub ttft_ms: f64,
    /// The fastest.
    pub ttft_min_ms: f64,
    /// The slowest.
    pub ttft_max_ms: f64,
    /// Turns timed.
    pub n: usize,
    /// Tokens that it says it prefilled.
    pub prefilled: usize,
    /// Tokens that it says it had cached.
    pub cached: usize,
    /// Median of what it says the prefill took, HTTP and sampling excluded.
    pub prompt_ms: f64,
    /// The peer over our `graft_disk` (`graft_disk_moved` for `moved-behind`), pair by
    /// pair; below 1 the peer is faster.
    pub ratio: Ratio,
    /// The same over `graft_memory`.
    pub ratio_memory: Option<Ratio>,
    /// The same over `exact`.
    pub ratio_exact: Option<Ratio>,
    /// First tokens of the greedy answers, `graft_disk` against the peer, that are
    /// equal.
    pub equal_tokens: usize,
    /// Tokens that were generated for that.
    pub compared_tokens: usize,
}

/// A rate of a peer, on the same tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerRate {
    /// Median tokens per second, as it says.
    pub tok_s: f64,
    /// The slowest.
    pub min_tok_s: f64,
    /// The fastest.
    pub max_tok_s: f64,
    /// Ours over the peer's, pair by pair; below 1 the peer is faster.
    pub ratio: Ratio,
}

/// One block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraftTiming {
    /// Its length.
    pub tokens: usize,
    /// Its K and V.
    pub block_bytes: usize,
    /// Prefilling its tokens behind the anchor.
    pub compile_ms: f64,
    /// Writing it to disk durably.
    pub write_ms: f64,
    /// Opening, mapping and checking it, the file in the page cache; median.
    pub open_ms: f64,
    /// The graft of the open block: median.
    pub graft_ms: f64,
    /// The fastest graft.
    pub graft_min_ms: f64,
    /// The graft that 95 % are faster than.
    pub graft_p95_ms: f64,
    /// Grafts timed.
    pub n: usize,
    /// Resident memory that a further session with the same block adds, after it
    /// has computed a question behind it; mean of some sessions.
    pub session_rss_bytes: Option<i64>,
    /// The live page that holds the question's KV: what such a session needs for
    /// itself, at most.
    pub page_bytes: usize,
}

/// A turn: static prefix in the context, then a skill, then a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// Length of the skill's block.
    pub skill_tokens: usize,
    /// Length of the static prefix.
    pub prefix_tokens: usize,
    /// Tokens of the turn outside the block, prefilled in every mode.
    pub live_tokens: usize,
    /// Each mode: `exact` is one prefill of all tokens of the turn, `graft_disk`
    /// opens and checks the block first, `graft_memory` finds it open; beside peers,
    /// `graft_disk_moved` prefills another text before the skill.
    pub ours: BTreeMap<&'static str, ModeTiming>,
    /// Other programs, by name and state of their cache: `NAME/cold`, `NAME/prefix`
    /// (has the static prefix), `NAME/skill` (has prefix and skill), `NAME/moved-left`
    /// and `NAME/moved-behind` (`--cache-reuse`, with the skill behind another text).
    pub peers: BTreeMap<String, PeerTiming>,
    /// `exact` over `graft_disk`, pair by pair.
    pub ratio: Ratio,
    /// `exact` over `graft_memory`, pair by pair.
    pub ratio_memory: Ratio,
    /// The first token's logits, `exact` against `graft_disk`.
    pub agreement: Agreement,
}

/// One mode of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModeTiming {
    /// Median time to the first token's logits, from token ids in hand.
    pub ttft_ms: f64,
    /// The fastest.
    pub ttft_min_ms: f64,
    /// The slowest.
    pub ttft_max_ms: f64,
    /// Turns timed.
    pub n: usize,
    /// Tokens prefilled in a turn.
    pub prefilled: usize,
    /// Tokens grafted in a turn.
    pub grafted: usize,
    /// Finding, opening and checking the block: median.
    pub lookup_ms: f64,
    /// The graft itself: median.
    pub graft_ms: f64,
}

/// How many times faster, with an interval of order statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Median of the pairs.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the true median: 0.95 or more from 6
    /// pairs on.
    pub coverage: f64,
    /// Pairs.
    pub n: usize,
}

/// Whether two modes begin the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Agreement {
    /// Whether the most likely first token is the same.
    pub top1: bool,
    /// KL of the first token's distributions, exact to graft, in nats.
    pub kl: f64,
}

/// Prefill of a text into an empty context.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrefillRate {
    /// Its length.
    pub tokens: usize,
    /// Median tokens per second.
    pub tok_s: f64,
    /// The slowest.
    pub min_tok_s: f64,
    /// The fastest.
    pub max_tok_s: f64,
    /// Prefills timed.
    pub n: usize,
    /// 1e9 floating-point operations per second in matrix products: two for each
    /// weight and token; logits count for the last token only.
    pub gflop_s: f64,
    /// Peers, by name.
    pub peers: BTreeMap<String, PeerRate>,
}

/// Decoding, one token after another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecodeRate {
    /// Tokens in the context when decoding began.
    pub context: usize,
    /// Median tokens per second.
    pub tok_s: f64,
    /// Median time per output token.
    pub tpot_ms: f64,
    /// The fastest token.
    pub tpot_min_ms: f64,
    /// The time that 95 % of the tokens stay below.
    pub tpot_p95_ms: f64,
    /// Tokens timed.
    pub n: usize,
    /// Weights that a token reads.
    pub weight_bytes: Option<usize>,
    /// K and V that a token reads.
    pub kv_bytes: usize,
    /// Tokens per second if only reading them took time, at the best rate seen.
    pub limit_tok_s: Option<f64>,
    /// The part of this limit that was reached.
    pub limit_fraction: Option<f64>,
    /// Peers, by name.
    pub peers: BTreeMap<String, PeerRate>,
}

/// Answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FidelityReport {
    /// What was run.
    pub run: Run,
    /// What it was run on.
    pub machine: Machine,
    /// The evaluation set: its folder's name, or `built-in`.
    pub evalset: String,
    /// What the contexts are like.
    pub setting: Setting,
    /// Full prefill against itself.
    pub noise_floor: NoiseFloor,
    /// Each mode against full prefill.
    pub modes: BTreeMap<&'static str, MethodReport>,
    /// Every case, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cases: Option<Vec<CaseRecord>>,
}

/// A second full prefill of the same token ids, cut into other chunks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NoiseFloor {
    /// Tokens in a chunk of the second prefill.
    pub chunk_tokens: usize,
    /// Mean KL, over the positions of answers and continuations.
    pub kl_mean: f64,
    /// The largest.
    pub kl_max: f64,
    /// Share of positions with the same most likely token.
    pub top1: f64,
    /// Positions compared.
    pub positions: usize,
}

/// One mode on all cases. KL in nats, full prefill to this mode; intervals are
/// 95 % bootstraps over cases.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MethodReport {
    /// Cases.
    pub cases: usize,
    /// The positions of the gold answers.
    #[serde(flatten)]
    pub answer: Positions,
    /// Share of cases in which every gold token is the most likely one.
    pub em: f64,
    /// Interval of `em`.
    pub em_interval: Interval,
    /// The same of full prefill.
    pub em_exact: f64,
    /// Share of the grafted tokens that were computed anew.
    pub recomputed: f64,
    /// Tokens that were neither prefilled nor computed anew, mean of the cases.
    pub saved_tokens: f64,
    /// What the first token came earlier than by full prefill, median of the cases.
    pub saved_ms: f64,
    /// Length of the greedy continuation that is full prefill's, mean of the cases.
    pub equal_run: f64,
    /// Median time to the first token's logits, from the skill's header on.
    pub ttft_ms: f64,
    /// The positions of full prefill's own greedy continuation.
    pub greedy: Positions,
}

/// Some positions of all cases.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Positions {
    /// How many.
    pub positions: usize,
    /// Mean KL.
    pub kl_mean: f64,
    /// Interval of `kl_mean`.
    pub kl_mean_interval: Interval,
    /// The KL that 95 % of the positions stay below.
    pub kl_p95: f64,
    /// The KL that 99 % of the positions stay below.
    pub kl_p99: f64,
    /// The largest KL.
    pub kl_max: f64,
    /// Share of positions with the same most likely token.
    pub top1: f64,
    /// Interval of `top1`.
    pub top1_interval: Interval,
    /// Positions with another most likely token and a KL above 1.
    pub catastrophic: usize,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseRecord {
    /// Its name in the evaluation set.
    pub id: String,
    /// What is asked.
    pub question: String,
    /// The gold answer.
    pub answer: String,
    /// Full prefill's own greedy continuation.
    pub continuation: String,
    /// Length of the skill's block.
    pub block_tokens: usize,
    /// Tokens of the gold answer.
    pub answer_tokens: usize,
    /// Each mode.
    pub modes: BTreeMap<&'static str, CaseMethod>,
}

/// One case in one mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseMethod {
    /// KL at the positions of the gold answer.
    pub kl: Vec<f64>,
    /// Whether the most likely token is full prefill's, at the same positions.
    pub top1: Vec<bool>,
    /// Whether every gold token is the most likely one.
    pub em: bool,
    /// KL at the positions of full prefill's greedy continuation.
    pub greedy_kl: Vec<f64>,
    /// Whether the most likely token is full prefill's, at the same positions.
    pub greedy_top1: Vec<bool>,
    /// Time to the first token's logits, from the skill's header on.
    pub ttft_ms: f64,
    /// Tokens that were grafted.
    pub grafted: usize,
    /// Of these, tokens that were computed anew.
    pub recomputed: usize,
}

#[cfg(test)]
pub(crate) mod tests;
