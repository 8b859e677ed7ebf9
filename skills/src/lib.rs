//! Agent Skills without any model: parse, catalog, search, choose.
//!
//! [`scan`] reads skill folders into a [`Catalog`], an immutable snapshot.
//! [`Catalog::render`] gives the thin list that a model sees; a [`ChooseSkill`]
//! picks the skill for a request, searching the full text that the model does
//! not see.
//!
//! **Invariant:** nothing is dropped silently. A file that was found is in the
//! catalog or in [`Catalog::omitted`], with a [`Diagnostic`] that says why.
//!
//! **Refuses:** to act on what a skill says. Skill text is data here: it is
//! never executed, never interpreted, and cannot break out of its catalog line.
//! This package knows no tokenizer, no model and no other package of the
//! workspace.
//!
//! ```
//! use skillgraft_skills::{Bm25Chooser, Catalog, Choice, ChooseSkill, Skill};
//!
//! let catalog = Catalog::from_skills(vec![
//!     Skill::in_memory("tea", "Make tea.", "# Tea\n\nSteep sencha for 90 seconds.\n"),
//!     Skill::in_memory("coffee", "Make coffee.", "# Coffee\n\nGrind 18 grams.\n"),
//! ]);
//! assert_eq!(catalog.render(), "- coffee: Make coffee.\n- tea: Make tea.\n");
//!
//! let chooser = Bm25Chooser::new(&catalog);
//! let Choice::Picks(picks) = chooser.choose("How long do I steep sencha?", &catalog)? else {
//!     panic!("a skill fits");
//! };
//! assert_eq!(picks[0].id, "tea");
//! # Ok::<(), skillgraft_skills::Error>(())
//! ```
#![forbid(unsafe_code)]

mod activation;
mod catalog;
mod change;
mod choose;
mod diagnostic;
mod error;
mod import;
mod markdown;
mod parse;
mod resource;
mod roots;
mod scan;
mod session;
mod skill;
mod text;
mod trust;
mod watch;
mod yaml;

pub use activation::{Activation, SkillFile};
pub use catalog::{
    CATALOG_SHARE, Catalog, CatalogFormat, CatalogStep, Rendered, SkillIdx, catalog_budget,
};
pub use change::{CatalogChange, ChangeKind};
pub use choose::{
    Bm25Chooser, Choice, ChooseSkill, DEFAULT_EVIDENCE_MIN, Forced, Match, Pick, RankedLine,
    SearchText, mentions, rank_lines,
};
pub use diagnostic::{Code, Diagnostic, Level, Severity};
pub use error::Error;
pub use import::{ImportError, ImportLimits, Imported, import, import_zip};
pub use markdown::{Link, Unit, UnitKind, links, units};
pub use parse::{
    COMPATIBILITY_CHARS_MAX, DESCRIPTION_CHARS_MAX, FILE_BYTES_MAX, FILE_BYTES_WARN,
    FRONT_MATTER_BYTES_MAX, NAME_CHARS_MAX, Parsed, parse,
};
pub use resource::{Address, FileText, READ_BYTES_MAX, READ_LINES, Window};
pub use roots::{Origin, Places, Root, Roots, project_folder};
pub use scan::{DEPTH_MAX, FOLDERS_MAX, SKILL_FILE, ScanOptions, Scanner, scan};
pub use session::{Caller, Given, Loaded, SkillSession};
pub use skill::{Invocable, Skill};
pub use trust::Trust;
pub use watch::{SkillWatcher, WatchEvent, WatchOptions};
