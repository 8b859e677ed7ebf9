//! How far one distribution over the vocabulary is from another.

use skillgraft_engine::arg_max;

/// One position, compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Divergence {
    /// `KL(reference || other)` in nats, over the whole vocabulary.
    pub kl: f64,
    /// Whether the most likely token is the same.
    pub same_top1: bool,
}

/// Compares the logits of one position, `[vocab_size]` each, in f64.
///
/// # Panics
/// When the lengths differ, or there is no logit.
pub fn divergence(reference: &[f32], other: &[f32]) -> Divergence {
    assert_eq!(reference.len(), other.len(), "logits of two vocabularies");
    let (ref_norm, other_norm) = (log_sum_exp(reference), log_sum_exp(other));
    let mut kl = 0.0;
    for (&p, &q) in reference.iter().zip(other) {
        let log_p = f64::from(p) - ref_norm;
        let probability = log_p.exp();
        // What cannot be has no part in the sum, however unlikely the other.
        if probability > 0.0 {
            kl += probability * (log_p - (f64::from(q) - other_norm));
        }
    }
    // Rounding can take a sum that should be 0 a little below it.
    Divergence { kl: kl.max(0.0), same_top1: arg_max(reference) == arg_max(other) }
}

/// `ln(sum(exp(logit)))`, shifted by the largest logit so that nothing overflows.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    largest + sum.ln()
}

#[cfg(test)]
mod tests;
