//! RoPE: frequencies from a [`RopeSpec`], and the angles of positions.
//!
//! **Invariant:** an angle is position times frequency in `f64`, its cosine and
//! sine rounded once to `f32`. The frequencies themselves are rounded to `f32`
//! at each step of their computation as the `transformers` library rounds them:
//! models are trained and served with those, and an unrounded frequency has
//! turned by another 1e-4 at position 8000.
//!
//! **Refuses:** tables that depend on the length of the context; a
//! [`RopeSpec`] cannot express one.

use skillgraft_kv::{Position, PositionDelta, RopePairing, RopeScaling, RopeSpec};

/// The frequencies of a [`RopeSpec`].
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    inv_freq: Vec<f64>,
    attention_scaling: f64,
    pairing: RopePairing,
}

impl RopeTable {
    /// Computes the frequencies.
    ///
    /// # Panics
    /// When `rotary_dim` is odd or 0, or the number of divisors is not
    /// `rotary_dim / 2`.
    pub fn new(spec: &RopeSpec) -> Self {
        let dim = spec.rotary_dim;
        assert!(dim > 0 && dim.is_multiple_of(2), "`rotary_dim` {dim} is not even");
        let powers: Vec<f32> = (0..dim / 2)
            .map(|i| {
                let exponent = (2 * i) as f32 / dim as f32;
                spec.theta.powf(f64::from(exponent)) as f32
            })
            .collect();
        let inv_freq: Vec<f32> = match &spec.scaling {
            RopeScaling::None => powers.iter().map(|&power| 1.0 / power).collect(),
            RopeScaling::Linear { factor } => {
                powers.iter().map(|&power| 1.0 / power / *factor as f32).collect()
            }
            RopeScaling::Llama3 { .. } => {
                powers.iter().map(|&power| llama3(1.0 / power, &spec.scaling)).collect()
            }
            RopeScaling::Yarn { .. } => yarn(&powers, spec),
            RopeScaling::Divisors(divisors) => {
                assert_eq!(divisors.len(), dim / 2, "one divisor for each pair");
                powers.iter().zip(divisors).map(|(&power, &by)| 1.0 / power / by).collect()
            }
            RopeScaling::LongRope { divisors, .. } => {
                assert_eq!(divisors.len(), dim / 2, "one divisor for each pair");
                powers.iter().zip(divisors).map(|(&power, &by)| 1.0 / (by * power)).collect()
            }
        };
        RopeTable {
            inv_freq: inv_freq.into_iter().map(f64::from).collect(),
            attention_scaling: attention_scaling(&spec.scaling),
            pairing: spec.pairing,
        }
    }

    /// Leading elements of a head that are rotated.
    pub fn rotary_dim(&self) -> usize {
        2 * self.inv_freq.len()
    }

    /// How elements are paired.
    pub fn pairing(&self) -> RopePairing {
        self.pairing
    }

    /// Radians a position, one for each pair: `[rotary_dim / 2]`.
    pub fn inv_freq(&self) -> &[f64] {
        &self.inv_freq
    }

    /// What cosine and sine are multiplied by at the first rotation (YaRN and
    /// LongRoPE; otherwise 1).
    pub fn attention_scaling(&self) -> f64 {
        self.attention_scaling
    }

    /// The rotation of Q and K of tokens at `positions`, attention scaling
    /// included. For a query seen from a moved block a position may be negative.
    pub fn angles(&self, positions: impl IntoIterator<Item = i64>) -> Angles {
        self.scaled_angles(positions, self.attention_scaling)
    }

    /// The rotation by `distances` alone, for K that was rotated before: the
    /// attention scaling is in it already.
    pub fn angles_pure(&self, distances: impl IntoIterator<Item = i64>) -> Angles {
        self.scaled_angles(distances, 1.0)
    }

    fn scaled_angles(&self, positions: impl IntoIterator<Item = i64>, scaling: f64) -> Angles {
        let positions = positions.into_iter();
        let n = positions.size_hint().0 * self.inv_freq.len();
        let mut angles = Angles {
            cos: Vec::with_capacity(n),
            sin: Vec::with_capacity(n),
            n_pairs: self.inv_freq.len(),
            pairing: self.pairing,
        };
        for position in positions {
            for inv_freq in &self.inv_freq {
                let (sin, cos) = (position as f64 * inv_freq).sin_cos();
                angles.cos.push((cos * scaling) as f32);
                angles.sin.push((sin * scaling) as f32);
            }
        }
        angles
    }
}

/// Llama 3.1's rule for one frequency: long waves are stretched, short ones
/// kept, with a ramp between (the reference code of that model).
fn llama3(plain: f32, scaling: &RopeScaling) -> f32 {
    let RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } =
        scaling
    else {
        unreachable!("called for this scaling only")
    };
    let (factor, low, high) = (*factor as f32, *low_freq_factor as f32, *high_freq_factor as f32);
    let context = *original_context as f32;
    let wavelength = (2.0 * std::f64::consts::PI / f64::from(plain)) as f32;
    if wavelength > context / low {
        plain / factor
    } else if wavelength < context / high {
        plain
    } else {
        let kept = (context / wavelength - low) / (high - low);
        (1.0 - kept) * plain / factor + kept * plain
    }
}

/// YaRN's "NTK by parts" (arXiv 2309.00071, section 3.2): pairs that turn often
/// within the original context are kept, those that turn seldom are stretched.
fn yarn(powers: &[f32], spec: &RopeSpec) -> Vec<f32> {
    let RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, .. } = &spec.scaling
    else {
        unreachable!("called for this scaling only")
    };
    let dim = spec.rotary_dim as f64;
    // The pair that turns `rotations` times within the original context.
    let pair_of = |rotations: f64| {
        let wavelength = f64::from(*original_context) / rotations;
        dim * (wavelength / (2.0 * std::f64::consts::PI)).ln() / (2.0 * spec.theta.ln())
    };
    let low = pair_of(*beta_fast).floor().max(0.0) as f32;
    let high = pair_of(*beta_slow).ceil().min(dim - 1.0) as f32;
    // Equal ends would divide by zero.
    let width = if high > low { high - low } else { 0.001 };
    powers
        .iter()
        .enumerate()
        .map(|(i, &power)| {
            let kept = 1.0 - ((i as f32 - low) / width).clamp(0.0, 1.0);
            let stretched = 1.0 / (*factor as f32 * power);
            stretched * (1.0 - kept) + 1.0 / power * kept
        })
        .collect()
}

/// The scale of cosine and sine (arXiv 2309.00071, equation 22).
fn attention_scaling(scaling: &RopeScaling) -> f64 {
    match scaling {
        RopeScaling::Yarn { attention_factor: Some(given), .. }
        | RopeScaling::LongRope { attention_factor: given, .. } => *given,
        RopeScaling::Yarn { factor, .. } if *factor > 1.0 => 0.1 * factor.ln() + 1.0,
        RopeScaling::None
        | RopeScaling::Linear { .. }
        | RopeScaling::Llama3 { .. }
        | RopeScaling::Yarn { .. }
        | RopeScaling::Divisors(_) => 1.0,
    }
}

/// Cosines and sines of some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Angles {
    /// `[n_rows, n_pairs]`
    cos: Vec<f32>,
    /// `[n_rows, n_pairs]`
    sin: Vec<f32>,
    n_pairs: usize,
    pairing: RopePairing,
}

impl Angles {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.cos.len() / self.n_pairs
    }

    /// Leading elements of a head that are rotated.
    pub fn rotary_dim(&self) -> usize {
        2 * self.n_pairs
    }

    /// How elements are paired.
    pub fn pairing(&self) -> RopePairing {
        self.pairing
    }

    /// Cosines and sines of row `i`, `[rotary_dim / 2]` each.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, i: usize) -> (&[f32], &[f32]) {
        let range = i * self.n_pairs..(i + 1) * self.n_pairs;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// The rotations of one forward pass's queries, for every delta at which its
/// context holds a segment. It serves all layers.
///
/// A segment that was moved by `delta` keeps its K as it was rotated; a query at
/// position `p` reads it rotated to `p - delta` instead, since scores depend on
/// distances only.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryFrames {
    deltas: Vec<PositionDelta>,
    /// One for each delta.
    angles: Vec<Angles>,
    n_rows: usize,
}

impl QueryFrames {
    /// Frames for rows at `positions` and each of `deltas`, which may repeat.
    pub fn new(
        table: &RopeTable,
        positions: &[Position],
        deltas: impl IntoIterator<Item = PositionDelta>,
    ) -> Self {
        let mut frames =
            QueryFrames { deltas: Vec::new(), angles: Vec::new(), n_rows: positions.len() };
        for delta in deltas {
            if frames.index_of(delta).is_none() {
                let seen = positions.iter().map(|p| i64::from(p.0) - i64::from(delta.0));
                frames.deltas.push(delta);
                frames.angles.push(table.angles(seen));
            }
        }
        frames
    }

    /// Which frame serves segments moved by `delta`.
    pub fn index_of(&self, delta: PositionDelta) -> Option<usize> {
        self.deltas.iter().position(|&known| known == delta)
    }

    /// Number of frames.
    pub fn n_frames(&self) -> usize {
        self.deltas.len()
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// The deltas, in the order of the frames.
    pub fn deltas(&self) -> &[PositionDelta] {
        &self.deltas
    }

    /// The rotation of frame `i`, one row for each query row.
    ///
    /// # Panics
    /// When there is no such frame.
    pub fn angles(&self, i: usize) -> &Angles {
        &self.angles[i]
    }
}
