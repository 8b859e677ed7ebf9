//! Products with weights in four and eight bits.

use proptest::prelude::*;
use skillgraft_kernels::{Coding, Cpu, Isa, PackedLinear, Threads, WeightBlock, reference};

use crate::common::{Values, assert_close, assert_same_bits, for_each_cpu, poison};

const CODINGS: [Coding; 5] = [
    Coding::FourBits { zero: 8 },
    Coding::FourBitsOffset,
    Coding::EightBits { zero: 128 },
    Coding::EightBits { zero: 16 },
    Coding::EightBitsOffset,
];

/// Rows of blocks with codes of all values; one row of zeros.
fn blocks(coding: Coding, n_out: usize, n_in: usize, seed: u64) -> Vec<Vec<WeightBlock>> {
    let mut values = Values::new(seed);
    let mask = match coding {
        Coding::FourBits { .. } | Coding::FourBitsOffset => 15,
        Coding::EightBits { zero } if zero < 128 => 127,
        Coding::EightBits { .. } | Coding::EightBitsOffset => 255,
    };
    let mut block = |row: usize| {
        let mut code = || ((values.next(0.5) + 0.5) * 256.0) as u8;
        let mut codes = [0; 32];
        for to in &mut codes {
            *to = code() & mask;
        }
        // Powers of two and their sums are binary16 numbers.
        let scale = if row == 2 { 0.0 } else { 2.0_f32.powi((code() % 5) as i32 - 9) };
        let offset = if row == 2 { 0.0 } else { f32::from(code()) / -256.0 };
        WeightBlock { codes, scale, offset }
    };
    (0..n_out).map(|row| (0..n_in / 32).map(|_| block(row)).collect()).collect()
}

fn pack(cpu: &Cpu, coding: Coding, n_in: usize, rows: &[Vec<WeightBlock>]) -> PackedLinear {
    PackedLinear::from_blocks(cpu, rows.len(), n_in, coding, |i, to| to.copy_from_slice(&rows[i]))
}

/// The weights as numbers.
fn dequantised(coding: Coding, rows: &[Vec<WeightBlock>]) -> Vec<f32> {
    let (zero, has_offset) = match coding {
        Coding::FourBits { zero } | Coding::EightBits { zero } => (f32::from(zero), false),
        Coding::FourBitsOffset | Coding::EightBitsOffset => (0.0, true),
    };
    let weight = |block: &WeightBlock, code: u8| {
        let offset = if has_offset { block.offset } else { 0.0 };
        block.scale * (f32::from(code) - zero) + offset
    };
    let blocks = rows.iter().flatten();
    blocks.flat_map(|block| block.codes.map(|code| weight(block, code))).collect()
}

/// What inputs become as bytes, as numbers again.
fn rounded_inputs(x: &[f32]) -> Vec<f32> {
    let mut out = Vec::new();
    for block in x.chunks(32) {
        let largest = block.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        out.extend(block.iter().map(|x| (x * inverse).round_ties_even() * (largest / 127.0)));
    }
    out
}

#[test]
fn products_are_those_of_the_weights_that_were_written() {
    for_each_cpu(|cpu| {
        for coding in CODINGS {
            for (m, n_in, n_out) in
                [(1, 32, 5), (2, 96, 33), (3, 64, 100), (5, 576, 70), (7, 256, 32), (41, 96, 65)]
            {
                check(cpu, coding, m, n_in, n_out);
            }
        }
        check(cpu, CODINGS[1], 250, 32, 40);
    });
}

fn check(cpu: &Cpu, coding: Coding, m: usize, n_in: usize, n_out: usize) {
    let what = format!("{} {coding:?} {m} x {n_in} x {n_out}", cpu.isa().name());
    let rows = blocks(coding, n_out, n_in, 7);
    let packed = pack(cpu, coding, n_in, &rows);
    let weights = dequantised(coding, &rows);
    let mut values = Values::new(5);
    let mut x = values.vec(m * n_in, 2.0);
    x[m * n_in / 2] = 300.0;
    x[..32].fill(0.0);
    // The sums are of the very numbers: only `f32` rounding is left, relative to
    // sums of up to 1e3.
    let wanted = reference::linear(&rounded_inputs(&x), &weights, n_in, None);
    let mut y = poison(m * n_out);
    cpu.linear(&x, &packed, None, &mut y);
    let size = wanted.iter().fold(1.0_f64, |size, value| size.max(value.abs()));
    assert_close(&y, &wanted, 2e-6 * size, &what);
    let (bias, residual) = (values.vec(n_out, 1.0), values.vec(m * n_out, 1.0));
    let mut biased = poison(m * n_out);
    cpu.linear(&x, &packed, Some(&bias), &mut biased);
    let mut added = residual.clone();
    cpu.linear_add(&x, &packed, &mut added);
    for i in 0..m * n_out {
        assert_eq!(biased[i].to_bits(), (y[i] + bias[i % n_out]).to_bits(), "{what}: bias");
        assert_eq!(added[i].to_bits(), (y[i] + residual[i]).to_bits(), "{what}: residual");
    }
    let mut row = poison(n_in);
    for i in [0, 2, n_out - 1] {
        packed.row(i, &mut row);
        assert_same_bits(&row, &weights[i * n_in..(i + 1) * n_in], &what);
    }
}

#[test]
fn bytes_cost_a_known_accuracy() {
    // Inputs lose at most half of a 127th of their block's largest.
    let (m, n_in, n_out) = (9, 576, 64);
    let rows = blocks(CODINGS[0], n_out, n_in, 3);
    let weights = dequantised(CODINGS[0], &rows);
    let x = Values::new(11).vec(m * n_in, 1.0);
    let wanted = reference::linear(&x, &weights, n_in, None);
    for_each_cpu(|cpu| {
        let mut y = poison(m * n_out);
        cpu.linear(&x, &pack(cpu, CODINGS[0], n_in, &rows), None, &mut y);
        let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
        let error = square(&mut y.iter().zip(&wanted).map(|(&got, want)| f64::from(got) - want));
        let size = square(&mut wanted.iter().copied());
        assert!((error / size).sqrt() < 0.005, "{}", (error / size).sqrt());
    });
}

#[test]
fn weights_are_rounded_to_the_nearest_of_eight_bits() {
    let mut values = Values::new(2);
    for scale in [1e-3, 1.0, 50.0] {
        let weights: [f32; 32] = std::array::from_fn(|_| values.next(scale));
        let block = WeightBlock::rounded(&weights);
        let largest = weights.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
        for (weight, code) in weights.iter().zip(block.codes) {
            let back = block.scale * (f32::from(code) - 128.0);
            // The scale itself is rounded to 11 bits.
            assert!((weight - back).abs() <= 0.51 * largest / 127.0 + largest / 2048.0);
        }
    }
    assert_eq!(WeightBlock::rounded(&[0.0; 32]).scale, 0.0);
}

#[test]
fn machines_without_the_instructions_give_the_same_bits() {
    let (m, n_in, n_out) = (41, 96, 70);
    let x = Values::new(4).vec(m * n_in, 3.0);
    for isa in [Isa::Avx512, Isa::Avx2] {
        if !isa.is_available() {
            eprintln!("SKIPPED: this machine has no {}", isa.name());
            continue;
        }
        let with = Cpu::new(isa, Threads::new(1));
        if !with.has_vnni() {
            eprintln!("SKIPPED: this machine has no VNNI for {}", isa.name());
        }
        if isa == Isa::Avx512 && !with.has_tiles() {
            eprintln!("SKIPPED: this machine has no tile registers");
        }
        let without_tiles = Cpu::new(isa, Threads::new(1)).without_tiles();
        let without = Cpu::new(isa, Threads::new(1)).without_vnni();
        for coding in CODINGS {
            let rows = blocks(coding, n_out, n_in, 9);
            let product = |cpu: &Cpu| {
                let mut y = poison(m * n_out);
                cpu.linear(&x, &pack(cpu, coding, n_in, &rows), None, &mut y);
                y
            };
            assert_same_bits(&product(&with), &product(&without_tiles), isa.name());
            assert_same_bits(&product(&with), &product(&without), isa.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn rows_chunks_and_threads_change_no_bit(
        m in 1usize..40,
        n_blocks in 1usize..6,
        n_out in 1usize..140,
        chunk in 1usize..14,
        coding in 0usize..CODINGS.len(),
        seed: u64,
    ) {
        let (n_in, coding) = (32 * n_blocks, CODINGS[coding]);
        let rows = blocks(coding, n_out, n_in, seed);
        let x = Values::new(seed).vec(m * n_in, 2.0);
        for isa in Isa::available() {
            let one = Cpu::new(isa, Threads::new(1));
            let packed = pack(&one, coding, n_in, &rows);
            let mut whole = poison(m * n_out);
            one.linear(&x, &packed, None, &mut whole);
            let mut three = poison(m * n_out);
            Cpu::new(isa, Threads::new(3)).linear(&x, &packed, None, &mut three);
            assert_same_bits(&three, &whole, isa.name());
            for start in (0..m).step_by(chunk) {
                let end = m.min(start + chunk);
                let mut y = poison((end - start) * n_out);
                one.linear(&x[start * n_in..end * n_in], &packed, None, &mut y);
                assert_same_bits(&y, &whole[start * n_out..end * n_out], isa.name());
            }
        }
    }
}
