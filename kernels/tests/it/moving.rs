//! Moving a block: relocation of K, and rotation of queries instead.

use proptest::prelude::*;
use skillgraft_kernels::{
    AttentionShape, Cpu, HeadRows, Isa, KvShape, QueryFrames, Threads, reference,
};
use skillgraft_kv::{KvBuffer, KvDtype, Position, PositionDelta, RopePairing};

use crate::common::{
    Page, Values, assert_close, assert_same_bits, for_each_cpu, poison, rope, segment,
};

const DTYPES: [KvDtype; 2] = [KvDtype::F16, KvDtype::F32];

fn pairing() -> impl Strategy<Value = RopePairing> {
    prop_oneof![Just(RopePairing::HalfSplit), Just(RopePairing::Interleaved)]
}

#[test]
fn relocation_is_the_reference_rotation() {
    for_each_cpu(|cpu| {
        for (from, to) in DTYPES.into_iter().flat_map(|from| DTYPES.map(|to| (from, to))) {
            for (head_dim, rotary_dim) in [(64, 64), (24, 24), (80, 20), (7, 6)] {
                let shape = KvShape { n_kv_heads: 3, n_tokens: 5, head_dim };
                let source = Page::random(from, shape, 8, &mut Values::new(6), 4.0);
                let table = rope(rotary_dim, RopePairing::HalfSplit);
                let delta = PositionDelta(-1234);
                let mut target = Page::poisoned(to, shape, 9);
                cpu.relocate(&table, delta, source.source(), shape, target.target(2));
                let wanted = reference::relocate(&table, delta, source.source(), shape);
                let tolerance = if to == KvDtype::F16 { 5e-4 } else { 1e-6 };
                assert_close(&target.values(2, 7), &wanted, tolerance, cpu.isa().name());
                for (first, end) in [(0, 2), (7, 9)] {
                    assert!(target.values(first, end).iter().all(|x| x.is_nan()));
                }
            }
        }
    });
}

#[test]
fn moving_by_nothing_keeps_every_bit() {
    // All patterns, infinities, signalling NaNs and negative zeros among them.
    let shape = KvShape { n_kv_heads: 1, n_tokens: 2048, head_dim: 32 };
    let all = Page { buffer: KvBuffer::F16((0..=u16::MAX).collect()), capacity: 2048, shape };
    let table = rope(32, RopePairing::Interleaved);
    for_each_cpu(|cpu| {
        let mut moved = Page::poisoned(KvDtype::F16, shape, 2048);
        cpu.relocate(&table, PositionDelta(0), all.source(), shape, moved.target(0));
        assert_eq!(moved.buffer, all.buffer);
        let mut copied = Page::poisoned(KvDtype::F16, shape, 2048);
        cpu.copy_kv(all.source(), shape, copied.target(0));
        assert_eq!(copied.buffer, all.buffer);
        // Widened and narrowed again, all but NaN payloads survive.
        let mut wide = Page::poisoned(KvDtype::F32, shape, 2048);
        cpu.copy_kv(all.source(), shape, wide.target(0));
        let KvBuffer::F32(values) = &wide.buffer else { unreachable!("made as f32") };
        for (bits, value) in (0..=u16::MAX).zip(values) {
            let wanted = half::f16::from_bits(bits).to_f32();
            let same = value.to_bits() == wanted.to_bits() || value.is_nan() && wanted.is_nan();
            assert!(same, "{bits:#06x} became {value}, not {wanted}");
        }
        let mut narrow = Page::poisoned(KvDtype::F16, shape, 2048);
        cpu.copy_kv(wide.source(), shape, narrow.target(0));
        let KvBuffer::F16(bits) = &narrow.buffer else { unreachable!("made as f16") };
        for (wanted, &bits) in (0..=u16::MAX).zip(bits) {
            let nan = half::f16::from_bits(wanted).is_nan() && half::f16::from_bits(bits).is_nan();
            assert!(bits == wanted || nan, "{wanted:#06x} came back as {bits:#06x}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn narrowing_rounds_to_nearest_even(bits in prop::collection::vec(any::<u32>(), 33)) {
        let shape = KvShape { n_kv_heads: 1, n_tokens: 33, head_dim: 1 };
        let values: Vec<f32> = bits
            .iter()
            .flat_map(|&bits| [f32::from_bits(bits), f32::from_bits(bits % (1 << 27) + 0x3300_0000)])
            .take(33)
            .collect();
        for isa in Isa::available() {
            let cpu = Cpu::new(isa, Threads::new(1));
            let mut page = Page::poisoned(KvDtype::F16, shape, 33);
            cpu.store_kv(HeadRows::contiguous(&values, 1, 1), shape, page.target(0));
            let wanted: Vec<f32> =
                values.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect();
            for (got, wanted) in page.values(0, 33).iter().zip(wanted) {
                prop_assert!(got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan());
            }
        }
    }

    #[test]
    fn two_moves_are_one(
        a in -3000i32..3000,
        b in -3000i32..3000,
        pairing in pairing(),
        seed: u64,
    ) {
        let shape = KvShape { n_kv_heads: 2, n_tokens: 3, head_dim: 24 };
        let source = Page::random(KvDtype::F32, shape, 3, &mut Values::new(seed), 1.0);
        let table = rope(24, pairing);
        for isa in Isa::available() {
            let cpu = Cpu::new(isa, Threads::new(1));
            let by = |delta, page: &Page| {
                let mut moved = Page::poisoned(KvDtype::F32, shape, 3);
                cpu.relocate(&table, PositionDelta(delta), page.source(), shape, moved.target(0));
                moved
            };
            let twice: Vec<f64> =
                by(b, &by(a, &source)).values(0, 3).into_iter().map(f64::from).collect();
            assert_close(&by(a + b, &source).values(0, 3), &twice, 1e-6, isa.name());
        }
    }

    #[test]
    fn scores_depend_on_distance_only(
        m in 0i64..4000,
        n in 0i64..4000,
        by in -4000i64..4000,
        pairing in pairing(),
        seed: u64,
    ) {
        let table = rope(64, pairing);
        let mut values = Values::new(seed);
        let (q, k) = (values.vec(64, 1.0), values.vec(64, 1.0));
        let cpu = Cpu::detect();
        let at = |x: &[f32], position: i64| {
            let mut x = x.to_vec();
            cpu.rotate(&mut x, 64, 1, 64, &table.angles([position]));
            x
        };
        let dot = |q: Vec<f32>, k: Vec<f32>| -> f32 { q.iter().zip(&k).map(|(q, k)| q * k).sum() };
        let (here, there) = (dot(at(&q, m), at(&k, n)), dot(at(&q, m + by), at(&k, n + by)));
        prop_assert!((here - there).abs() < 1e-5, "{} and {}", here, there);
    }

    #[test]
    fn rotating_queries_is_relocating_keys(
        delta in -2000i32..2000,
        n_block in 1usize..90,
        n_rows in 1usize..5,
        pairing in pairing(),
        seed: u64,
    ) {
        let (n_heads, n_kv_heads, head_dim) = (6, 2, 32);
        let table = rope(32, pairing);
        let mut values = Values::new(seed);
        let block = KvShape { n_kv_heads, n_tokens: n_block, head_dim };
        let live = KvShape { n_tokens: n_rows, ..block };
        let k = Page::random(KvDtype::F32, block, n_block, &mut values, 1.0);
        let v = Page::random(KvDtype::F32, block, n_block, &mut values, 1.0);
        let live_k = Page::random(KvDtype::F32, live, 7, &mut values, 1.0);
        let live_v = Page::random(KvDtype::F32, live, 7, &mut values, 1.0);
        let q = values.vec(n_rows * n_heads * head_dim, 1.0);
        let positions: Vec<Position> = (0..n_rows as u32).map(|i| Position(2500 + i)).collect();
        let deltas = [PositionDelta(0), PositionDelta(delta)];
        let shape = AttentionShape { n_rows, n_heads, n_kv_heads, head_dim, scale: 1.0, window: None };
        for isa in Isa::available() {
            let cpu = Cpu::new(isa, Threads::new(1));
            let frames = QueryFrames::new(&table, &positions, deltas);
            let mut framed = poison(frames.n_frames() * q.len());
            let rows = HeadRows::contiguous(&q, n_heads, head_dim);
            cpu.query_frames(&frames, rows, n_heads, head_dim, &mut framed);
            let attend = |k: &Page, delta: PositionDelta| {
                let frame = frames.index_of(delta).expect("a frame for each delta");
                let segments = [segment(k, &v, frame), segment(&live_k, &live_v, 0)];
                let mut out = poison(q.len());
                cpu.segment_attention(&shape, &framed, &segments, &mut out);
                out
            };
            let mut placed = Page::poisoned(KvDtype::F32, block, n_block);
            cpu.relocate(&table, PositionDelta(delta), k.source(), block, placed.target(0));
            let wanted: Vec<f64> =
                attend(&placed, PositionDelta(0)).into_iter().map(f64::from).collect();
            assert_close(&attend(&k, PositionDelta(delta)), &wanted, 1e-5, isa.name());
        }
    }
}

#[test]
fn frames_are_shared_by_equal_deltas() {
    let table = rope(8, RopePairing::HalfSplit);
    let deltas = [3, 0, 3, -2, 0].map(PositionDelta);
    let frames = QueryFrames::new(&table, &[Position(5), Position(6)], deltas);
    assert_eq!(frames.deltas(), [3, 0, -2].map(PositionDelta));
    assert_eq!(frames.index_of(PositionDelta(-2)), Some(2));
    assert_eq!(frames.index_of(PositionDelta(7)), None);
    let q = Values::new(1).vec(2 * 8, 1.0);
    let cpu = Cpu::detect();
    let mut framed = poison(3 * 16);
    cpu.query_frames(&frames, HeadRows::contiguous(&q, 1, 8), 1, 8, &mut framed);
    let mut moved = q.clone();
    cpu.rotate(&mut moved, 8, 1, 8, &table.angles([7, 8]));
    assert_same_bits(&framed[32..], &moved, "the frame of a segment moved back by 2");
}
