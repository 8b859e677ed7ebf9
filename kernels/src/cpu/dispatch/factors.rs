//! What attention multiplies.

use super::Isa;
use crate::cpu::amx::Tiles;

/// What K, V, queries and weights are rounded to before attention multiplies
/// them. Sums are `f32` always. Results differ, so it is part of what identifies
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttentionFactors {
    /// Nothing is rounded.
    F32,
    /// bfloat16, in pairs (AVX-512 BF16).
    Bf16,
    /// bfloat16, in tile registers (AMX).
    Bf16Tiles,
}

impl AttentionFactors {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::Bf16Tiles];

    /// The name used in block identities and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Bf16Tiles => "bf16-tiles",
        }
    }

    /// The fastest of this machine with `isa`. Intel's processors execute the
    /// instruction for pairs at a quarter of the rate of `f32` products (Emerald
    /// Rapids: 86 against 171 GFLOP/s a thread), and have tiles instead.
    pub(super) fn fastest(isa: Isa) -> Self {
        if Self::Bf16Tiles.is_available(isa) {
            Self::Bf16Tiles
        } else if Self::Bf16.is_available(isa) && is_amd() {
            Self::Bf16
        } else {
            Self::F32
        }
    }

    /// Whether this machine has it with `isa`.
    pub fn is_available(self, isa: Isa) -> bool {
        match self {
            Self::F32 => true,
            Self::Bf16 => isa == Isa::Avx512 && has_bf16(),
            Self::Bf16Tiles => isa == Isa::Avx512 && has_bf16() && Tiles::detect().is_some(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_bf16() -> bool {
    false
}

/// Whether the processor's vendor is AMD.
#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
}

#[cfg(not(target_arch = "x86_64"))]
fn is_amd() -> bool {
    false
}
