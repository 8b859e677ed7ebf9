//! Choosing the next token from logits.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skillgraft_kv::TokenId;

/// How tokens are chosen. The default is greedy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f32,
    /// Keeps the most likely tokens whose probabilities sum to this; 1 keeps all.
    pub top_p: f32,
    /// Keeps this many most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps tokens at least this likely, relative to the most likely one
    /// (arXiv 2407.01082); 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens
    /// (CTRL, arXiv 1909.05858); 1 changes nothing.
    pub repetition_penalty: f32,
    /// How many recent tokens the penalty looks at.
    pub repetition_window: usize,
    /// Seed of the random numbers. Equal seeds give equal answers.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        SamplingOptions {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 64,
            seed: 0,
        }
    }
}

/// Chooses tokens.
#[derive(Debug)]
pub struct Sampler {
    options: SamplingOptions,
    random: ChaCha8Rng,
}

impl Sampler {
    /// A sampler at the start of its random sequence.
    pub fn new(options: SamplingOptions) -> Self {
        Sampler { options, random: ChaCha8Rng::seed_from_u64(options.seed) }
    }

    /// Chooses a token. `recent` are the tokens so far, latest last.
    ///
    /// # Panics
    /// When `logits` is empty.
    pub fn sample(&mut self, logits: &[f32], recent: &[TokenId]) -> TokenId {
        let penalised = self.penalise(logits, recent);
        let logits = penalised.as_deref().unwrap_or(logits);
        if self.options.temperature <= 0.0 {
            return arg_max(logits);
        }
        let candidates = self.candidates(logits);
        let total: f32 = candidates.iter().map(|&(_, weight)| weight).sum();
        let mut left = self.random.random::<f32>() * total;
        for &(token, weight) in &candidates {
            left -= weight;
            if left < 0.0 {
                return token;
            }
        }
        // Rounding may leave a little; the least likely candidate takes it.
        candidates.last().map_or_else(|| arg_max(logits), |&(token, _)| token)
    }

    fn penalise(&self, logits: &[f32], recent: &[TokenId]) -> Option<Vec<f32>> {
        let penalty = self.options.repetition_penalty;
        #[expect(clippy::float_cmp, reason = "exactly 1 means that nothing is to be done")]
        if penalty == 1.0 {
            return None;
        }
        let mut window =
            recent[recent.len().saturating_sub(self.options.repetition_window)..].to_vec();
        window.sort_unstable();
        window.dedup();
        let mut logits = logits.to_vec();
        for token in window {
            let logit = &mut logits[token.0 as usize];
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
        Some(logits)
    }

    /// The tokens that may be chosen with their weights, most likely first.
    fn candidates(&self, logits: &[f32]) -> Vec<(TokenId, f32)> {
        let mut candidates: Vec<(TokenId, f32)> =
            (0..).map(TokenId).zip(logits.iter().copied()).collect();
        candidates.sort_unstable_by(|(a_id, a), (b_id, b)| b.total_cmp(a).then(a_id.cmp(b_id)));
        if self.options.top_k > 0 {
            candidates.truncate(self.options.top_k);
        }
        let best = candidates[0].1;
        for (_, weight) in &mut candidates {
            *weight = ((*weight - best) / self.options.temperature).exp();
        }
        candidates.retain(|&(_, weight)| weight >= self.options.min_p);
        let wanted = self.options.top_p * candidates.iter().map(|&(_, weight)| weight).sum::<f32>();
        let mut sum = 0.0;
        let n_kept = candidates.iter().take_while(|&&(_, weight)| {
            let open = sum < wanted;
            sum += weight;
            open
        });
        let n_kept = n_kept.count().max(1);
        candidates.truncate(n_kept);
        candidates
    }
}

/// The most likely token; the lowest id among equals.
///
/// # Panics
/// When `logits` is empty.
pub fn arg_max(logits: &[f32]) -> TokenId {
    let first = (TokenId(0), logits[0]);
    let best = (1..).map(TokenId).zip(logits[1..].iter().copied());
    best.fold(first, |best, next| if next.1 > best.1 { next } else { best }).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 7] = [0.5, 3.0, -1.0, 2.5, 3.0, 0.0, -4.0];

    fn counts(options: SamplingOptions) -> [usize; 7] {
        let mut sampler = Sampler::new(options);
        let mut counts = [0; 7];
        for _ in 0..4000 {
            counts[sampler.sample(&LOGITS, &[]).0 as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_lowest_id_among_the_best() {
        assert_eq!(Sampler::new(SamplingOptions::default()).sample(&LOGITS, &[]), TokenId(1));
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let options = SamplingOptions { temperature: 0.8, seed: 3, ..Default::default() };
        let weights = LOGITS.map(|logit| (f64::from(logit) / 0.8).exp());
        let total: f64 = weights.iter().sum();
        for (count, weight) in counts(options).into_iter().zip(weights) {
            let expected = 4000.0 * weight / total;
            // Five standard deviations of a binomial count, and one for small ones.
            let tolerance = 5.0 * expected.sqrt() + 1.0;
            assert!((count as f64 - expected).abs() < tolerance, "{count} for {expected}");
        }
    }

    #[test]
    fn filters_cut_the_unlikely() {
        let base = SamplingOptions { temperature: 1.0, seed: 5, ..Default::default() };
        let top_k = counts(SamplingOptions { top_k: 3, ..base });
        assert!(top_k[1] > 0 && top_k[3] > 0 && top_k[4] > 0);
        assert_eq!(top_k.iter().sum::<usize>(), top_k[1] + top_k[3] + top_k[4]);
        // e^-0.5 = 0.61: the second-best logit is just inside min_p 0.6.
        let min_p = counts(SamplingOptions { min_p: 0.6, ..base });
        assert_eq!(min_p.iter().sum::<usize>(), min_p[1] + min_p[3] + min_p[4]);
        let strict = counts(SamplingOptions { min_p: 0.62, ..base });
        assert_eq!(strict.iter().sum::<usize>(), strict[1] + strict[4]);
        let top_p = counts(SamplingOptions { top_p: 0.3, ..base });
        assert_eq!(top_p[1], 4000);
    }

    #[test]
    fn the_penalty_makes_repetition_unlikely() {
        let options = SamplingOptions { repetition_penalty: 1.5, ..Default::default() };
        let recent = [TokenId(4), TokenId(1), TokenId(1)];
        assert_eq!(Sampler::new(options).sample(&LOGITS, &recent), TokenId(3));
    }

    #[test]
    fn equal_seeds_give_equal_tokens() {
        let options = SamplingOptions { temperature: 1.3, seed: 11, ..Default::default() };
        assert_eq!(counts(options), counts(options));
        assert_ne!(counts(options), counts(SamplingOptions { seed: 12, ..options }));
    }
}
