use proptest::prelude::*;

use super::*;

#[test]
fn medians_of_odd_and_even_samples() {
    for (values, expected) in
        [(&[7.0][..], 7.0), (&[3.0, -1.0, 2.0], 2.0), (&[4.0, 1.0, 3.0, 2.0], 2.5)]
    {
        assert!((median(values) - expected).abs() < 1e-12, "{values:?}");
    }
}

#[test]
fn percentiles_are_linear_between_ranks() {
    let values = [50.0, 10.0, 30.0, 20.0, 40.0];
    for (share, expected) in [(0.0, 10.0), (0.25, 20.0), (0.9, 46.0), (0.95, 48.0), (1.0, 50.0)] {
        assert!((percentile(&values, share) - expected).abs() < 1e-9, "{share}");
    }
}

/// Known table of order-statistics intervals of the median: for 6 to 8 samples
/// the extremes, for 9 to 11 the second from each end.
#[test]
fn intervals_of_medians_follow_the_binomial() {
    for (n, outside, covered) in
        [(6, 0, 0.968_75), (7, 0, 0.984_375), (8, 0, 0.992_187_5), (9, 1, 0.960_937_5)]
    {
        let values: Vec<f64> = (0..n).map(f64::from).collect();
        let interval = median_interval(&values);
        assert_eq!((interval.low, interval.high), (f64::from(outside), f64::from(n - 1 - outside)));
        assert!((interval.coverage - covered).abs() < 1e-12, "{n}: {}", interval.coverage);
    }
}

#[test]
fn a_small_sample_says_how_little_it_covers() {
    let three = median_interval(&[2.0, 1.0, 5.0]);
    assert_eq!((three.low, three.median, three.high), (1.0, 2.0, 5.0));
    assert!((three.coverage - 0.75).abs() < 1e-12);
    let one = median_interval(&[2.0]);
    assert_eq!((one.low, one.high, one.coverage), (2.0, 2.0, 0.0));
}

/// The mean of `n` values has a standard error that the bootstrap must find.
#[test]
fn the_bootstrap_finds_the_standard_error_of_a_mean() {
    let values: Vec<f64> = (0..200).map(|i| f64::from(i % 20)).collect();
    let mean = |sample: &[&f64]| sample.iter().copied().sum::<f64>() / sample.len() as f64;
    let interval = bootstrap(&values, mean);
    // Uniform on 0..20: standard deviation 5.766, standard error 0.408.
    let half_width = 1.96 * 5.766 / 200.0_f64.sqrt();
    assert!((interval.low - (9.5 - half_width)).abs() < 0.12, "{interval:?}");
    assert!((interval.high - (9.5 + half_width)).abs() < 0.12, "{interval:?}");
    assert_eq!(interval, bootstrap(&values, mean), "equal samples give equal intervals");
}

#[test]
fn a_constant_sample_has_no_spread() {
    let interval = bootstrap(&[3.0; 5], |sample| *sample[0]);
    assert_eq!((interval.low, interval.high), (3.0, 3.0));
}

/// By the definition: a share of the way through the sorted values, found by
/// counting how many lie below each.
fn naive_percentile(values: &[f64], share: f64) -> f64 {
    let nth = |n: usize| {
        let is_nth = |&&value: &&f64| {
            let below = values.iter().filter(|&&other| other < value).count();
            let not_above = values.iter().filter(|&&other| other <= value).count();
            (below..not_above).contains(&n)
        };
        *values.iter().find(is_nth).unwrap()
    };
    let rank = share * (values.len() - 1) as f64;
    let weight = rank - rank.floor();
    (1.0 - weight) * nth(rank.floor() as usize) + weight * nth(rank.ceil() as usize)
}

proptest! {
    #[test]
    fn percentiles_agree_with_the_definition(
        values in prop::collection::vec(-50..50_i32, 1..40),
        share in 0.0..=1.0_f64,
    ) {
        // Whole numbers, so that equal values occur.
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        let expected = naive_percentile(&values, share);
        prop_assert!((percentile(&values, share) - expected).abs() < 1e-9);
    }

    #[test]
    fn the_interval_holds_the_median(values in prop::collection::vec(-1e3..1e3_f64, 1..60)) {
        let interval = median_interval(&values);
        prop_assert!(interval.low <= interval.median && interval.median <= interval.high);
        prop_assert!(values.len() < 6 || interval.coverage >= CONFIDENCE);
    }
}
