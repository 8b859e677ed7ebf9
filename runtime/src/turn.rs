//! The main path: one turn, from a prompt to its answer.

use std::ops::ControlFlow;
use std::time::Instant;

use skillgraft_engine::{
    Activated, Activation, AnswerEvent, BlockOrigin, BlockSource, DecodeOptions, Decoded, Message,
    Mode, Role, Session, Verified, activate, decode, decode_verified,
};
use skillgraft_kv::{AnchorKind, Kept, Position, Tier, TokenId};
use skillgraft_skills::Choice;

use crate::conversation::{Conversation, Placement, TurnEvent, TurnMode, TurnOptions};
use crate::edit::Held;
use crate::error::Error;
use crate::plan::{Chosen, Item, Plan};
use crate::prompt::Prompts;
use crate::report::{
    ActivationReport, ChoiceReport, FullPrefill, PatchReport, TokenCounts, TurnReport,
    VerifiedReport,
};
use crate::warm::Job;

/// Gets the events of a turn; breaking ends it.
pub(crate) type Events<'a> = &'a mut dyn FnMut(TurnEvent<'_>) -> ControlFlow<()>;

impl Conversation {
    /// Runs one turn: hears of changed skills, chooses skills, places them before
    /// the message, prefills what is new, and decodes the answer. When it fails or
    /// is stopped before the answer begins, the conversation is as it was.
    ///
    /// # Errors
    /// When a named skill does not exist, something does not fit into the
    /// context, or the turn is stopped before the answer begins.
    pub fn run_turn(
        &mut self,
        prompt: &str,
        options: &TurnOptions,
        events: Events<'_>,
    ) -> Result<TurnReport, Error> {
        let started = Instant::now();
        let runtime = std::sync::Arc::clone(&self.runtime);
        let _busy = runtime.background().begin_turn();

        let news = self.catch_up()?;
        if let Some(update) = &news.update {
            let _ = events(TurnEvent::SkillsChanged(update));
        }
        let chosen = news.choose(prompt, options)?;
        let _ = events(TurnEvent::Chosen(&chosen.choice));
        let plan = self.plan(prompt, &chosen, news, options.placement)?;

        let before = self.checkpoint(&plan);
        let outcome = self.carry_out(prompt, &plan, options, started, events);
        let Turned { patched, activations, ttft_ms, decoded, verified } = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.restore(before)?;
                return Err(error);
            }
        };

        let mut report = self.report(&chosen, &plan, activations, &decoded, ttft_ms, options);
        report.patched = patched;
        report.verified = verified.map(VerifiedReport::of);
        self.close(plan, &decoded)?;
        runtime.record_usage(&report);
        Ok(report)
    }

    /// Edits what has changed, prefills what is new, and decodes the answer.
    fn carry_out(
        &mut self,
        prompt: &str,
        plan: &Plan,
        options: &TurnOptions,
        started: Instant,
        events: Events<'_>,
    ) -> Result<Turned, Error> {
        let patched = self.apply(&plan.edits, &options.stop)?;
        let (activations, logits) = self.prefill(prompt, plan, options, events)?;
        let ttft_ms = ms_since(started);
        let (decoded, verified) = self.answer(logits, options, events)?;
        Ok(Turned { patched, activations, ttft_ms, decoded, verified })
    }

    /// What [`restore`](Self::restore) needs when a turn fails. A context that is
    /// only added to needs no copy, which would share its last page.
    fn checkpoint(&self, plan: &Plan) -> Checkpoint {
        let session = (!plan.edits.is_empty()).then(|| self.session.branch());
        Checkpoint { end: self.session.end(), session, held: self.held.clone() }
    }

    fn restore(&mut self, before: Checkpoint) -> Result<(), Error> {
        self.held = before.held;
        match before.session {
            Some(session) => self.session = session,
            None => self.session.roll_back(before.end)?,
        }
        Ok(())
    }

    /// Brings everything up to the answer into the context: skills first, then
    /// the message. Returns the logits of the answer's first token.
    fn prefill(
        &mut self,
        prompt: &str,
        plan: &Plan,
        options: &TurnOptions,
        events: Events<'_>,
    ) -> Result<(Vec<ActivationReport>, Vec<f32>), Error> {
        let stop = || options.stop.check();
        let mode = options.mode.activation_mode(options.placement);
        let mut opening = plan.opening.clone();
        let mut activations = Vec::new();
        for item in &plan.items {
            let n_tokens = item.text.block.len();
            let _ = events(TurnEvent::Activating { name: &item.name, n_tokens });
            opening.extend_from_slice(&item.text.header);
            let anchors = self.anchors(item)?;
            let sources = anchors.each_ref().map(|(anchor, tokens)| BlockSource {
                label: &item.name,
                anchor: *anchor,
                anchor_tokens: tokens,
                tokens: &item.text.block,
                salt: self.runtime.salt(),
            });
            let repair = match mode {
                Mode::Repair => {
                    let prompts = Prompts::new(self.runtime.model());
                    prompts.repair(&item.text.block_text, &item.text.block, prompt)?
                }
                Mode::Exact | Mode::Graft => Vec::new(),
            };
            let activation = Activation {
                label: &format!("{} {}", item.kind, item.name),
                header: &opening,
                sources: &sources,
                repair: &repair,
            };
            let store = self.runtime.store().as_ref();
            let activated = activate(&mut self.session, store, &activation, mode, &stop)?;
            self.runtime.background().note_use(&item.name);
            if item.kind == "skill" {
                self.hold(&item.name, n_tokens);
            }
            self.want_the_other(item, &activated, anchors);
            opening.clone_from(&item.text.after);
            activations.push(report_activation(item, activated, options.placement));
            if let Some(report) = activations.last() {
                let _ = events(TurnEvent::Activated(report));
            }
        }
        opening.extend_from_slice(&plan.message);
        let logits = self.session.prefill(&opening, "message", &stop)?;
        Ok((activations, logits.expect("a message has tokens")))
    }

    /// What the block of a text may be compiled behind, the best first: the static
    /// prefix of this conversation, or what is true in every one.
    fn anchors(&self, item: &Item) -> Result<[(AnchorKind, Vec<TokenId>); 2], Error> {
        let prompts = Prompts::new(self.runtime.model());
        let (prefix, header) = (self.prefix_tokens(), &item.text.header);
        let own = prompts.prefix_anchor(prefix, &self.history[0], header)?;
        let neutral = prompts.neutral_anchor(header)?;
        Ok([(AnchorKind::Prefix, own), (AnchorKind::Neutral, neutral)])
    }

    /// Has the block behind the anchor that was not used compiled in the
    /// background: the prefix one is the better one here, the neutral one will do
    /// when the catalog has changed.
    fn want_the_other(
        &self,
        item: &Item,
        activated: &Activated,
        anchors: [(AnchorKind, Vec<TokenId>); 2],
    ) {
        let is_compiled = matches!(activated.block, Some(BlockOrigin::Compiled { .. }));
        let wanted = match activated.anchor {
            AnchorKind::Prefix if is_compiled => AnchorKind::Neutral,
            AnchorKind::Neutral => AnchorKind::Prefix,
            AnchorKind::Prefix | AnchorKind::None => return,
        };
        for (anchor, anchor_tokens) in anchors.into_iter().filter(|(kind, _)| *kind == wanted) {
            let prefix = match anchor {
                AnchorKind::Prefix => self.prefix_tokens().to_vec(),
                AnchorKind::Neutral | AnchorKind::None => Vec::new(),
            };
            let (name, tokens) = (item.name.clone(), item.text.block.clone());
            let earlier = None;
            let job = Job { name, anchor, anchor_tokens, tokens, prefix, earlier };
            self.runtime.background().push(job);
        }
    }

    /// Decodes the answer, and checks it where the mode says so.
    fn answer(
        &mut self,
        logits: Vec<f32>,
        options: &TurnOptions,
        events: Events<'_>,
    ) -> Result<(Decoded, Option<Verified>), Error> {
        let decode_options =
            DecodeOptions { max_tokens: options.max_tokens, sampling: options.sampling };
        let session = &mut self.session;
        if options.mode != TurnMode::Verified {
            let decoded = decode(session, logits, &decode_options, &mut |text| {
                events(TurnEvent::Text(text))?;
                options.stop.check()
            })?;
            return Ok((decoded, None));
        }
        let (decoded, verified) =
            decode_verified(session, &logits, &decode_options, &mut |event| {
                events(match event {
                    AnswerEvent::Text(text) => TurnEvent::Text(text),
                    AnswerEvent::Corrected { keep_bytes } => TurnEvent::Corrected { keep_bytes },
                })?;
                options.stop.check()
            })?;
        Ok((decoded, Some(verified)))
    }

    /// Remembers what was said, and which tokens have no KV yet.
    fn close(&mut self, plan: Plan, decoded: &Decoded) -> Result<(), Error> {
        self.skills = plan.skills;
        self.history.push(Message { role: Role::User, content: plan.content });
        self.pending = decoded.pending.into_iter().collect();
        let prompts = Prompts::new(self.runtime.model());
        self.pending.extend(prompts.close_answer(&self.history)?);
        self.history.push(Message { role: Role::Assistant, content: decoded.text.clone() });
        Ok(())
    }

    fn report(
        &self,
        chosen: &Chosen,
        plan: &Plan,
        activations: Vec<ActivationReport>,
        decoded: &Decoded,
        ttft_ms: f64,
        options: &TurnOptions,
    ) -> TurnReport {
        let reason = match &chosen.choice {
            Choice::Picks(picks) => picks[0].reason.clone(),
            Choice::None { reason } => reason.clone(),
        };
        let in_skills: usize = activations.iter().map(|skill| skill.prefilled_tokens).sum();
        // An activation's own count has what was prefilled before its block.
        let outside = plan.message.len()
            + plan.items.last().map_or(plan.opening.len(), |last| last.text.after.len());
        let tokens = TokenCounts {
            prefix: self.prefix.tokens,
            grafted: activations.iter().map(|skill| skill.grafted_tokens).sum(),
            prefilled: in_skills + outside,
            generated: decoded.tokens.len(),
        };
        let spent: f64 = activations
            .iter()
            .map(|skill| skill.graft_ms + skill.repair_ms + skill.lookup_ms + skill.compile_ms)
            .sum();
        let saved: f64 = activations.iter().map(|skill| skill.saved_ms).sum();
        let mode = options.mode.name(options.placement);
        TurnReport {
            answer: decoded.text.clone(),
            model: self.runtime.model_name().to_owned(),
            mode,
            choice: ChoiceReport { how: chosen.how, reason },
            already: plan.already.clone(),
            patched: Vec::new(),
            update: plan.update.clone(),
            prefix: self.prefix.clone(),
            tokens,
            ttft_ms,
            tpot_ms: decoded.tpot_ms,
            full_prefill: FullPrefill {
                ttft_ms: ttft_ms - spent + saved,
                estimated: tokens.grafted > 0,
            },
            stop: decoded.stop.name(),
            verified: None,
            activations,
        }
    }
}

/// A turn up to the end of its answer.
struct Turned {
    patched: Vec<PatchReport>,
    activations: Vec<ActivationReport>,
    ttft_ms: f64,
    decoded: Decoded,
    verified: Option<Verified>,
}

/// A conversation before a turn.
struct Checkpoint {
    end: Position,
    /// The context, where the turn edits it.
    session: Option<Session>,
    held: Vec<Held>,
}

fn report_activation(item: &Item, activated: Activated, placement: Placement) -> ActivationReport {
    let (block, miss, not_kept) = match activated.block {
        None => ("none", None, None),
        Some(BlockOrigin::Found(Tier::Memory)) => ("memory", None, None),
        Some(BlockOrigin::Found(Tier::Disk)) => ("disk", None, None),
        Some(BlockOrigin::Compiled { miss, kept }) => {
            let not_kept = match kept {
                Kept::OnDisk => None,
                Kept::InMemory { reason } => Some(reason),
            };
            ("compiled", Some(miss.name()), not_kept)
        }
    };
    ActivationReport {
        name: item.name.clone(),
        reason: item.reason.clone(),
        note: item.note.clone(),
        placement: placement.name(),
        block,
        anchor: activated.anchor.name(),
        exact: activated.is_exact,
        grafted_tokens: activated.grafted_tokens,
        repaired_tokens: activated.repaired_tokens,
        prefilled_tokens: activated.prefilled_tokens,
        graft_ms: activated.graft_ms,
        repair_ms: activated.repair_ms,
        lookup_ms: activated.lookup_ms,
        compile_ms: activated.compile_ms,
        saved_ms: activated.saved_ms,
        fallback: activated.fallback,
        miss,
        not_kept,
    }
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
