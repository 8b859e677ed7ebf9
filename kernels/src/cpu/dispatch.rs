//! Which instruction set is used, and the one place where a kernel enters it.
//!
//! **Invariant:** code for an instruction set runs only after the machine was
//! found to have it: [`Cpu`] holds an [`Isa`] that was checked when it was made.
//!
//! **Refuses:** choosing by build flags. One binary runs everywhere.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "entering a function that needs an instruction set")
)]

use crate::cpu::amx::Tiles;
use crate::cpu::lanes::{self, Dots, Floats, Lanes, Operands};

mod factors;

use crate::cpu::threads::Threads;
pub use factors::AttentionFactors;

/// An instruction set that the kernels are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX2, FMA and F16C.
    Avx2,
    /// What every machine has.
    Portable,
}

impl Isa {
    /// All of them, fastest first.
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// The fastest that this machine has.
    pub fn detect() -> Isa {
        Isa::ALL.into_iter().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
    }

    /// All that this machine has, fastest first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// The name used in block identities and reports. Results of two
    /// instruction sets may differ in the last bits.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }

    /// Whether this machine has it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        match self {
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            Isa::Portable => true,
        }
    }

    /// Whether this machine has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Isa::Portable
    }
}

/// A kernel's body, written for any [`Lanes`]. Everything that `run` calls with
/// lanes must be `#[inline(always)]`: a function that is not inlined is
/// compiled without the instruction set.
pub(crate) trait Kernel {
    fn run<L: Lanes>(self);
}

/// A kernel's body, written for any [`Dots`]. As for [`Kernel`].
pub(crate) trait DotKernel {
    fn run<D: Dots>(self);
}

/// A kernel's body with matrix products, written for any [`Operands`]. As for
/// [`Kernel`].
pub(crate) trait ProductKernel {
    fn run<L: Lanes, O: Operands<L>>(self, operands: O);
}

/// A processor as the kernels see it: an instruction set and some threads. The
/// kernels are its methods.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
    /// Whether there is an instruction for sums of products of bytes. What it
    /// gives is exact either way, so it is no instruction set of its own.
    has_vnni: bool,
    factors: AttentionFactors,
    /// Leave to multiply bytes in tile registers.
    tiles: Option<Tiles>,
    threads: Threads,
}

impl Cpu {
    /// Uses `isa` on `threads`.
    ///
    /// # Panics
    /// When the machine lacks the instruction set.
    pub fn new(isa: Isa, threads: Threads) -> Self {
        assert!(isa.is_available(), "this machine has no {}", isa.name());
        let tiles = if isa == Isa::Avx512 { Tiles::detect() } else { None };
        Cpu {
            isa,
            has_vnni: has_vnni(isa),
            factors: AttentionFactors::fastest(isa),
            tiles,
            threads,
        }
    }

    /// The same without the instructions for sums of products of bytes, as older
    /// machines are.
    #[must_use]
    pub fn without_vnni(self) -> Self {
        Cpu { has_vnni: false, tiles: None, ..self }
    }

    /// Whether sums of products of bytes have an instruction (AVX-512 VNNI,
    /// AVX-VNNI).
    pub fn has_vnni(&self) -> bool {
        self.has_vnni
    }

    /// The same without products of bytes in tile registers.
    #[must_use]
    pub fn without_tiles(self) -> Self {
        Cpu { tiles: None, ..self }
    }

    /// Whether bytes are multiplied in tile registers (AMX) where there are rows
    /// enough.
    pub fn has_tiles(&self) -> bool {
        self.tiles.is_some()
    }

    /// The same with another kind of factors in attention; `None` where the
    /// machine lacks it.
    pub fn with_attention(self, factors: AttentionFactors) -> Option<Self> {
        factors.is_available(self.isa).then_some(Cpu { factors, ..self })
    }

    /// The same with attention in `f32`.
    #[must_use]
    pub fn in_f32(self) -> Self {
        Cpu { factors: AttentionFactors::F32, ..self }
    }

    /// What attention multiplies.
    pub fn attention_factors(&self) -> AttentionFactors {
        self.factors
    }

    pub(crate) fn tiles(&self) -> Option<Tiles> {
        self.tiles
    }

    /// The fastest instruction set of this machine and all processors that this
    /// process may use.
    pub fn detect() -> Self {
        Cpu::new(Isa::detect(), Threads::available())
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Runs `kernel` on this thread.
    #[inline]
    pub(crate) fn run<K: Kernel>(&self, kernel: K) {
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` has checked that the machine has the instruction set.
            Isa::Avx512 => unsafe { run_avx512(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { run_avx2(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512 | Isa::Avx2 => unreachable!("`new` refuses it on this machine"),
            Isa::Portable => kernel.run::<lanes::Portable>(),
        }
    }
}

impl Cpu {
    /// Runs `kernel` on this thread.
    #[inline]
    pub(crate) fn run_product<K: ProductKernel>(&self, kernel: K) {
        match (self.isa, self.factors) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, AttentionFactors::Bf16Tiles) => {
                let tiles = Tiles::detect().expect("`new` or `with_attention` has found tiles");
                let operands = lanes::Bf16Tiles::new(tiles);
                // SAFETY: they have checked that the machine has all that it needs.
                unsafe { product_avx512_bf16(kernel, operands) }
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` or `with_attention` has checked that the machine has both.
            (Isa::Avx512, AttentionFactors::Bf16) => unsafe {
                product_avx512_bf16(kernel, lanes::Bf16Pairs);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` has checked that the machine has the instruction set.
            (Isa::Avx512, AttentionFactors::F32) => unsafe { product_avx512(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            (Isa::Avx2, _) => unsafe { product_avx2(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            (Isa::Avx512 | Isa::Avx2, _) => unreachable!("`new` refuses it on this machine"),
            (Isa::Portable, _) => kernel.run::<lanes::Portable, Floats>(Floats),
        }
    }

    /// Runs `kernel` on this thread.
    #[inline]
    pub(crate) fn run_dots<K: DotKernel>(&self, kernel: K) {
        match (self.isa, self.has_vnni) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` has checked that the machine has both.
            (Isa::Avx512, true) => unsafe { dots_avx512_vnni(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` has checked that the machine has the instruction set.
            (Isa::Avx512, false) => unsafe { dots_avx512(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` has checked that the machine has both.
            (Isa::Avx2, true) => unsafe { dots_avx2_vnni(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` has checked that the machine has the instruction set.
            (Isa::Avx2, false) => unsafe { dots_avx2(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            (Isa::Avx512 | Isa::Avx2, _) => unreachable!("`new` refuses it on this machine"),
            (Isa::Portable, _) => kernel.run::<lanes::PortableDots>(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_vnni(isa: Isa) -> bool {
    match isa {
        Isa::Avx512 => is_x86_feature_detected!("avx512vnni"),
        Isa::Avx2 => is_x86_feature_detected!("avxvnni"),
        Isa::Portable => false,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has_vnni(_: Isa) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn dots_avx512_vnni<K: DotKernel>(kernel: K) {
    kernel.run::<lanes::Avx512Dots<true>>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn dots_avx512<K: DotKernel>(kernel: K) {
    kernel.run::<lanes::Avx512Dots<false>>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn dots_avx2_vnni<K: DotKernel>(kernel: K) {
    kernel.run::<lanes::Avx2Dots<true>>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots_avx2<K: DotKernel>(kernel: K) {
    kernel.run::<lanes::Avx2Dots<false>>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<K: Kernel>(kernel: K) {
    kernel.run::<lanes::Avx512>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) {
    kernel.run::<lanes::Avx2>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn product_avx512_bf16<K: ProductKernel, O: Operands<lanes::Avx512>>(kernel: K, operands: O) {
    kernel.run::<lanes::Avx512, O>(operands);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn product_avx512<K: ProductKernel>(kernel: K) {
    kernel.run::<lanes::Avx512, Floats>(Floats);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn product_avx2<K: ProductKernel>(kernel: K) {
    kernel.run::<lanes::Avx2, Floats>(Floats);
}
