use super::*;

fn case(kl: &[f64], top1: &[bool], em: bool, ttft_ms: f64) -> CaseMethod {
    let (kl, top1) = (kl.to_vec(), top1.to_vec());
    CaseMethod {
        greedy_kl: kl.clone(),
        greedy_top1: top1.clone(),
        kl,
        top1,
        em,
        ttft_ms,
        grafted: 40,
        recomputed: 4,
    }
}

/// Two cases of unequal length, so that a mean over cases is not one over
/// positions.
fn records() -> Vec<CaseRecord> {
    let exact = [
        case(&[0.0], &[true], true, 90.0),
        case(&[0.0, 0.0, 0.3], &[true, true, false], true, 110.0),
    ];
    let lone = [
        case(&[2.5], &[false], false, 10.0),
        case(&[0.1, 0.2, 1.2], &[true, false, true], true, 30.0),
    ];
    exact
        .into_iter()
        .zip(lone)
        .enumerate()
        .map(|(idx, (exact, lone))| CaseRecord {
            id: format!("case/{idx}"),
            question: String::new(),
            answer: String::new(),
            continuation: String::new(),
            block_tokens: 100 + idx,
            answer_tokens: exact.kl.len(),
            modes: [(Method::Exact.name(), exact), (Method::GraftLone.name(), lone)].into(),
        })
        .collect()
}

#[test]
fn a_method_is_summed_over_positions() {
    let reports = methods(&records(), &[Method::Exact, Method::GraftLone]);
    let lone = &reports["graft-lone"];
    assert_eq!((lone.cases, lone.answer.positions), (2, 4));
    assert!((lone.recomputed - 0.1).abs() < 1e-12);
    assert!((lone.saved_tokens - 36.0).abs() < 1e-12 && (lone.saved_ms - 80.0).abs() < 1e-12);
    // The first of the two differs at once, the second at its second token.
    assert!((lone.equal_run - 0.5).abs() < 1e-12);
    assert!((lone.answer.kl_mean - 1.0).abs() < 1e-12, "{}", lone.answer.kl_mean);
    assert!((lone.answer.kl_max - 2.5).abs() < 1e-12);
    // Ranks 0 to 3: the 95th percentile lies 0.85 of the way from 1.2 to 2.5.
    assert!((lone.answer.kl_p95 - (1.2 + 0.85 * 1.3)).abs() < 1e-12);
    assert!((lone.answer.top1 - 0.5).abs() < 1e-12);
    assert_eq!(lone.answer.catastrophic, 1, "both conditions must hold");
    assert!((lone.em - 0.5).abs() < 1e-12 && (lone.em_exact - 1.0).abs() < 1e-12);
    assert!((lone.ttft_ms - 20.0).abs() < 1e-12);
    assert_eq!(lone.greedy, lone.answer);
}

#[test]
fn intervals_hold_the_means() {
    let reports = methods(&records(), &[Method::GraftLone]);
    let lone = &reports["graft-lone"];
    let interval = lone.answer.kl_mean_interval;
    // Resamples of two cases: (a,a), (a,b), (b,b).
    assert!((interval.low - 0.5).abs() < 1e-12 && (interval.high - 2.5).abs() < 1e-12);
    assert!((lone.em_interval.low, lone.em_interval.high) == (0.0, 1.0));
}

#[test]
fn the_noise_floor_is_what_full_prefill_differs_from_itself() {
    let floor = noise_floor(&records());
    assert_eq!(floor.positions, 8);
    assert!((floor.kl_mean - 0.6 / 8.0).abs() < 1e-12);
    assert!((floor.kl_max - 0.3).abs() < 1e-12);
    assert!((floor.top1 - 0.75).abs() < 1e-12);
}
