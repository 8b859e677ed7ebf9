use proptest::prelude::*;

use super::*;

/// By the definition: probabilities first, then the sum.
fn naive_kl(reference: &[f32], other: &[f32]) -> f64 {
    let softmax = |logits: &[f32]| -> Vec<f64> {
        let weights: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    };
    let (p, q) = (softmax(reference), softmax(other));
    p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum()
}

#[test]
fn of_two_coins() {
    // p = (3/4, 1/4), q = (1/2, 1/2).
    let coin = divergence(&[3.0_f32.ln(), 0.0], &[0.0, 0.0]);
    let expected = 0.75 * 1.5_f64.ln() + 0.25 * 0.5_f64.ln();
    assert!((coin.kl - expected).abs() < 1e-7, "{coin:?}");
}

#[test]
fn equal_logits_do_not_diverge_at_all() {
    let logits = [1.5, -300.0, 40.0, 0.25, 88.0];
    assert_eq!(divergence(&logits, &logits), Divergence { kl: 0.0, same_top1: true });
}

#[test]
fn large_logits_do_not_overflow() {
    let far = divergence(&[1000.0, 0.0, -1000.0], &[0.0, 1000.0, -1000.0]);
    assert!((far.kl - 1000.0).abs() < 1e-9, "{far:?}");
    assert!(!far.same_top1);
}

#[test]
fn what_cannot_be_is_left_out() {
    let masked = divergence(&[0.0, f32::NEG_INFINITY, 0.0], &[0.0, 0.0, 0.0]);
    assert!((masked.kl - 1.5_f64.ln()).abs() < 1e-9, "{masked:?}");
}

proptest! {
    #[test]
    fn agrees_with_the_definition(
        pairs in prop::collection::vec((-20.0..20.0_f32, -20.0..20.0_f32), 1..37),
        shift in -50.0..50.0_f32,
    ) {
        let (p, q): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
        let expected = naive_kl(&p, &q);
        prop_assert!((divergence(&p, &q).kl - expected).abs() < 1e-9 * expected.max(1.0));
        // Adding to all logits changes no probability, but rounds each of them.
        let shifted: Vec<f32> = q.iter().map(|logit| logit + shift).collect();
        prop_assert!((divergence(&p, &shifted).kl - expected).abs() < 1e-4);
    }
}
