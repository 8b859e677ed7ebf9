//! A conversation of ten turns: a skill comes in with every second one, and one of
//! them is edited on the way. What each turn prefills, and how long its first token
//! takes.
//!
//! Everybody keeps what was said before in the cache: contexts only grow, but for the
//! edit. There a cache of prefixes is good up to the skill that was edited, while ours
//! edits the skill in its place and tells the line at the tail.

use std::collections::BTreeMap;
use std::time::Instant;

use skillgraft_engine::{Activation, Hunk, Mode, activate};
use skillgraft_kv::{Position, Tier, TokenId};

use super::block::BlockFolder;
use super::turn::check;
use super::{Lab, ms_since};
use crate::error::Error;
use crate::peer::{Ask, Peer};
use crate::report::{SessionReport, SessionTiming, SessionTurn};
use crate::stats::median;
use crate::watch::Watch;

const N_TURNS: usize = 10;
const SKILL_TOKENS: usize = 600;
/// Tokens of an answer: the same for all, and in nobody's time.
const N_ANSWER: usize = 16;
/// The turn before which a skill is edited, and which skill: that of the third turn.
const EDITED_BEFORE: usize = 8;
const EDITED_SKILL: usize = 1;
/// The place in its text, and how much of it: the rest of a line.
const EDIT: std::ops::Range<usize> = 300..316;
/// Tokens of the line that is told at the tail.
const N_TOLD: usize = 24;
/// Conversations that are timed.
const ROUNDS_MAX: usize = 3;

/// Tokens that the conversation has in the end, behind the static prefix.
pub(super) fn n_tokens(lab: &Lab<'_>) -> usize {
    let turns = N_TURNS * (lab.texts.live_tokens() + N_ANSWER) + N_TOLD;
    N_TURNS.div_ceil(2) * SKILL_TOKENS + turns
}

/// The texts of the conversation, the same for all.
struct Script {
    skills: Vec<Vec<TokenId>>,
    /// The skill that is edited, afterwards.
    edited: Vec<TokenId>,
    folders: Vec<BlockFolder>,
    answer: Vec<TokenId>,
    told: Vec<TokenId>,
}

/// One turn of somebody.
struct Turn {
    ttft_ms: f64,
    prefilled: usize,
}

/// What happens in a turn, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A skill comes in.
    Skill(usize),
    /// A skill that is in the context has changed.
    Edit,
    Message,
}

impl Event {
    const fn of(turn: usize) -> Self {
        match turn {
            EDITED_BEFORE => Event::Edit,
            turn if turn % 2 == 1 => Event::Skill(turn / 2),
            _ => Event::Message,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Event::Skill(_) => "skill",
            Event::Edit => "edit",
            Event::Message => "message",
        }
    }
}

/// Measures the conversation, everybody in turn.
pub(super) fn measure(lab: &Lab<'_>, watch: &mut Watch<'_>) -> Result<SessionReport, Error> {
    let script = Script::new(lab, watch)?;
    let mut rounds = BTreeMap::<String, Vec<Vec<Turn>>>::new();
    let n_rounds = lab.plan.repeat.min(ROUNDS_MAX);
    for round in 1..=n_rounds {
        watch.step(&format!("a conversation of {N_TURNS} turns, round {round} of {n_rounds}"))?;
        rounds.entry("our graft".to_owned()).or_default().push(script.graft(lab, watch)?);
        for peer in lab.peers {
            let name = format!("{}/prefix", peer.name());
            rounds.entry(name).or_default().push(script.peer(lab, peer)?);
        }
        rounds.entry("our exact".to_owned()).or_default().push(script.exact(lab, watch)?);
    }
    Ok(summarise(&rounds, n_rounds))
}

fn summarise(rounds: &BTreeMap<String, Vec<Vec<Turn>>>, n_rounds: usize) -> SessionReport {
    let timing = |of: &[Vec<Turn>], at: usize| SessionTiming {
        ttft_ms: median(&of.iter().map(|round| round[at].ttft_ms).collect::<Vec<f64>>()),
        prefilled: of[0][at].prefilled,
    };
    let turn = |at: usize| SessionTurn {
        turn: at + 1,
        what: Event::of(at + 1).name(),
        timings: rounds.iter().map(|(name, of)| (name.clone(), timing(of, at))).collect(),
    };
    let turns: Vec<SessionTurn> = (0..N_TURNS).map(turn).collect();
    let total = |name: &String| {
        let of = turns.iter().map(|turn| &turn.timings[name]);
        SessionTiming {
            ttft_ms: of.clone().map(|timing| timing.ttft_ms).sum(),
            prefilled: of.map(|timing| timing.prefilled).sum(),
        }
    };
    let total = rounds.keys().map(|name| (name.clone(), total(name))).collect();
    SessionReport { skill_tokens: SKILL_TOKENS, n: n_rounds, turns, total }
}

impl Script {
    fn new(lab: &Lab<'_>, watch: &Watch<'_>) -> Result<Self, Error> {
        let texts = lab.texts;
        let n_skills = N_TURNS.div_ceil(2);
        let text = texts.first(n_skills * SKILL_TOKENS);
        let n_body = SKILL_TOKENS - texts.closing.len();
        let skill = |at: usize| [&text[at * SKILL_TOKENS..][..n_body], &texts.closing].concat();
        let skills: Vec<Vec<TokenId>> = (0..n_skills).map(skill).collect();
        let mut edited = skills[EDITED_SKILL].clone();
        edited[EDIT].reverse();
        let folder = |tokens: &Vec<TokenId>| BlockFolder::create(lab, &texts.source(tokens), watch);
        let folders = skills.iter().map(folder).collect::<Result<_, _>>()?;
        let answer = texts.first(N_ANSWER);
        Ok(Script { skills, edited, folders, answer, told: texts.first(N_TOLD) })
    }

    /// Ours: skills are grafted, the edit is made in its place and told at the tail.
    fn graft(&self, lab: &Lab<'_>, watch: &Watch<'_>) -> Result<Vec<Turn>, Error> {
        let (texts, interrupt) = (lab.texts, watch.interrupt());
        let mut session = lab.prefix.branch();
        let mut edited_at = Position(0);
        let mut turns = Vec::new();
        for turn in 1..=N_TURNS {
            let mut prefilled = texts.message.len();
            // A process that has just begun would find the block as this does.
            let store = match Event::of(turn) {
                Event::Skill(at) => Some(self.folders[at].fresh_store()),
                Event::Edit | Event::Message => None,
            };
            let started = Instant::now();
            match (Event::of(turn), store) {
                (Event::Skill(at), Some(store)) => {
                    let source = texts.source(&self.skills[at]);
                    let header = &texts.opening;
                    let sources = &[source];
                    let activation = Activation { label: "skill", header, sources, repair: &[] };
                    let activated =
                        activate(&mut session, &store, &activation, Mode::Graft, &interrupt)?;
                    check(&activated, Tier::Disk)?;
                    prefilled += activated.prefilled_tokens;
                    if at == EDITED_SKILL {
                        edited_at = Position(session.end().0 - SKILL_TOKENS as u32);
                    }
                }
                (Event::Edit, _) => {
                    let hunk = Hunk { old: EDIT, new: EDIT };
                    session.patch(edited_at, &[hunk], &self.edited, &interrupt)?;
                    session.prefill(&self.told, "told", &interrupt)?;
                    prefilled += EDIT.len() + self.told.len();
                }
                _ => {}
            }
            session.prefill(&texts.message, "message", &interrupt)?;
            turns.push(Turn { ttft_ms: ms_since(started), prefilled });
            session.prefill(&self.answer, "answer", &interrupt)?;
        }
        Ok(turns)
    }

    /// Ours without grafts: a cache of prefixes.
    fn exact(&self, lab: &Lab<'_>, watch: &Watch<'_>) -> Result<Vec<Turn>, Error> {
        let interrupt = watch.interrupt();
        let mut session = lab.prefix.branch();
        let mut turns = Vec::new();
        for (before, turn) in self.prompts(lab) {
            let started = Instant::now();
            let same = session.tokens().iter().zip(&before).take_while(|(a, b)| a == b).count();
            session.roll_back(Position(same as u32))?;
            let new = [&before[same..], &turn].concat();
            session.prefill(&new, "turn", &interrupt)?;
            turns.push(Turn { ttft_ms: ms_since(started), prefilled: new.len() });
            session.prefill(&self.answer, "answer", &interrupt)?;
        }
        Ok(turns)
    }

    /// A peer that keeps its cache of prefixes.
    fn peer(&self, lab: &Lab<'_>, peer: &Peer) -> Result<Vec<Turn>, Error> {
        peer.ask(&lab.texts.prefix, Ask::CACHED)?;
        let mut turns = Vec::new();
        for (before, turn) in self.prompts(lab) {
            let prompt = [before, turn].concat();
            let answer = peer.ask(&prompt, Ask::CACHED)?;
            turns.push(Turn { ttft_ms: answer.ttft_ms, prefilled: answer.prefilled });
            peer.ask(&[&prompt[..], &self.answer].concat(), Ask::CACHED)?;
        }
        Ok(turns)
    }

    /// For each turn what is in the context, as it should be now, and what is new.
    fn prompts(&self, lab: &Lab<'_>) -> Vec<(Vec<TokenId>, Vec<TokenId>)> {
        let texts = lab.texts;
        let mut prompts = Vec::new();
        let mut said: Vec<TokenId> = texts.prefix.clone();
        let mut edited_at = 0;
        for turn in 1..=N_TURNS {
            let mut new = Vec::new();
            match Event::of(turn) {
                Event::Skill(at) => {
                    new.extend_from_slice(&texts.opening);
                    if at == EDITED_SKILL {
                        edited_at = said.len() + new.len();
                    }
                    new.extend_from_slice(&self.skills[at]);
                }
                Event::Edit => {
                    said[edited_at..edited_at + SKILL_TOKENS].copy_from_slice(&self.edited);
                }
                Event::Message => {}
            }
            new.extend_from_slice(&texts.message);
            prompts.push((said.clone(), new.clone()));
            said.extend([&new[..], &self.answer].concat());
        }
        prompts
    }
}
