//! Summaries of samples: medians, percentiles and intervals.
//!
//! **Invariant:** nothing is assumed about a distribution. Intervals of medians
//! come from order statistics, all others from a seeded bootstrap, so that equal
//! samples give equal reports.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// The confidence that intervals aim at.
const CONFIDENCE: f64 = 0.95;
/// Resamples of a bootstrap: enough for two digits of an interval's ends.
const N_RESAMPLES: usize = 2000;
/// Seed of the bootstrap.
const SEED: u64 = 0x5347;

/// A 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A median with an interval of order statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MedianInterval {
    /// The sample's median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the true median: at least 0.95 where
    /// the sample is large enough (6), else what its extremes give.
    pub coverage: f64,
}

/// The median.
///
/// # Panics
/// When there is no value.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which a `share` of the values lies, linear between the two
/// nearest ranks.
///
/// # Panics
/// When there is no value, or `share` is not between 0 and 1.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    assert!(!values.is_empty(), "no value to summarise");
    assert!((0.0..=1.0).contains(&share), "a share of {share}");
    let sorted = sorted(values);
    let rank = share * (sorted.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = rank.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * rank.fract()
}

/// The median with the narrowest interval of order statistics that covers the
/// true median with a probability of 0.95, or the extremes where none does.
///
/// # Panics
/// When there is no value.
pub fn median_interval(values: &[f64]) -> MedianInterval {
    let sorted = sorted(values);
    let n = sorted.len();
    let mut outside = 0;
    while outside < (n - 1) / 2 && coverage(n, outside + 1) >= CONFIDENCE {
        outside += 1;
    }
    MedianInterval {
        median: median(values),
        low: sorted[outside],
        high: sorted[n - 1 - outside],
        coverage: coverage(n, outside),
    }
}

/// Probability that the true median lies between the order statistics with
/// `outside` values beyond each: `1 - 2 P(Bin(n, 1/2) <= outside)`.
fn coverage(n: usize, outside: usize) -> f64 {
    let mut probability = 0.5_f64.powi(n as i32);
    let mut tail = 0.0;
    for below in 0..=outside {
        tail += probability;
        probability *= (n - below) as f64 / (below + 1) as f64;
    }
    (1.0 - 2.0 * tail).max(0.0)
}

/// The percentile bootstrap: `statistic` of resamples of `items`, drawn with
/// replacement, as many as there are.
///
/// # Panics
/// When there is no item.
pub fn bootstrap<T>(items: &[T], statistic: impl Fn(&[&T]) -> f64) -> Interval {
    assert!(!items.is_empty(), "no item to draw from");
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let values: Vec<f64> = (0..N_RESAMPLES)
        .map(|_| {
            let resample: Vec<&T> =
                items.iter().map(|_| &items[random.random_range(0..items.len())]).collect();
            statistic(&resample)
        })
        .collect();
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Interval { low: percentile(&values, tail), high: percentile(&values, 1.0 - tail) }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    assert!(!values.is_empty(), "no value to summarise");
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests;
