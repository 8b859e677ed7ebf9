//! The main path: one turn, from a prompt to its answer.

use std::ops::ControlFlow;
use std::time::Instant;

use skillgraft_engine::{
    Activated, Activation, BlockOrigin, BlockSource, DecodeOptions, Decoded, Message, Mode, Role,
    activate, decode,
};
use skillgraft_kv::{AnchorKind, Kept, Tier, TokenId};
use skillgraft_skills::{Choice, ChooseSkill, Forced, Pick, mentions};

use crate::conversation::{Conversation, TurnEvent, TurnOptions};
use crate::error::Error;
use crate::prompt::{ActivationText, Prompts};
use crate::report::{ActivationReport, ChoiceReport, FullPrefill, TokenCounts, TurnReport};

/// Gets the events of a turn; breaking ends it.
pub(crate) type Events<'a> = &'a mut dyn FnMut(TurnEvent<'_>) -> ControlFlow<()>;

/// The context of a turn as token ids, before anything of it is computed.
struct Plan {
    /// End of the last answer, and the opening of the message.
    opening: Vec<TokenId>,
    skills: Vec<(Pick, ActivationText)>,
    /// The user's words and the marker that makes the model answer.
    message: Vec<TokenId>,
    /// The message's content, for the chat template.
    content: String,
}

impl Conversation {
    /// Runs one turn: chooses skills, places them before the message, prefills
    /// what is new, and decodes the answer. When it fails or is stopped before
    /// the answer begins, the conversation is as it was.
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
        let before = self.session.end();

        let (how, choice) = self.choose(prompt, options)?;
        let _ = events(TurnEvent::Chosen(&choice));
        let plan = self.plan(prompt, &choice)?;
        let prefilled = self.prefill(&plan, options, events);
        let (activations, logits) = match prefilled {
            Ok(prefilled) => prefilled,
            Err(error) => {
                self.session.roll_back(before).map_err(Error::from)?;
                return Err(error);
            }
        };
        let ttft_ms = ms_since(started);
        let decoded = self.answer(logits, options, events)?;

        let report = self.report(how, &choice, &plan, activations, &decoded, ttft_ms, options);
        self.close(plan, &decoded)?;
        Ok(report)
    }

    /// The skills for a prompt: those that the user named, or else what the
    /// search finds in the full text of all skills.
    fn choose(&self, prompt: &str, options: &TurnOptions) -> Result<(&'static str, Choice), Error> {
        if prompt.trim().is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let catalog = self.runtime.catalog();
        let mut named = options.use_skills.clone();
        for skill in mentions(prompt, catalog)? {
            let id = &catalog.get(skill).id;
            if !named.contains(id) {
                named.push(id.clone());
            }
        }
        if !named.is_empty() {
            return Ok(("forced", Forced::new(named).choose(prompt, catalog)?));
        }
        let choice = self.runtime.chooser().choose(prompt, catalog)?;
        let how = if choice.picks().is_empty() { "none" } else { "search" };
        Ok((how, choice))
    }

    /// Works out the turn's token ids and checks that they fit.
    fn plan(&self, prompt: &str, choice: &Choice) -> Result<Plan, Error> {
        let prompts = Prompts::new(self.runtime.model());
        let mut opening = self.pending.clone();
        opening.extend(prompts.open_message(&self.history)?);

        let mut skills = Vec::new();
        let mut content = String::new();
        for pick in choice.picks() {
            // What is in the context already is not loaded again.
            if self.active.contains(&pick.id) {
                continue;
            }
            let skill = self.runtime.catalog().get(pick.skill);
            content.push_str(&skill.body);
            skills.push((pick.clone(), prompts.activation(skill)?));
        }
        let words = if skills.is_empty() { prompt.to_owned() } else { format!("\n{prompt}") };
        content.push_str(&words);
        let message = prompts.close_message(&self.history, &words)?;
        let plan = Plan { opening, skills, message, content };
        self.check_room(&plan)?;
        Ok(plan)
    }

    /// Names what is too long, and leaves room for at least one token of answer.
    fn check_room(&self, plan: &Plan) -> Result<(), Error> {
        let limit = self.session.ledger().limit() as usize;
        let mut room = (self.session.ledger().room() as usize).saturating_sub(1);
        let n_tokens = plan.opening.len() + plan.message.len();
        if n_tokens > room {
            return Err(Error::PromptTooLong { n_tokens, room, limit });
        }
        room -= n_tokens;
        for (pick, text) in &plan.skills {
            let n_tokens = text.header.len() + text.block.len();
            if n_tokens > room {
                return Err(Error::SkillTooLong { name: pick.id.clone(), n_tokens, room, limit });
            }
            room -= n_tokens;
        }
        Ok(())
    }

    /// Brings everything up to the answer into the context: skills first, then
    /// the message. Returns the logits of the answer's first token.
    fn prefill(
        &mut self,
        plan: &Plan,
        options: &TurnOptions,
        events: Events<'_>,
    ) -> Result<(Vec<ActivationReport>, Vec<f32>), Error> {
        let stop = || options.stop.check();
        let mut opening = plan.opening.clone();
        let mut activations = Vec::new();
        for (pick, text) in &plan.skills {
            let n_tokens = text.block.len();
            let _ = events(TurnEvent::Activating { name: &pick.id, n_tokens });
            let anchor = Prompts::new(self.runtime.model()).neutral_anchor(&text.header)?;
            opening.extend_from_slice(&text.header);
            let activation = Activation {
                label: &format!("skill {}", pick.id),
                header: &opening,
                source: BlockSource {
                    label: &pick.id,
                    anchor: AnchorKind::Neutral,
                    anchor_tokens: &anchor,
                    tokens: &text.block,
                    salt: self.runtime.salt(),
                },
            };
            let mode = options.mode.activation_mode();
            let store = self.runtime.store().as_ref();
            let activated = activate(&mut self.session, store, &activation, mode, &stop)?;
            opening.clear();
            activations.push(report_activation(pick, activated));
            if let Some(report) = activations.last() {
                let _ = events(TurnEvent::Activated(report));
            }
        }
        opening.extend_from_slice(&plan.message);
        let logits = self.session.prefill(&opening, "message", &stop)?;
        Ok((activations, logits.expect("a message has tokens")))
    }

    fn answer(
        &mut self,
        logits: Vec<f32>,
        options: &TurnOptions,
        events: Events<'_>,
    ) -> Result<Decoded, Error> {
        let decode_options =
            DecodeOptions { max_tokens: options.max_tokens, sampling: options.sampling };
        let decoded = decode(&mut self.session, logits, &decode_options, &mut |text| {
            events(TurnEvent::Text(text))?;
            options.stop.check()
        })?;
        Ok(decoded)
    }

    /// Remembers what was said, and which tokens have no KV yet.
    fn close(&mut self, plan: Plan, decoded: &Decoded) -> Result<(), Error> {
        self.active.extend(plan.skills.into_iter().map(|(pick, _)| pick.id));
        self.history.push(Message { role: Role::User, content: plan.content });
        self.pending = decoded.pending.into_iter().collect();
        let prompts = Prompts::new(self.runtime.model());
        self.pending.extend(prompts.close_answer(&self.history)?);
        self.history.push(Message { role: Role::Assistant, content: decoded.text.clone() });
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "each is a different part of the report")]
    fn report(
        &self,
        how: &'static str,
        choice: &Choice,
        plan: &Plan,
        activations: Vec<ActivationReport>,
        decoded: &Decoded,
        ttft_ms: f64,
        options: &TurnOptions,
    ) -> TurnReport {
        let reason = match choice {
            Choice::Picks(picks) => picks[0].reason.clone(),
            Choice::None { reason } => reason.clone(),
        };
        let in_skills: usize = activations.iter().map(|skill| skill.prefilled_tokens).sum();
        let outside =
            plan.message.len() + if plan.skills.is_empty() { plan.opening.len() } else { 0 };
        let tokens = TokenCounts {
            prefix: self.prefix.tokens,
            grafted: activations.iter().map(|skill| skill.grafted_tokens).sum(),
            prefilled: in_skills + outside,
            generated: decoded.tokens.len(),
        };
        let spent: f64 = activations
            .iter()
            .map(|skill| skill.graft_ms + skill.lookup_ms + skill.compile_ms)
            .sum();
        let saved: f64 = activations.iter().map(|skill| skill.saved_ms).sum();
        let mode = match options.mode.activation_mode() {
            Mode::Exact => "exact",
            Mode::Graft => "graft",
        };
        TurnReport {
            answer: decoded.text.clone(),
            model: self.runtime.model_name().to_owned(),
            mode,
            choice: ChoiceReport { how, reason },
            prefix: self.prefix.clone(),
            tokens,
            ttft_ms,
            tpot_ms: decoded.tpot_ms,
            full_prefill: FullPrefill {
                ttft_ms: ttft_ms - spent + saved,
                estimated: tokens.grafted > 0,
            },
            stop: decoded.stop.name(),
            activations,
        }
    }
}

fn report_activation(pick: &Pick, activated: Activated) -> ActivationReport {
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
    let anchor = if activated.grafted_tokens > 0 { AnchorKind::Neutral } else { AnchorKind::None };
    ActivationReport {
        name: pick.id.clone(),
        reason: pick.reason.clone(),
        placement: "before",
        block,
        anchor: anchor.name(),
        grafted_tokens: activated.grafted_tokens,
        repaired_tokens: 0,
        prefilled_tokens: activated.prefilled_tokens,
        graft_ms: activated.graft_ms,
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
