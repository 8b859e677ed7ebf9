//! The contract of a backend: every operation, against the reference in `f64`,
//! on odd sizes, mixed types, poisoned outputs and pages with spare room.

use skillgraft_kernels::{
    AttentionFactors, AttentionShape, Cpu, Gate, HeadRows, KvShape, PackedLinear, QueryFrames,
    RopeTable, reference,
};
use skillgraft_kv::{KvDtype, Position, PositionDelta, RopePairing, RopeScaling, RopeSpec};

use crate::common::{
    Page, Values, assert_close, for_each_attention, for_each_cpu, name, poison, rope, segment,
};

#[test]
fn linear_is_the_product() {
    for_each_cpu(|cpu| {
        for (n_in, n_out) in [(7, 33), (576, 5), (64, 160), (512, 48), (1, 1)] {
            for m in 0..=13 {
                check_linear(cpu, m, n_in, n_out);
            }
        }
        check_linear(cpu, 245, 19, 70);
    });
}

fn check_linear(cpu: &Cpu, m: usize, n_in: usize, n_out: usize) {
    let mut values = Values::new((m * n_in + n_out) as u64);
    let (x, weights) = (values.vec(m * n_in, 2.0), values.vec(n_out * n_in, 0.5));
    let bias = values.vec(n_out, 1.0);
    let packed = PackedLinear::from_row_major(cpu, n_out, n_in, &weights);
    let what = format!("{} {m}x{n_in}x{n_out}", cpu.isa().name());
    let product = reference::linear(&x, &weights, n_in, None);
    let tolerance = 1e-6 * (n_in as f64).sqrt();

    let mut y = poison(m * n_out);
    cpu.linear(&x, &packed, None, &mut y);
    assert_close(&y, &product, tolerance, &what);

    let mut y = poison(m * n_out);
    cpu.linear(&x, &packed, Some(&bias), &mut y);
    assert_close(&y, &reference::linear(&x, &weights, n_in, Some(&bias)), tolerance, &what);

    let residual = values.vec(m * n_out, 3.0);
    let mut y = residual.clone();
    cpu.linear_add(&x, &packed, &mut y);
    let sum: Vec<f64> = product.iter().zip(residual).map(|(p, r)| p + f64::from(r)).collect();
    assert_close(&y, &sum, tolerance, &what);
}

#[test]
fn packed_rows_read_back() {
    for_each_cpu(|cpu| {
        let (n_out, n_in) = (71, 19);
        let weights = Values::new(5).vec(n_out * n_in, 1.0);
        // Rows are taken in another order, as a loader does that undoes a permutation.
        let packed = PackedLinear::from_rows(cpu, n_out, n_in, |i, row| {
            row.copy_from_slice(&weights[(n_out - 1 - i) * n_in..][..n_in]);
        });
        for i in 0..n_out {
            let mut row = poison(n_in);
            packed.row(i, &mut row);
            assert_eq!(row, weights[(n_out - 1 - i) * n_in..][..n_in]);
        }
        assert_eq!((packed.n_out(), packed.n_in()), (n_out, n_in));
        assert_eq!(packed.bytes(), 3 * 32 * n_in * 4);
    });
}

#[test]
fn rms_norm_and_gates() {
    for_each_cpu(|cpu| {
        let what = cpu.isa().name();
        for (m, n) in [(1, 1), (3, 7), (5, 64), (2, 576), (700, 50)] {
            let mut values = Values::new((m * n) as u64);
            let (x, weight) = (values.vec(m * n, 3.0), values.vec(n, 1.0));
            let mut out = poison(m * n);
            cpu.rms_norm(&x, &weight, 1e-5, &mut out);
            assert_close(&out, &reference::rms_norm(&x, &weight, 1e-5), 2e-6, what);

            let (gate, up) = (values.vec(m * n, 20.0), values.vec(m * n, 2.0));
            let joined: Vec<f32> = gate
                .chunks(n)
                .zip(up.chunks(n))
                .flat_map(|(gate, up)| [gate, up].concat())
                .collect();
            for kind in [Gate::Silu, Gate::GeluTanh] {
                let mut out = poison(m * n);
                cpu.gated(kind, &joined, n, &mut out);
                assert_close(&out, &reference::gated(kind, &gate, &up), 4e-6, what);
            }

            let mut sum = gate.clone();
            cpu.add(&mut sum, &up);
            assert!(sum.iter().zip(gate.iter().zip(&up)).all(|(sum, (a, b))| *sum == a + b));
        }
    });
}

#[test]
fn gates_at_the_extremes() {
    for_each_cpu(|cpu| {
        let gate = [-1e4, -200.0, -90.0, -0.0, 0.0, 90.0, 1e4, f32::NAN];
        for kind in [Gate::Silu, Gate::GeluTanh] {
            let mut out = poison(gate.len());
            cpu.gated(kind, &[gate, [1.0; 8]].concat(), 8, &mut out);
            assert_eq!(out[..7], [0.0, 0.0, 0.0, 0.0, 0.0, 90.0, 1e4]);
            assert!(out[7].is_nan(), "a NaN must not vanish");
        }
    });
}

#[test]
fn norm_of_heads_leaves_gaps_alone() {
    for_each_cpu(|cpu| {
        for (n_rows, n_heads, head_dim) in [(1, 1, 1), (5, 3, 10), (67, 2, 64), (3, 5, 33)] {
            let row_stride = n_heads * head_dim + 7;
            let mut values = Values::new(11);
            let weight = values.vec(head_dim, 1.0);
            let heads = values.vec(n_rows * n_heads * head_dim, 3.0);
            let mut x = poison((n_rows - 1) * row_stride + n_heads * head_dim);
            for (row, heads) in x.chunks_mut(row_stride).zip(heads.chunks(n_heads * head_dim)) {
                row[..n_heads * head_dim].copy_from_slice(heads);
            }
            cpu.head_norm(&mut x, row_stride, n_rows, n_heads, &weight, 1e-6);
            let rows = x.chunks(row_stride);
            assert!(rows.clone().all(|row| row[n_heads * head_dim..].iter().all(|x| x.is_nan())));
            let got: Vec<f32> = rows.flat_map(|row| row[..n_heads * head_dim].to_vec()).collect();
            let wanted = reference::rms_norm(&heads, &weight, 1e-6);
            assert_close(&got, &wanted, 2e-6, cpu.isa().name());
        }
    });
}

#[test]
fn rotation_in_place_leaves_gaps_alone() {
    for_each_cpu(|cpu| {
        let (n_rows, n_heads, head_dim, row_stride) = (67, 3, 10, 37);
        for pairing in [RopePairing::HalfSplit, RopePairing::Interleaved] {
            let table = rope(6, pairing);
            let positions: Vec<i64> = (0..n_rows).map(|i| 13 * i - 40).collect();
            let mut values = Values::new(9);
            let heads = values.vec(n_rows as usize * n_heads * head_dim, 2.0);
            let mut x = poison((n_rows as usize - 1) * row_stride + n_heads * head_dim);
            for (row, heads) in x.chunks_mut(row_stride).zip(heads.chunks(n_heads * head_dim)) {
                row[..n_heads * head_dim].copy_from_slice(heads);
            }
            cpu.rotate(&mut x, row_stride, n_heads, head_dim, &table.angles(positions.clone()));
            let rows = x.chunks(row_stride);
            assert!(rows.clone().all(|row| row[n_heads * head_dim..].iter().all(|x| x.is_nan())));
            let got: Vec<f32> = rows.flat_map(|row| row[..n_heads * head_dim].to_vec()).collect();
            let wanted = reference::rotate(&heads, n_heads, &table, &positions);
            assert_close(&got, &wanted, 1e-6, cpu.isa().name());
        }
    });
}

#[test]
fn stored_rows_land_where_they_belong() {
    for_each_cpu(|cpu| {
        for dtype in [KvDtype::F16, KvDtype::F32] {
            for head_dim in [16, 24, 5] {
                let shape = KvShape { n_kv_heads: 3, n_tokens: 4, head_dim };
                let row_stride = 3 * head_dim + 2;
                let rows = Values::new(3).vec(4 * row_stride, 2.0);
                let mut page = Page::poisoned(dtype, shape, 9);
                cpu.store_kv(HeadRows { data: &rows, row_stride }, shape, page.target(3));
                for (first, end) in [(0, 3), (7, 9)] {
                    assert!(page.values(first, end).iter().all(|x| x.is_nan()));
                }
                let wanted: Vec<f32> = (0..3)
                    .flat_map(|head| (0..4).map(move |token| token * row_stride + head * head_dim))
                    .flat_map(|start| rows[start..start + head_dim].to_vec())
                    .map(|x| match dtype {
                        KvDtype::F16 => half::f16::from_f32(x).to_f32(),
                        KvDtype::F32 => x,
                    })
                    .collect();
                assert_eq!(page.values(3, 7), wanted);
            }
        }
    });
}

/// A segment of a test: tokens, how far it was moved, its type, its spare room.
type Piece = (usize, i32, KvDtype, usize);

fn check_attention(cpu: &Cpu, shape: AttentionShape, table: &RopeTable, pieces: &[Piece]) {
    let AttentionShape { n_rows, n_heads, n_kv_heads, head_dim, .. } = shape;
    let mut values = Values::new((n_rows * head_dim + pieces.len()) as u64);
    let pages: Vec<[Page; 2]> = pieces
        .iter()
        .map(|&(n_tokens, _, dtype, spare)| {
            let span = KvShape { n_kv_heads, n_tokens, head_dim };
            [3.0, 1.0].map(|scale| Page::random(dtype, span, n_tokens + spare, &mut values, scale))
        })
        .collect();
    let n_context: usize = pieces.iter().map(|piece| piece.0).sum();
    let q = values.vec(n_rows * n_heads * head_dim, 3.0);
    let first = (n_context - n_rows + 1000) as u32;
    let positions: Vec<Position> = (0..n_rows as u32).map(|i| Position(first + i)).collect();
    let deltas = pieces.iter().map(|piece| PositionDelta(piece.1));
    let frames = QueryFrames::new(table, &positions, deltas);
    let mut framed = poison(frames.n_frames() * q.len());
    let rows = HeadRows::contiguous(&q, n_heads, head_dim);
    cpu.query_frames(&frames, rows, n_heads, head_dim, &mut framed);

    let frame = |delta| frames.index_of(PositionDelta(delta)).expect("a frame for each delta");
    let segments: Vec<_> =
        pages.iter().zip(pieces).map(|([k, v], piece)| segment(k, v, frame(piece.1))).collect();
    let mut out = poison(q.len());
    cpu.segment_attention(&shape, &framed, &segments, &mut out);

    let placed: Vec<reference::Segment<'_>> = pages
        .iter()
        .zip(pieces)
        .map(|([k, v], piece)| reference::Segment {
            k: k.source(),
            v: v.source(),
            n_tokens: piece.0,
            delta: PositionDelta(piece.1),
        })
        .collect();
    let positions: Vec<i64> = positions.iter().map(|position| i64::from(position.0)).collect();
    let wanted = reference::segment_attention(&shape, table, &q, &positions, &placed);
    let what = format!("{} {shape:?} {pieces:?}", name(cpu));
    assert_close(&out, &wanted, tolerance(cpu), &what);
}

/// What rounding of factors to 8 bits may cost with scores of around 3 and values
/// of at most 1; `f32` for comparison.
fn tolerance(cpu: &Cpu) -> f64 {
    match cpu.attention_factors() {
        AttentionFactors::F32 => 2e-5,
        AttentionFactors::Bf16 | AttentionFactors::Bf16Tiles => 3e-2,
    }
}

fn shape(n_rows: usize, heads: (usize, usize), head_dim: usize) -> AttentionShape {
    let scale = (head_dim as f32).sqrt().recip();
    AttentionShape { n_rows, n_heads: heads.0, n_kv_heads: heads.1, head_dim, scale, window: None }
}

#[test]
fn attention_over_one_segment() {
    for_each_attention(|cpu| {
        for head_dim in [16, 24, 64, 80] {
            let table = rope(head_dim, RopePairing::HalfSplit);
            for n_tokens in [1, 31, 33, 257] {
                for n_rows in [1, 3, 37] {
                    if n_rows <= n_tokens {
                        let pieces = [(n_tokens, 0, KvDtype::F16, 3)];
                        check_attention(cpu, shape(n_rows, (6, 2), head_dim), &table, &pieces);
                    }
                }
            }
        }
    });
}

#[test]
fn attention_over_moved_segments_of_both_types() {
    for_each_attention(|cpu| {
        let pieces = [
            (17, 0, KvDtype::F32, 0),
            (70, 513, KvDtype::F16, 0),
            (0, 513, KvDtype::F16, 5),
            (1, -29, KvDtype::F32, 1),
            (33, 513, KvDtype::F16, 2),
            (13, 0, KvDtype::F16, 51),
        ];
        for (heads, head_dim) in
            [((9, 3), 64), ((4, 4), 24), ((5, 1), 80), ((2, 1), 33), ((8, 2), 128)]
        {
            for pairing in [RopePairing::HalfSplit, RopePairing::Interleaved] {
                let table = rope(head_dim - head_dim % 2, pairing);
                for n_rows in [1, 2, 14] {
                    check_attention(cpu, shape(n_rows, heads, head_dim), &table, &pieces);
                }
            }
        }
    });
}

#[test]
fn attention_with_a_scale_of_its_own_and_partial_rotation() {
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 512,
        attention_factor: None,
    };
    let pairing = RopePairing::HalfSplit;
    let table = RopeTable::new(&RopeSpec { theta: 1e4, rotary_dim: 20, pairing, scaling });
    for_each_attention(|cpu| {
        let pieces = [(40, 300, KvDtype::F16, 1), (9, 0, KvDtype::F16, 7)];
        check_attention(cpu, shape(4, (3, 1), 32), &table, &pieces);
    });
}

#[test]
fn attention_within_a_window() {
    for_each_attention(|cpu| {
        let table = rope(16, RopePairing::HalfSplit);
        let pieces = [
            (130, 0, KvDtype::F16, 3),
            (70, 513, KvDtype::F16, 0),
            (93, 0, KvDtype::F32, 5),
            (147, 0, KvDtype::F16, 1),
        ];
        for n_rows in [1, 37] {
            for window in [1, 16, 63, 100, 300, 440] {
                let plain = shape(n_rows, (6, 2), 16);
                let shape = AttentionShape { window: Some(window), ..plain };
                check_attention(cpu, shape, &table, &pieces);
            }
        }
    });
}

#[test]
fn attention_of_nothing() {
    for_each_attention(|cpu| {
        let page =
            Page::poisoned(KvDtype::F16, KvShape { n_kv_heads: 1, n_tokens: 2, head_dim: 16 }, 2);
        let segment = segment(&page, &page, 0);
        cpu.segment_attention(&shape(0, (1, 1), 16), &[], &[segment], &mut []);
    });
}

#[test]
fn distinct_scores_choose_the_right_value() {
    // One key fits the query so well that its value is the answer, at each place.
    for_each_attention(|cpu| {
        let span = KvShape { n_kv_heads: 1, n_tokens: 100, head_dim: 16 };
        for place in [0, 15, 16, 63, 64, 99] {
            let mut k = Page::random(KvDtype::F32, span, 100, &mut Values::new(1), 0.0);
            let mut v = Page::poisoned(KvDtype::F32, span, 100);
            // Whole numbers, which no kind of factors rounds.
            let whole: Vec<f32> =
                Values::new(2).vec(100 * 16, 100.0).iter().map(|value| value.round()).collect();
            cpu.store_kv(HeadRows::contiguous(&whole, 1, 16), span, v.target(0));
            let chosen = vec![30.0; 16];
            let one = KvShape { n_tokens: 1, ..span };
            cpu.store_kv(HeadRows::contiguous(&chosen, 1, 16), one, k.target(place));
            let segment = segment(&k, &v, 0);
            let mut out = poison(16);
            cpu.segment_attention(&shape(1, (1, 1), 16), &[4.0; 16], &[segment], &mut out);
            assert_eq!(out, v.values(place, place + 1), "{} {place}", name(cpu));
        }
    });
}

#[test]
fn equal_scores_give_the_mean_of_all_that_is_seen() {
    // Whole numbers are exact in every kind of factors: a token too few or too many
    // shows.
    for_each_attention(|cpu| {
        for (n_tokens, head_dim, window) in [
            (1, 16, None),
            (33, 24, None),
            (97, 33, Some(40)),
            (131, 64, None),
            (200, 80, Some(65)),
        ] {
            let span = KvShape { n_kv_heads: 2, n_tokens, head_dim };
            let mut values = Values::new(n_tokens as u64);
            let k = Page::random(KvDtype::F16, span, n_tokens + 3, &mut values, 2.0);
            let mut v = Page::poisoned(KvDtype::F16, span, n_tokens + 3);
            let whole: Vec<f32> =
                (0..n_tokens * 2 * head_dim).map(|_| values.next(100.0).round()).collect();
            cpu.store_kv(HeadRows::contiguous(&whole, 2, head_dim), span, v.target(0));
            let n_rows = n_tokens.min(37);
            let shape = AttentionShape { window, ..shape(n_rows, (6, 2), head_dim) };
            let mut out = poison(n_rows * 6 * head_dim);
            let q = vec![0.0; out.len()];
            cpu.segment_attention(&shape, &q, &[segment(&k, &v, 0)], &mut out);
            for (i, &got) in out.iter().enumerate() {
                let (row, head, d) = (i / head_dim / 6, i / head_dim % 6, i % head_dim);
                let end = n_tokens - n_rows + row + 1;
                let start = window.map_or(0, |window| end.saturating_sub(window));
                let seen = (start..end).map(|at| whole[(at * 2 + head / 3) * head_dim + d]);
                let wanted = seen.sum::<f32>() / (end - start) as f32;
                assert!(
                    (got - wanted).abs() < 1e-4,
                    "{} {shape:?} {row}: {got} {wanted}",
                    name(cpu)
                );
            }
        }
    });
}
