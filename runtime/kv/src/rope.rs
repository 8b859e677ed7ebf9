//! Rotary position embedding as data. `skillgraft-kernels` turns it into tables.

/// How the elements of a head are paired for rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// Element `i` with `i + rotary_dim / 2` ("neox", Hugging Face).
    HalfSplit,
    /// Element `2i` with `2i + 1` (original LLaMA, GGUF's llama family).
    Interleaved,
}

/// How the plain frequencies are changed to stretch the context.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// The plain table.
    None,
    /// All frequencies divided by `factor` (position interpolation).
    Linear {
        /// How many times longer the context gets.
        factor: f64,
    },
    /// Llama 3: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// How many times longer the context gets.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are scaled.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length of the first training.
        original_context: u32,
    },
    /// YaRN (arXiv 2309.00071).
    Yarn {
        /// How many times longer the context gets.
        factor: f64,
        /// Rotations above which a dimension is kept.
        beta_fast: f64,
        /// Rotations below which a dimension is interpolated.
        beta_slow: f64,
        /// Context length of the first training.
        original_context: u32,
        /// Scale of cos and sin at the first rotation; `None` is the paper's
        /// `0.1 ln(factor) + 1`. Never applied again when a block is relocated.
        attention_factor: Option<f64>,
    },
    /// Divisors of the plain frequencies, one a pair (GGUF `rope_freqs.weight`).
    Divisors(Vec<f32>),
    /// LongRoPE (arXiv 2402.13753) in one of its regimes: short and long contexts
    /// have divisors of their own, and a table has those of one.
    LongRope {
        /// Divisors of the plain frequencies, one a pair.
        divisors: Vec<f32>,
        /// Scale of cos and sin at the first rotation. Never applied again when a
        /// block is relocated.
        attention_factor: f64,
    },
}

/// Everything that decides how a model rotates Q and K.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    /// Base of the frequencies (`rope_theta`).
    pub theta: f64,
    /// Leading elements of a head that are rotated; even, at most `head_dim`.
    pub rotary_dim: usize,
    /// How elements are paired.
    pub pairing: RopePairing,
    /// How frequencies are stretched.
    pub scaling: RopeScaling,
}

/// What distinguishes the attention of one layer from that of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerAttention {
    /// Which of the model's rotations it uses.
    pub rope: usize,
    /// How far back a token sees: the one at position `p` sees positions above
    /// `p - window`. `None` for all of them. A block keeps all its tokens either
    /// way.
    pub window: Option<usize>,
}

/// Whether a model's blocks can be used at other positions than they were compiled at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relocatability {
    /// Scores depend on distances only.
    Relocatable,
    /// They do not; the reason is shown to the user.
    Fixed(String),
}

impl RopeSpec {
    /// Bytes that differ whenever two specs rotate differently; part of a block's key.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.theta.to_le_bytes());
        out.extend_from_slice(&(self.rotary_dim as u64).to_le_bytes());
        out.push(match self.pairing {
            RopePairing::HalfSplit => 0,
            RopePairing::Interleaved => 1,
        });
        let mut scaling = |tag: u8, values: &[f64]| {
            out.push(tag);
            for value in values {
                out.extend_from_slice(&value.to_le_bytes());
            }
        };
        match &self.scaling {
            RopeScaling::None => scaling(0, &[]),
            RopeScaling::Linear { factor } => scaling(1, &[*factor]),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                scaling(
                    2,
                    &[*factor, *low_freq_factor, *high_freq_factor, f64::from(*original_context)],
                );
            }
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_context,
                attention_factor,
            } => {
                // NaN cannot come from a file's metadata as a factor that works,
                // so it stands for "the paper's formula".
                let attention = attention_factor.unwrap_or(f64::NAN);
                scaling(
                    3,
                    &[*factor, *beta_fast, *beta_slow, f64::from(*original_context), attention],
                );
            }
            RopeScaling::Divisors(divisors) => {
                let divisors: Vec<f64> = divisors.iter().map(|&d| f64::from(d)).collect();
                scaling(4, &divisors);
            }
            RopeScaling::LongRope { divisors, attention_factor } => {
                let divisors = divisors.iter().map(|&d| f64::from(d));
                let values: Vec<f64> = std::iter::once(*attention_factor).chain(divisors).collect();
                scaling(5, &values);
            }
        }
        out
    }
}
