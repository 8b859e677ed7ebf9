//! From cases to the numbers of a report.

use std::collections::BTreeMap;

use super::method::Method;
use crate::report::{CaseMethod, CaseRecord, MethodReport, NoiseFloor, Positions};
use crate::stats::{bootstrap, median, percentile};

/// Chunks of the second full prefill. A prime, so that its chunks begin where no
/// page and no piece of the context does.
pub(super) const NOISE_CHUNK_TOKENS: usize = 37;
/// Where another most likely token and a KL above this count as catastrophic: the
/// answer goes elsewhere.
const CATASTROPHIC_KL: f64 = 1.0;

/// What full prefill differs from itself, over all positions of all cases.
///
/// # Panics
/// When a case has no record of the second full prefill.
pub(super) fn noise_floor(records: &[CaseRecord]) -> NoiseFloor {
    let cases: Vec<&CaseMethod> =
        records.iter().map(|record| &record.modes[Method::Exact.name()]).collect();
    let kl: Vec<f64> =
        cases.iter().flat_map(|case| case.kl.iter().chain(&case.greedy_kl)).copied().collect();
    let same = cases.iter().flat_map(|case| case.top1.iter().chain(&case.greedy_top1));
    NoiseFloor {
        chunk_tokens: NOISE_CHUNK_TOKENS,
        kl_mean: mean(&kl),
        kl_max: kl.iter().copied().fold(0.0, f64::max),
        top1: same.filter(|&&same| same).count() as f64 / kl.len() as f64,
        positions: kl.len(),
    }
}

/// The report of each method.
///
/// # Panics
/// When a case has no record of a method.
pub(super) fn methods(
    records: &[CaseRecord],
    methods: &[Method],
) -> BTreeMap<&'static str, MethodReport> {
    let of = |method: Method| -> Vec<&CaseMethod> {
        records.iter().map(|record| &record.modes[method.name()]).collect()
    };
    let exact = of(Method::Exact);
    let report = |method: Method| (method.name(), method_report(&of(method), &exact));
    methods.iter().copied().map(report).collect()
}

fn method_report(cases: &[&CaseMethod], exact: &[&CaseMethod]) -> MethodReport {
    let sum = |of: &dyn Fn(&CaseMethod) -> usize| cases.iter().map(|case| of(case)).sum::<usize>();
    let (grafted, recomputed) = (sum(&|case| case.grafted), sum(&|case| case.recomputed));
    let saved_ms: Vec<f64> =
        cases.iter().zip(exact).map(|(case, exact)| exact.ttft_ms - case.ttft_ms).collect();
    let equal = |case: &CaseMethod| case.greedy_top1.iter().take_while(|same| **same).count();
    let em = |cases: &[&&CaseMethod]| share(cases.iter().map(|case| case.em));
    let ttft_ms: Vec<f64> = cases.iter().map(|case| case.ttft_ms).collect();
    MethodReport {
        cases: cases.len(),
        answer: positions(cases, |case| (&case.kl, &case.top1)),
        em: share(cases.iter().map(|case| case.em)),
        em_interval: bootstrap(cases, em),
        em_exact: share(exact.iter().map(|case| case.em)),
        recomputed: recomputed as f64 / grafted.max(1) as f64,
        saved_tokens: (grafted - recomputed) as f64 / cases.len() as f64,
        saved_ms: median(&saved_ms),
        equal_run: sum(&equal) as f64 / cases.len() as f64,
        ttft_ms: median(&ttft_ms),
        greedy: positions(cases, |case| (&case.greedy_kl, &case.greedy_top1)),
    }
}

/// Means are over positions; intervals draw cases, since the positions of one case
/// depend on each other.
fn positions(
    cases: &[&CaseMethod],
    of: impl Fn(&CaseMethod) -> (&Vec<f64>, &Vec<bool>),
) -> Positions {
    let kl_mean = |cases: &[&&CaseMethod]| {
        let all: Vec<f64> = cases.iter().flat_map(|case| of(case).0).copied().collect();
        mean(&all)
    };
    let top1 = |cases: &[&&CaseMethod]| share(cases.iter().flat_map(|case| of(case).1).copied());
    let all: Vec<&&CaseMethod> = cases.iter().collect();
    let kl: Vec<f64> = cases.iter().flat_map(|case| of(case).0).copied().collect();
    let same = cases.iter().flat_map(|case| of(case).1);
    let catastrophic = kl.iter().zip(same).filter(|&(&kl, &same)| !same && kl > CATASTROPHIC_KL);
    Positions {
        positions: kl.len(),
        kl_mean: kl_mean(&all),
        kl_mean_interval: bootstrap(cases, kl_mean),
        kl_p95: percentile(&kl, 0.95),
        kl_p99: percentile(&kl, 0.99),
        kl_max: percentile(&kl, 1.0),
        top1: top1(&all),
        top1_interval: bootstrap(cases, top1),
        catastrophic: catastrophic.count(),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn share(answers: impl Iterator<Item = bool>) -> f64 {
    let (mut n, mut n_true) = (0.0, 0.0);
    for answer in answers {
        n += 1.0;
        n_true += f64::from(u8::from(answer));
    }
    n_true / n
}

#[cfg(test)]
mod tests;
