//! What the tests share: values, processors, comparisons.

use skillgraft_kernels::{
    AttentionFactors, AttentionSegment, Cpu, Isa, KvShape, KvSource, KvTarget, RopeTable, Threads,
};
use skillgraft_kv::{KvBuffer, KvDtype, KvView, RopePairing, RopeScaling, RopeSpec};

/// Calls `check` for each instruction set, on 1 and on 3 threads. One that the
/// machine lacks is reported.
pub(crate) fn for_each_cpu(check: impl Fn(&Cpu)) {
    for isa in Isa::ALL {
        if !isa.is_available() {
            eprintln!("SKIPPED: this machine has no {}", isa.name());
            continue;
        }
        for n_threads in [1, 3] {
            check(&Cpu::new(isa, Threads::new(n_threads)));
        }
    }
}

/// The same, for each kind of factors in attention too.
pub(crate) fn for_each_attention(check: impl Fn(&Cpu)) {
    for n_threads in [1, 3] {
        for cpu in attention_cpus(n_threads) {
            check(&cpu);
        }
    }
    for factors in AttentionFactors::ALL {
        if !factors.is_available(Isa::detect()) {
            eprintln!("SKIPPED: this machine has no attention with {}", factors.name());
        }
    }
}

/// All that this machine has.
pub(crate) fn attention_cpus(n_threads: usize) -> Vec<Cpu> {
    let all = Isa::available().into_iter().flat_map(|isa| {
        AttentionFactors::ALL
            .map(|factors| Cpu::new(isa, Threads::new(n_threads)).with_attention(factors))
    });
    all.flatten().collect()
}

/// What a failed assertion names.
pub(crate) fn name(cpu: &Cpu) -> String {
    format!("{} {}", cpu.isa().name(), cpu.attention_factors().name())
}

/// Repeatable values in `-scale..scale`.
pub(crate) struct Values(u64);

impl Values {
    pub(crate) fn new(seed: u64) -> Self {
        Values(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self, scale: f32) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
    }

    pub(crate) fn vec(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.next(scale)).collect()
    }
}

/// `n` values that no kernel may leave.
pub(crate) fn poison(n: usize) -> Vec<f32> {
    vec![f32::NAN; n]
}

/// Asserts that `got` is within `tolerance` of `wanted`, relative to the larger
/// of 1 and its magnitude.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let error = (f64::from(got) - wanted).abs() / wanted.abs().max(1.0);
        assert!(error <= tolerance, "{what}: element {i} is {got}, not {wanted}");
    }
}

/// Asserts equality to the bit.
#[track_caller]
pub(crate) fn assert_same_bits(got: &[f32], wanted: &[f32], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert_eq!(got.to_bits(), wanted.to_bits(), "{what}: element {i} is {got}, not {wanted}");
    }
}

/// One head dimension's plain rotation.
pub(crate) fn rope(rotary_dim: usize, pairing: RopePairing) -> RopeTable {
    let scaling = RopeScaling::None;
    RopeTable::new(&RopeSpec { theta: 1e4, rotary_dim, pairing, scaling })
}

/// An owned K or V tensor with room for more tokens than it holds. The room is
/// poisoned with NaN.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) buffer: KvBuffer,
    pub(crate) capacity: usize,
    pub(crate) shape: KvShape,
}

impl Page {
    pub(crate) fn poisoned(dtype: KvDtype, shape: KvShape, capacity: usize) -> Self {
        let n = shape.n_kv_heads * capacity * shape.head_dim;
        let buffer = match dtype {
            KvDtype::F16 => KvBuffer::F16(vec![0x7e01; n]),
            KvDtype::F32 => KvBuffer::F32(vec![f32::NAN; n]),
        };
        Page { buffer, capacity, shape }
    }

    pub(crate) fn random(
        dtype: KvDtype,
        shape: KvShape,
        capacity: usize,
        values: &mut Values,
        scale: f32,
    ) -> Self {
        let mut page = Page::poisoned(dtype, shape, capacity);
        for head in 0..shape.n_kv_heads {
            for i in 0..shape.n_tokens * shape.head_dim {
                let at = head * page.head_stride() + i;
                let value = values.next(scale);
                match &mut page.buffer {
                    KvBuffer::F16(to) => to[at] = half::f16::from_f32(value).to_bits(),
                    KvBuffer::F32(to) => to[at] = value,
                }
            }
        }
        page
    }

    pub(crate) fn head_stride(&self) -> usize {
        self.capacity * self.shape.head_dim
    }

    pub(crate) fn source(&self) -> KvSource<'_> {
        KvSource { view: self.buffer.view(), head_stride: self.head_stride() }
    }

    /// Tokens from `first` on.
    pub(crate) fn view_from(&self, first: usize) -> KvView<'_> {
        self.buffer.view().slice(first * self.shape.head_dim, self.buffer.len())
    }

    pub(crate) fn target(&mut self, at_token: usize) -> KvTarget<'_> {
        let head_stride = self.head_stride();
        KvTarget { buffer: &mut self.buffer, head_stride, at_token }
    }

    /// The tokens from `first` to `end` of each head, widened.
    pub(crate) fn values(&self, first: usize, end: usize) -> Vec<f32> {
        let dim = self.shape.head_dim;
        (0..self.shape.n_kv_heads)
            .flat_map(|head| {
                let start = head * self.head_stride();
                match self.buffer.view().slice(start + first * dim, start + end * dim) {
                    KvView::F16(bits) => {
                        bits.iter().map(|&b| half::f16::from_bits(b).to_f32()).collect()
                    }
                    KvView::F32(values) => values.to_vec(),
                }
            })
            .collect()
    }
}

/// K and V that lie alike, as a segment read through `frame`.
pub(crate) fn segment<'a>(k: &'a Page, v: &'a Page, frame: usize) -> AttentionSegment<'a> {
    assert_eq!((k.shape, k.capacity), (v.shape, v.capacity));
    AttentionSegment {
        k: k.buffer.view(),
        v: v.buffer.view(),
        n_tokens: k.shape.n_tokens,
        head_stride: k.head_stride(),
        frame,
    }
}
