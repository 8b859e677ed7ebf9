//! Turns: time to the first token with and without a graft.

use std::collections::BTreeMap;
use std::time::Instant;

use skillgraft::store::DirStore;
use skillgraft_engine::{Activated, Activation, BlockOrigin, Mode, Session, activate};
use skillgraft_kv::{BlockStore, Tier, TokenId};

use super::block::BlockFolder;
use super::peers::{self, Ours, State};
use super::{Lab, ms_since};
use crate::divergence::divergence;
use crate::error::Error;
use crate::peer::Answer;
use crate::report::{Agreement, ModeTiming, PeerTiming, Workload};
use crate::stats::{median, percentile};
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
    /// As `Disk`, with another text between prefix and skill, which is prefilled.
    DiskMoved,
}

impl Way {
    const ALL: [Way; 4] = [Way::Exact, Way::Disk, Way::Memory, Way::DiskMoved];

    const fn name(self) -> &'static str {
        match self {
            Way::Exact => "exact",
            Way::Disk => "graft_disk",
            Way::Memory => "graft_memory",
            Way::DiskMoved => "graft_disk_moved",
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

/// One of the ways, ours or a peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Ours(Way),
    /// Index of the peer, and its state.
    Peer(usize, State),
}

/// What alternates: ours, a peer, ours, a peer.
fn contenders(lab: &Lab<'_>, n_tokens: usize) -> Vec<Contender> {
    let states = State::of_length(n_tokens);
    let with_moved = !lab.peers.is_empty() && states.contains(&State::MovedBehind);
    let ours = Way::ALL.into_iter().filter(|&way| way != Way::DiskMoved || with_moved);
    let mut ours = ours.map(Contender::Ours);
    let mut peers = (0..lab.peers.len())
        .flat_map(|peer| states.iter().map(move |&state| Contender::Peer(peer, state)));
    let mut all = Vec::new();
    loop {
        let pair = [ours.next(), peers.next()];
        if pair == [None, None] {
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

/// The turns of every contender.
#[derive(Default)]
struct Rounds {
    ours: BTreeMap<&'static str, Vec<Turn>>,
    peers: BTreeMap<String, Vec<Answer>>,
}

impl Rounds {
    fn ttft_ms(&self, way: Way) -> Vec<f64> {
        self.ours.get(way.name()).into_iter().flatten().map(|turn| turn.ttft_ms).collect()
    }

    fn take(
        &mut self,
        lab: &Lab<'_>,
        skill: &Skill<'_>,
        contender: Contender,
        n_predict: usize,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        match contender {
            Contender::Ours(way) => {
                let turn = take(lab, skill, way, watch)?;
                self.ours.entry(way.name()).or_default().push(turn);
            }
            Contender::Peer(idx, state) => {
                let peer = &lab.peers[idx];
                let name = format!("{}/{}", peer.name(), state.name());
                watch.step(&format!("{name}, a skill of {} tokens", skill.tokens.len()))?;
                let answer = peers::turn(lab, peer, state, skill.tokens, n_predict)?;
                self.peers.entry(name).or_default().push(answer);
            }
        }
        Ok(())
    }

    /// Each peer's times against ours.
    fn against_peers(&self, said: &Rounds, answer: &[u32]) -> BTreeMap<String, PeerTiming> {
        let of = |way| self.ttft_ms(way);
        let (disk, memory, exact) = (of(Way::Disk), of(Way::Memory), of(Way::Exact));
        let moved = of(Way::DiskMoved);
        let timings = self.peers.iter().map(|(name, turns)| {
            let ours = if name.ends_with(State::MovedBehind.name()) {
                Ours { disk: &moved, memory: None, exact: None, answer: &[] }
            } else {
                Ours { disk: &disk, memory: Some(&memory), exact: Some(&exact), answer }
            };
            (name.clone(), peers::timing(turns, &said.peers[name][0].tokens, &ours))
        });
        timings.collect()
    }
}

/// Measures turns with a skill of `n_tokens`, all ways in turn.
pub(super) fn measure(
    lab: &Lab<'_>,
    n_tokens: usize,
    watch: &mut Watch<'_>,
) -> Result<Workload, Error> {
    let tokens = lab.texts.block(n_tokens);
    let folder = BlockFolder::create(lab, &lab.texts.source(&tokens), watch)?;
    let skill = Skill { tokens: &tokens, folder: &folder, open: folder.fresh_store() };
    // The first round warms caches, opens the block in `skill.open`, and lets peers
    // say more than a token.
    skill.open.get(&lab.texts.source(&tokens).key(lab.prefix.model()));
    let contenders = contenders(lab, n_tokens);
    let mut warm_up = Rounds::default();
    for &contender in &contenders {
        warm_up.take(lab, &skill, contender, peers::N_COMPARED, watch)?;
    }
    let answer = greedy(lab, &skill, watch)?;
    let mut rounds = Rounds::default();
    let started = Instant::now();
    let mut n_rounds = 0;
    while peers::goes_on(lab, n_rounds, started) {
        watch.step(&format!(
            "turns with a skill of {n_tokens} tokens, round {} of {}",
            n_rounds + 1,
            lab.plan.repeat
        ))?;
        // Each comes first in its turn, so that none profits from its place.
        for place in 0..contenders.len() {
            let contender = contenders[(n_rounds + place) % contenders.len()];
            rounds.take(lab, &skill, contender, 1, watch)?;
        }
        n_rounds += 1;
    }
    let first = divergence(
        &rounds.ours[Way::Exact.name()][0].logits,
        &rounds.ours[Way::Disk.name()][0].logits,
    );
    let exact = rounds.ttft_ms(Way::Exact);
    Ok(Workload {
        name: format!("skill-{n_tokens}"),
        skill_tokens: n_tokens,
        prefix_tokens: lab.texts.prefix.len(),
        live_tokens: lab.texts.live_tokens(),
        ours: rounds.ours.iter().map(|(&name, turns)| (name, timing(turns))).collect(),
        peers: rounds.against_peers(&warm_up, &answer),
        ratio: peers::ratio(&exact, &rounds.ttft_ms(Way::Disk)),
        ratio_memory: peers::ratio(&exact, &rounds.ttft_ms(Way::Memory)),
        agreement: Agreement { top1: first.same_top1, kl: first.kl },
    })
}

/// The beginning of our answer behind the graft; nothing where nobody compares it.
fn greedy(lab: &Lab<'_>, skill: &Skill<'_>, watch: &Watch<'_>) -> Result<Vec<u32>, Error> {
    if lab.peers.is_empty() {
        return Ok(Vec::new());
    }
    let (turn, session) =
        graft_turn(lab, skill, &[], &skill.folder.fresh_store(), Tier::Disk, watch)?;
    peers::continuation(session, turn.logits, watch)
}

fn take(lab: &Lab<'_>, skill: &Skill<'_>, way: Way, watch: &Watch<'_>) -> Result<Turn, Error> {
    match way {
        Way::Exact => exact_turn(lab, skill, watch),
        Way::Disk => {
            let store = skill.folder.fresh_store();
            Ok(graft_turn(lab, skill, &[], &store, Tier::Disk, watch)?.0)
        }
        Way::Memory => Ok(graft_turn(lab, skill, &[], &skill.open, Tier::Memory, watch)?.0),
        Way::DiskMoved => {
            let store = skill.folder.fresh_store();
            let between = peers::between(lab);
            Ok(graft_turn(lab, skill, &between, &store, Tier::Disk, watch)?.0)
        }
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
    between: &[TokenId],
    store: &dyn BlockStore,
    tier: Tier,
    watch: &Watch<'_>,
) -> Result<(Turn, Session), Error> {
    let texts = lab.texts;
    let source = texts.source(skill.tokens);
    let header = [between, &texts.opening].concat();
    let activation =
        Activation { label: "skill", header: &header, sources: &[source], repair: &[] };
    let interrupt = watch.interrupt();
    let mut session = lab.prefix.branch();
    let started = Instant::now();
    let activated = activate(&mut session, store, &activation, Mode::Graft, &interrupt)?;
    let logits = session.prefill(&texts.message, "message", &interrupt)?;
    let ttft_ms = ms_since(started);
    check(&activated, tier)?;
    let turn = Turn {
        ttft_ms,
        lookup_ms: activated.lookup_ms,
        graft_ms: activated.graft_ms,
        prefilled: activated.prefilled_tokens + texts.message.len(),
        grafted: activated.grafted_tokens,
        logits: logits.expect("a message has tokens"),
    };
    Ok((turn, session))
}

/// What was timed must have been a graft of a block from where it should come.
pub(super) fn check(activated: &Activated, tier: Tier) -> Result<(), Error> {
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
