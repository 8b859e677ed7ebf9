use super::*;
use crate::report::tests::{bench_sample, fidelity_sample};
use crate::report::{CaseMethod, CaseRecord};

#[test]
fn numbers_have_about_three_digits() {
    let cases = [
        (0.0, "0"),
        (0.000_012, "1.2e-5"),
        (0.012_34, "0.0123"),
        (1.234_5, "1.234"),
        (-42.04, "-42.0"),
        (1234.5, "1234"),
    ];
    for (value, expected) in cases {
        assert_eq!(digits(value), expected);
    }
}

#[test]
fn what_comes_from_outside_is_escaped() {
    let template = "{{ word }} {{ 12.5|ms }}";
    let values = minijinja::context! { word => "<script>" };
    assert_eq!(render(template, values).unwrap(), "&lt;script&gt; 12 ms");
}

/// Whether a page is whole, and asks nobody for anything.
fn assert_whole(page: &str) {
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for outside in ["src=", "href=", "<script", "url("] {
        assert!(!page.contains(outside), "{outside} in a page");
    }
}

#[test]
fn a_page_of_answers_has_modes_curves_and_the_worst_cases() {
    let method = |kl: f64| CaseMethod {
        kl: vec![kl, kl / 2.0],
        top1: vec![true, false],
        em: false,
        greedy_kl: vec![kl / 3.0],
        greedy_top1: vec![true],
        ttft_ms: 3.0,
        grafted: 40,
        recomputed: 0,
    };
    let case = |id: &str, kl| CaseRecord {
        id: id.to_owned(),
        question: "Is 3 < 4?".to_owned(),
        answer: "yes".to_owned(),
        continuation: "It is.".to_owned(),
        block_tokens: 40,
        answer_tokens: 2,
        modes: [("graft-lone", method(kl))].into(),
    };
    let cases = vec![case("near", 0.01), case("far", 2.0)];
    let page = fidelity_page(&FidelityReport { cases: Some(cases), ..fidelity_sample() }).unwrap();
    assert_whole(&page);
    assert!(page.find("<h3>far</h3>").unwrap() < page.find("<h3>near</h3>").unwrap());
    assert!(page.contains("Is 3 &lt; 4?") && page.contains("<svg"));
    // Without cases there is nothing to draw or to list.
    let brief = fidelity_page(&fidelity_sample()).unwrap();
    assert_whole(&brief);
    assert!(!brief.contains("<svg") && brief.contains("graft-lone"));
}

#[test]
fn a_page_of_speed_has_its_plots_and_tables() {
    let page = bench_page(&bench_sample()).unwrap();
    assert_whole(&page);
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("our exact") && page.contains("3.00 ms"));
}
