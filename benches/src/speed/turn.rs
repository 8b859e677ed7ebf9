//! Turns: time to the first token with and without a graft.

use std::collections::BTreeMap;
use std::time::Instant;

use skillgraft::store::DirStore;
use skillgraft_engine::{Activated, Activation, BlockOrigin, Mode, activate};
use skillgraft_kv::{BlockStore, Tier, TokenId};

use super::block::BlockFolder;
use super::{Lab, ms_since};
use crate::divergence::divergence;
use crate::error::Error;
use crate::report::{Agreement, ModeTiming, Ratio, Workload};
use crate::stats::{median, median_interval, percentile};
use crate::watch::Watch;

/// How the skill gets into the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One prefill of the whole turn: the fastest that full prefill can be.
    Exact,
    /// The block is opened and checked in the turn.
    Disk,
    /// The block is open already.
    Memory,
}

impl Way {
    const ALL: [Way; 3] = [Way::Exact, Way::Disk, Way::Memory];

    const fn name(self) -> &'static str {
        match self {
            Way::Exact => "exact",
            Way::Disk => "graft_disk",
            Way::Memory => "graft_memory",
        }
    }
}

/// One turn, up to the logits of its first token.
struct Turn {
    ttft_ms: f64,
    lookup_ms: f64,
    graft_ms: f64,
    prefilled: usize,
    grafted: usize,
    logits: Vec<f32>,
}

/// A skill of a workload.
struct Skill<'a> {
    tokens: &'a [TokenId],
    folder: &'a BlockFolder,
    /// A store that has the block open.
    open: DirStore,
}

/// Measures turns with a skill of `n_tokens`, the three ways in turn.
pub(super) fn measure(
    lab: &Lab<'_>,
    n_tokens: usize,
    watch: &mut Watch<'_>,
) -> Result<Workload, Error> {
    let tokens = lab.texts.block(n_tokens);
    let folder = BlockFolder::create(lab, &lab.texts.source(&tokens), watch)?;
    let skill = Skill { tokens: &tokens, folder: &folder, open: folder.fresh_store() };
    // The first round warms caches, and opens the block in `skill.open`.
    skill.open.get(&lab.texts.source(&tokens).key(lab.prefix.model()));
    for way in Way::ALL {
        take(lab, &skill, way, watch)?;
    }
    let mut turns: [Vec<Turn>; 3] = Default::default();
    for round in 0..lab.plan.repeat {
        watch.step(&format!(
            "turns with a skill of {n_tokens} tokens, round {} of {}",
            round + 1,
            lab.plan.repeat
        ))?;
        // Each way comes first in its turn, so that none profits from its place.
        for place in 0..Way::ALL.len() {
            let way = (round + place) % Way::ALL.len();
            turns[way].push(take(lab, &skill, Way::ALL[way], watch)?);
        }
    }
    let [exact, disk, memory] = &turns;
    let first = divergence(&exact[0].logits, &disk[0].logits);
    Ok(Workload {
        name: format!("skill-{n_tokens}"),
        skill_tokens: n_tokens,
        prefix_tokens: lab.texts.prefix.len(),
        live_tokens: lab.texts.live_tokens(),
        ours: Way::ALL
            .iter()
            .map(|way| way.name())
            .zip(turns.iter().map(|turns| timing(turns)))
            .collect(),
        peers: BTreeMap::new(),
        ratio: ratio(exact, disk),
        ratio_memory: ratio(exact, memory),
        agreement: Agreement { top1: first.same_top1, kl: first.kl },
    })
}

fn take(lab: &Lab<'_>, skill: &Skill<'_>, way: Way, watch: &Watch<'_>) -> Result<Turn, Error> {
    match way {
        Way::Exact => exact_turn(lab, skill, watch),
        Way::Disk => graft_turn(lab, skill, &skill.folder.fresh_store(), Tier::Disk, watch),
        Way::Memory => graft_turn(lab, skill, &skill.open, Tier::Memory, watch),
    }
}

fn exact_turn(lab: &Lab<'_>, skill: &Skill<'_>, watch: &Watch<'_>) -> Result<Turn, Error> {
    let texts = lab.texts;
    let tokens = [&texts.opening, skill.tokens, &texts.message].concat();
    let mut session = lab.prefix.branch();
    let started = Instant::now();
    let logits = session.prefill(&tokens, "turn", &watch.interrupt())?;
    Ok(Turn {
        ttft_ms: ms_since(started),
        lookup_ms: 0.0,
        graft_ms: 0.0,
        prefilled: tokens.len(),
        grafted: 0,
        logits: logits.expect("a turn has tokens"),
    })
}

fn graft_turn(
    lab: &Lab<'_>,
    skill: &Skill<'_>,
    store: &dyn BlockStore,
    tier: Tier,
    watch: &Watch<'_>,
) -> Result<Turn, Error> {
    let texts = lab.texts;
    let source = texts.source(skill.tokens);
    let activation = Activation { label: "skill", header: &texts.opening, sources: &[source] };
    let interrupt = watch.interrupt();
    let mut session = lab.prefix.branch();
    let started = Instant::now();
    let activated = activate(&mut session, store, &activation, Mode::Graft, &interrupt)?;
    let logits = session.prefill(&texts.message, "message", &interrupt)?;
    let ttft_ms = ms_since(started);
    check(&activated, tier)?;
    Ok(Turn {
        ttft_ms,
        lookup_ms: activated.lookup_ms,
        graft_ms: activated.graft_ms,
        prefilled: activated.prefilled_tokens + texts.message.len(),
        grafted: activated.grafted_tokens,
        logits: logits.expect("a message has tokens"),
    })
}

/// What was timed must have been a graft of a block from where it should come.
fn check(activated: &Activated, tier: Tier) -> Result<(), Error> {
    if activated.block == Some(BlockOrigin::Found(tier)) {
        return Ok(());
    }
    let reason = activated.fallback.clone();
    let reason = reason.unwrap_or_else(|| format!("the block came from {:?}", activated.block));
    Err(Error::NotGrafted { reason })
}

fn timing(turns: &[Turn]) -> ModeTiming {
    let of = |value: fn(&Turn) -> f64| -> Vec<f64> { turns.iter().map(value).collect() };
    let ttft_ms = of(|turn| turn.ttft_ms);
    ModeTiming {
        ttft_ms: median(&ttft_ms),
        ttft_min_ms: percentile(&ttft_ms, 0.0),
        ttft_max_ms: percentile(&ttft_ms, 1.0),
        n: turns.len(),
        prefilled: turns[0].prefilled,
        grafted: turns[0].grafted,
        lookup_ms: median(&of(|turn| turn.lookup_ms)),
        graft_ms: median(&of(|turn| turn.graft_ms)),
    }
}

/// How many times slower `slow` is, round by round.
fn ratio(slow: &[Turn], fast: &[Turn]) -> Ratio {
    let ratios: Vec<f64> =
        slow.iter().zip(fast).map(|(slow, fast)| slow.ttft_ms / fast.ttft_ms).collect();
    let interval = median_interval(&ratios);
    Ratio {
        median: interval.median,
        low: interval.low,
        high: interval.high,
        coverage: interval.coverage,
        n: ratios.len(),
    }
}
