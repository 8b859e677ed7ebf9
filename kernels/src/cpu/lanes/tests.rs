//! Each operation on lanes, for each instruction set, beside plain Rust.
#![expect(clippy::float_cmp, reason = "what is compared is exact")]
#![expect(clippy::print_stderr, reason = "what is skipped is reported")]

use super::{LANES, Lanes, exp, portable, reduce_add, reduce_max, transpose_block};
use crate::cpu::dispatch::{Cpu, Isa, Kernel};
use crate::cpu::threads::Threads;

/// Runs a check with the lanes of each instruction set.
fn for_each_isa<K: Kernel + Copy>(check: K) {
    for isa in Isa::ALL {
        if isa.is_available() {
            Cpu::new(isa, Threads::new(1)).run(check);
        } else {
            eprintln!("SKIPPED: this machine has no {}", isa.name());
        }
    }
}

fn array<L: Lanes>(lanes: L) -> [f32; LANES] {
    let mut out = [f32::NAN; LANES];
    lanes.store(&mut out);
    out
}

#[derive(Clone, Copy)]
struct Exp;

impl Kernel for Exp {
    fn run<L: Lanes>(self) {
        let mut worst = 0.0_f64;
        for step in 0..200_000 {
            let x = -87.3 + 175.6 * step as f32 / 200_000.0;
            // Its place in the vector must not matter.
            let mut lanes = [1.0; LANES];
            lanes[step % LANES] = x;
            let got = f64::from(array(exp(L::load(&lanes)))[step % LANES]);
            worst = worst.max((got / f64::from(x).exp() - 1.0).abs());
        }
        assert!(worst < 2e-7, "relative error {worst}");
        let at = |x: f32| array(exp(L::splat(x)))[3];
        assert_eq!(at(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!([at(-88.1), at(-1e30), at(0.0), at(-0.0)], [0.0, 0.0, 1.0, 1.0]);
        assert_eq!([at(89.0), at(1e30), at(f32::INFINITY)], [f32::INFINITY; 3]);
        assert!(at(f32::NAN).is_nan());
    }
}

#[test]
fn exp_is_accurate_and_ends_well() {
    for_each_isa(Exp);
}

#[derive(Clone, Copy)]
struct Arithmetic;

impl Kernel for Arithmetic {
    fn run<L: Lanes>(self) {
        let a: [f32; LANES] = std::array::from_fn(|i| i as f32 - 7.25);
        let b: [f32; LANES] = std::array::from_fn(|i| 3.0 - (i * i % 11) as f32 + 0.5);
        let (x, y) = (L::load(&a), L::load(&b));
        let zip =
            |op: fn(f32, f32) -> f32| -> [f32; LANES] { std::array::from_fn(|i| op(a[i], b[i])) };
        assert_eq!(array(x.add(y)), zip(|a, b| a + b));
        assert_eq!(array(x.sub(y)), zip(|a, b| a - b));
        assert_eq!(array(x.mul(y)), zip(|a, b| a * b));
        assert_eq!(array(x.div(y)), zip(|a, b| a / b));
        assert_eq!(array(x.max(y)), zip(f32::max));
        assert_eq!(array(x.min(y)), zip(f32::min));
        // Small integers and their halves: one rounding or two, all exact.
        assert_eq!(array(x.fma(y, L::splat(2.0))), zip(|a, b| a * b + 2.0));
        assert_eq!(reduce_add(x).to_bits(), a.iter().sum::<f32>().to_bits());
        assert_eq!(reduce_max(y).to_bits(), 3.5_f32.to_bits());
        let nan = L::splat(f32::NAN);
        assert!(array(x.max(nan)).iter().all(|x| x.is_nan()), "`other` wins over a NaN");
        assert_eq!(array(nan.max(x)), a);
        assert_eq!(array(nan.min(x)), a);
    }
}

#[test]
fn arithmetic_is_by_lane() {
    for_each_isa(Arithmetic);
}

#[derive(Clone, Copy)]
struct Transpose;

impl Kernel for Transpose {
    fn run<L: Lanes>(self) {
        let (from_stride, to_stride) = (21, 19);
        let from: Vec<f32> = (0..15 * from_stride + LANES).map(|i| i as f32).collect();
        let mut to = vec![f32::NAN; 15 * to_stride + LANES];
        transpose_block::<L>(&from, from_stride, &mut to, to_stride);
        for (at, value) in to.iter().enumerate() {
            let (i, j) = (at / to_stride, at % to_stride);
            if j < LANES {
                assert_eq!(*value as usize, j * from_stride + i);
            } else {
                assert!(value.is_nan(), "gaps are left alone");
            }
        }
    }
}

#[test]
fn blocks_are_transposed() {
    for_each_isa(Transpose);
}

#[test]
fn half_floats_are_those_of_the_standard() {
    for bits in 0..=u16::MAX {
        let (got, wanted) = (portable::f32_from_f16(bits), half::f16::from_bits(bits).to_f32());
        assert!(got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan(), "{bits:#x}");
    }
    // Every binary16 value, its neighbours in binary32, and the midpoints between.
    for bits in 0..0x7c00_u16 {
        let low = half::f16::from_bits(bits).to_f32();
        let high = half::f16::from_bits(bits + 1).to_f32();
        let middle = if high.is_finite() { f32::midpoint(low, high) } else { 65520.0 };
        for value in [low, middle.next_down(), middle, middle.next_up()] {
            for value in [value, -value] {
                let wanted = half::f16::from_f32(value).to_bits();
                assert_eq!(portable::f16_from_f32(value), wanted, "{value}");
            }
        }
    }
    assert_eq!(portable::f16_from_f32(f32::INFINITY), 0x7c00);
    assert!(half::f16::from_bits(portable::f16_from_f32(f32::NAN)).is_nan());
}
