//! The page of answers: how far each mode is from a full prefill, and where it is
//! farthest.

use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::plot::{Axes, Series, lines};
use super::render;
use crate::error::Error;
use crate::report::{CaseRecord, FidelityReport};
use crate::table::setting_words;

const TEMPLATE: &str = include_str!("fidelity.html");
/// Cases that are listed with their text.
const N_WORST: usize = 12;
/// Characters of a continuation that are shown.
const N_SHOWN: usize = 160;
/// Points of a curve: enough for its shape.
const N_POINTS: usize = 80;
/// The full prefill that others are compared with, a second time.
const EXACT: &str = "exact";

/// A case with its divergence in each mode.
#[derive(Serialize)]
struct Worst<'a> {
    id: &'a str,
    question: &'a str,
    answer: &'a str,
    /// The beginning of full prefill's own answer.
    continuation: String,
    /// Mean KL of the mode that is farthest, along the answer.
    kl: f64,
    modes: Vec<(&'a str, f64, bool)>,
}

pub(super) fn page(report: &FidelityReport) -> Result<String, Error> {
    let cases = report.cases.as_deref().unwrap_or_default();
    let curves = curves(report, cases);
    let axes = Axes {
        x: "KL to full prefill, a position",
        y: "share of positions above it",
        is_log_y: true,
    };
    let plot = if curves.is_empty() { None } else { Some(lines(&axes, &curves)?) };
    render(
        TEMPLATE,
        context! {
            report => Value::from(Serde(report)),
            setting => setting_words(&report.setting),
            plot => Value::from(Serde(plot)),
            worst => Value::from(Serde(worst(cases))),
        },
    )
}

/// For each mode, which part of the positions diverges more than so much.
fn curves(report: &FidelityReport, cases: &[CaseRecord]) -> Vec<Series> {
    let of = |mode: &&'static str| {
        let mut kl: Vec<f64> = cases
            .iter()
            .filter_map(|case| case.modes.get(mode))
            .flat_map(|case| case.kl.iter().chain(&case.greedy_kl))
            .copied()
            .filter(|kl| *kl > 0.0)
            .collect();
        kl.sort_by(f64::total_cmp);
        let n_all: usize = cases
            .iter()
            .filter_map(|case| case.modes.get(mode))
            .map(|c| c.kl.len() + c.greedy_kl.len())
            .sum();
        let step = kl.len().div_ceil(N_POINTS).max(1);
        let points = (0..kl.len()).filter(|at| at % step == 0 || at + 1 == kl.len()).map(|at| {
            let above = (kl.len() - at) as f64 / n_all as f64;
            (kl[at], above, [above, above])
        });
        Series { name: (*mode).to_owned(), points: points.collect(), has_marks: false }
    };
    report.modes.keys().map(of).filter(|series| !series.points.is_empty()).collect()
}

fn worst(cases: &[CaseRecord]) -> Vec<Worst<'_>> {
    let mut worst: Vec<Worst<'_>> = cases
        .iter()
        .map(|case| {
            let grafts =
                case.modes.iter().filter(|(mode, _)| **mode != EXACT && **mode != "no-skill");
            let modes: Vec<(&str, f64, bool)> = grafts
                .map(|(mode, of)| (*mode, of.kl.iter().sum::<f64>() / of.kl.len() as f64, of.em))
                .collect();
            let kl = modes.iter().map(|mode| mode.1).fold(0.0, f64::max);
            let CaseRecord { id, question, answer, .. } = case;
            let continuation = case.continuation.chars().take(N_SHOWN).collect();
            Worst { id, question, answer, continuation, kl, modes }
        })
        .collect();
    worst.sort_by(|a, b| b.kl.total_cmp(&a.kl));
    worst.truncate(N_WORST);
    worst
}
