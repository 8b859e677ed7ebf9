//! Row and boundary invariance: the same bits, however rows are batched, the
//! context is cut, and work is shared among threads.

use proptest::prelude::*;
use skillgraft_kernels::{
    AttentionShape, Cpu, Gate, Isa, KvShape, KvSource, PackedLinear, Threads,
};
use skillgraft_kv::KvDtype;

use crate::common::{Page, Values, assert_same_bits, attention_cpus, name, poison, segment};

fn cpus(n_threads: usize) -> Vec<Cpu> {
    Isa::available().into_iter().map(|isa| Cpu::new(isa, Threads::new(n_threads))).collect()
}

fn chunked(n: usize, chunk: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).step_by(chunk).map(move |start| (start, n.min(start + chunk)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn linear_of_many_rows_is_linear_of_each(
        m in 1usize..40,
        n_in in prop_oneof![1usize..70, Just(256), Just(512)],
        n_out in 1usize..200,
        chunk in 1usize..14,
        seed: u64,
    ) {
        let mut values = Values::new(seed);
        let (x, weights) = (values.vec(m * n_in, 2.0), values.vec(n_out * n_in, 1.0));
        let (bias, residual) = (values.vec(n_out, 1.0), values.vec(m * n_out, 1.0));
        for cpu in cpus(1) {
            let packed = PackedLinear::from_row_major(&cpu, n_out, n_in, &weights);
            let mut whole = poison(m * n_out);
            cpu.linear(&x, &packed, Some(&bias), &mut whole);
            let mut added = residual.clone();
            cpu.linear_add(&x, &packed, &mut added);
            for (start, end) in chunked(m, chunk) {
                let x = &x[start * n_in..end * n_in];
                let mut y = poison((end - start) * n_out);
                cpu.linear(x, &packed, Some(&bias), &mut y);
                assert_same_bits(&y, &whole[start * n_out..end * n_out], cpu.isa().name());
                let mut y = residual[start * n_out..end * n_out].to_vec();
                cpu.linear_add(x, &packed, &mut y);
                assert_same_bits(&y, &added[start * n_out..end * n_out], cpu.isa().name());
            }
        }
    }

    #[test]
    fn rows_of_elementwise_operations_stand_alone(
        m in 1usize..20,
        n in 1usize..150,
        seed: u64,
    ) {
        let mut values = Values::new(seed);
        let (x, weight) = (values.vec(m * n, 9.0), values.vec(n, 1.0));
        let gate_up = values.vec(2 * m * n, 20.0);
        for cpu in cpus(1) {
            let mut normed = poison(m * n);
            cpu.rms_norm(&x, &weight, 1e-6, &mut normed);
            let mut gated = poison(m * n);
            cpu.gated(Gate::GeluTanh, &gate_up, n, &mut gated);
            for i in 0..m {
                let mut row = poison(n);
                cpu.rms_norm(&x[i * n..(i + 1) * n], &weight, 1e-6, &mut row);
                assert_same_bits(&row, &normed[i * n..(i + 1) * n], cpu.isa().name());
                let mut row = poison(n);
                cpu.gated(Gate::GeluTanh, &gate_up[2 * i * n..2 * (i + 1) * n], n, &mut row);
                assert_same_bits(&row, &gated[i * n..(i + 1) * n], cpu.isa().name());
            }
        }
    }

    #[test]
    fn attention_knows_no_boundaries(
        n_rows in 1usize..40,
        before in 0usize..200,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        chunk in 1usize..40,
        (n_kv_heads, group) in prop_oneof![Just((1, 1)), Just((2, 3)), Just((3, 1)), Just((1, 7))],
        head_dim in prop_oneof![Just(16usize), Just(24), Just(64), Just(80)],
        dtype in prop_oneof![Just(KvDtype::F16), Just(KvDtype::F32)],
        window in proptest::option::of(1usize..200),
        seed: u64,
    ) {
        let n_context = before + n_rows;
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(n_context + 1)).collect();
        cuts.extend([0, n_context]);
        cuts.sort_unstable();
        let context = Context::new(n_context, n_kv_heads, head_dim, dtype, seed);
        let n_heads = n_kv_heads * group;
        let q = Values::new(seed ^ 1).vec(n_rows * n_heads * head_dim, 4.0);
        for cpu in attention_cpus(1) {
            let shape = AttentionShape { n_rows, n_heads, n_kv_heads, head_dim, scale: 0.3, window };
            let whole = context.attend(&cpu, shape, &q, &[0, n_context]);
            let cut = context.attend(&cpu, shape, &q, &cuts);
            assert_same_bits(&cut, &whole, &name(&cpu));
            let width = n_heads * head_dim;
            for (start, end) in chunked(n_rows, chunk) {
                let shape = AttentionShape { n_rows: end - start, ..shape };
                // The rows' chunk comes when later tokens are not there yet.
                let seen: Vec<usize> = cuts.iter().map(|&cut| cut.min(before + end)).collect();
                let rows = context.attend(&cpu, shape, &q[start * width..end * width], &seen);
                assert_same_bits(&rows, &whole[start * width..end * width], &name(&cpu));
            }
        }
    }
}

/// K and V of a whole context, from which segments are cut.
struct Context {
    k: Page,
    v: Page,
}

impl Context {
    fn new(n_tokens: usize, n_kv_heads: usize, head_dim: usize, dtype: KvDtype, seed: u64) -> Self {
        let mut values = Values::new(seed);
        let shape = KvShape { n_kv_heads, n_tokens, head_dim };
        let k = Page::random(dtype, shape, n_tokens, &mut values, 3.0);
        let v = Page::random(dtype, shape, n_tokens, &mut values, 1.0);
        Context { k, v }
    }

    /// Attention over the tokens between the first and the last of `cuts`, in
    /// the segments between them. Each is copied to a page of its own.
    fn attend(&self, cpu: &Cpu, shape: AttentionShape, q: &[f32], cuts: &[usize]) -> Vec<f32> {
        let pages: Vec<[Page; 2]> = cuts
            .windows(2)
            .map(|cut| {
                let span = KvShape { n_tokens: cut[1] - cut[0], ..self.k.shape };
                [&self.k, &self.v].map(|page| {
                    let dtype = page.buffer.dtype();
                    let mut own = Page::poisoned(dtype, span, span.n_tokens + 3);
                    let head_stride = page.head_stride();
                    let view = page.view_from(cut[0]);
                    let source = KvSource { view, head_stride };
                    cpu.copy_kv(source, span, own.target(0));
                    own
                })
            })
            .collect();
        let segments: Vec<_> = pages.iter().map(|[k, v]| segment(k, v, 0)).collect();
        let mut out = poison(q.len());
        cpu.segment_attention(&shape, q, &segments, &mut out);
        out
    }
}

#[test]
fn threads_change_nothing() {
    let mut values = Values::new(77);
    let (m, n_in, n_out) = (300, 130, 200);
    let (x, weights) = (values.vec(m * n_in, 2.0), values.vec(n_out * n_in, 1.0));
    let context = Context::new(310, 3, 64, KvDtype::F16, 5);
    let q = values.vec(m * 9 * 64, 4.0);
    let shape = AttentionShape {
        n_rows: m,
        n_heads: 9,
        n_kv_heads: 3,
        head_dim: 64,
        scale: 0.125,
        window: None,
    };
    let all = |cpu: &Cpu| {
        let packed = PackedLinear::from_row_major(cpu, n_out, n_in, &weights);
        let mut y = poison(m * n_out);
        cpu.linear(&x, &packed, None, &mut y);
        let mut normed = poison(m * n_in);
        cpu.rms_norm(&x, &weights[..n_in], 1e-5, &mut normed);
        [y, normed, context.attend(cpu, shape, &q, &[0, 310])]
    };
    for (one, three) in attention_cpus(1).iter().zip(attention_cpus(3)) {
        for (one, three) in all(one).iter().zip(all(&three)) {
            assert_same_bits(&three, one, "three threads");
        }
    }
}

#[test]
fn a_long_context_is_cut_into_smaller_items_alike() {
    // 6,000 scores a row leave room for 43 rows in an item, not 96.
    let context = Context::new(6000, 1, 16, KvDtype::F16, 8);
    let q = Values::new(4).vec(50 * 16, 4.0);
    let shape = AttentionShape {
        n_rows: 50,
        n_heads: 1,
        n_kv_heads: 1,
        head_dim: 16,
        scale: 0.25,
        window: None,
    };
    for cpu in attention_cpus(1) {
        let whole = context.attend(&cpu, shape, &q, &[0, 6000]);
        for i in [0, 42, 43, 49] {
            let one = AttentionShape { n_rows: 1, ..shape };
            let row = context.attend(&cpu, one, &q[i * 16..(i + 1) * 16], &[0, 5951 + i]);
            assert_same_bits(&row, &whole[i * 16..(i + 1) * 16], &name(&cpu));
        }
    }
}
