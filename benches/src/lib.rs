//! Workloads, measurements and reports: what `skillgraft bench` and
//! `skillgraft fidelity` run.
//!
//! [`bench()`] measures speed, grafts against full prefill, alternating in one
//! run. [`fidelity()`] measures answers, grafts against full prefill of the same
//! token ids, on an [`EvalSet`]; [`edits()`], what is done about skills that change.
//!
//! **Invariant:** every number of a report was measured in the run that reports
//! it. What could not be measured is absent, never estimated; a run in which a
//! graft silently became a prefill, or a block was not where it was said to be,
//! is an error.
//!
//! It refuses to print: reports are values, progress goes to a [`Watch`], and
//! [`bench_table`] and [`fidelity_table`] give texts, [`bench_page`] and
//! [`fidelity_page`] pages.
#![forbid(unsafe_code)]

mod divergence;
mod error;
mod fidelity;
mod machine;
mod page;
mod peer;
mod report;
mod speed;
mod stats;
mod subject;
mod table;
mod watch;

pub use divergence::{Divergence, divergence};
pub use error::Error;
pub use fidelity::{
    EvalCase, EvalSet, EvalSkill, FidelityOptions, FidelityRun, Method, Order, Setting, edits,
    fidelity, parse_methods,
};
pub use page::{bench_page, fidelity_page};
pub use peer::{PeerPlace, PeerSpec};
pub use report::{
    Agreement, BenchReport, CaseMethod, CaseRecord, DecodeRate, EditMethodReport, EditsReport,
    FidelityReport, GraftTiming, Machine, MethodReport, ModeTiming, NoiseFloor, PairMethod,
    PairsReport, PeerRate, PeerReport, PeerTiming, Positions, PrefillRate, Ratio, Run,
    SessionReport, SessionTiming, SessionTurn, Workload,
};
pub use speed::{BenchPlan, bench};
pub use stats::{Interval, MedianInterval, bootstrap, median, median_interval, percentile};
pub use subject::Subject;
pub use table::{bench_table, edits_table, fidelity_table};
pub use watch::Watch;
