//! A local LLM runtime that treats Agent Skills as cached objects.
//!
//! This is the front door: a [`Runtime`] joins a model, a block store and a
//! catalog of skills; a [`Conversation`] is one context of it. The main path is
//! [`Conversation::run_turn`]; what it calls for a skill is
//! [`activate`](skillgraft_engine::activate()).
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! use skillgraft::{Runtime, Settings, TurnEvent, TurnOptions};
//!
//! # fn main() -> Result<(), skillgraft::Error> {
//! let settings = Settings::from_env()?.with_skills(["examples/skills"]);
//! let runtime = Arc::new(Runtime::open(&settings, &mut |_| {})?);
//! let mut conversation = runtime.conversation()?;
//! let prompt = "What are the steps to roll back a failed staging deploy?";
//! let report = conversation.run_turn(prompt, &TurnOptions::default(), &mut |event| {
//!     if let TurnEvent::Text(text) = event {
//!         print!("{text}");
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! println!("{} tokens grafted", report.tokens.grafted);
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** a cache never fails a request. Blocks that cannot be read,
//! used or written cost time, and are reported.
#![forbid(unsafe_code)]

mod config;
mod conversation;
mod edit;
mod error;
pub mod models;
mod plan;
mod prompt;
mod report;
mod runtime;
mod salt;
mod settings;
mod snapshot;
mod turn;
mod usage;
mod warm;
mod watch;

pub use conversation::{Conversation, Placement, StopFlag, TurnEvent, TurnMode, TurnOptions};
pub use error::Error;
pub use prompt::{ActivationText, Prompts};
pub use report::{
    ActivationReport, AlreadyReport, CatalogReport, ChoiceReport, FullPrefill, PatchReport,
    PrefixReport, TokenCounts, TurnReport, VerifiedReport,
};
pub use runtime::{OpenEvent, Runtime};
pub use settings::{Settings, SkillSettings};
pub use skillgraft_engine as engine;
pub use skillgraft_kv as kv;
pub use skillgraft_skills as skills;
pub use skillgraft_store as store;
pub use usage::{Savings, Usage, UsageLog};
pub use warm::Warmed;
pub use watch::{SkillEvent, SkillWatch};
