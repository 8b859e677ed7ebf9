//! Rows that products read: one token's K or V, a query, weights.

use skillgraft_kv::KvView;

use super::AttentionSegment;
use crate::cpu::kv::Element;
use crate::cpu::lanes::{LANES, Lanes, Operands, Vectors, padded};

/// How far ahead K and V are asked for, in bytes.
const PREFETCH_BYTES: usize = 2048;

/// One KV head of one token, `[head_dim]`.
#[derive(Clone, Copy)]
pub(super) enum KvRow<'a> {
    F16(&'a [u16]),
    F32(&'a [f32]),
    /// Zeros.
    Nothing,
}

impl<'a> KvRow<'a> {
    /// Elements `start..start + len` of `view`.
    #[inline(always)]
    fn of(view: KvView<'a>, start: usize, len: usize) -> Self {
        match view {
            KvView::F16(all) => KvRow::F16(&all[start..start + len]),
            KvView::F32(all) => KvRow::F32(&all[start..start + len]),
        }
    }

    /// Words of `tokens` of one KV head of a segment, `[n_tokens, padded_dim]`.
    #[inline(always)]
    pub(super) fn words_of<L: Lanes, O: Operands<L>>(
        view: KvView<'a>,
        start: usize,
        shape: [usize; 2],
        padded_dim: usize,
        to: &mut [f32],
    ) {
        let [n_tokens, head_dim] = shape;
        if O::PER_WORD * padded_dim == head_dim {
            let row = KvRow::of(view, start, n_tokens * head_dim);
            row.words::<L, O>(&mut to[..n_tokens * padded_dim]);
        } else {
            for (token, to) in to.chunks_exact_mut(padded_dim).take(n_tokens).enumerate() {
                let row = KvRow::of(view, start + token * head_dim, head_dim);
                row.words::<L, O>(to);
            }
        }
    }

    #[inline(always)]
    fn words<L: Lanes, O: Operands<L>>(self, to: &mut [f32]) {
        match self {
            KvRow::F16(row) => words::<L, O, u16>(row, to),
            KvRow::F32(row) => words::<L, O, f32>(row, to),
            KvRow::Nothing => to.fill(0.0),
        }
    }
}

/// Words of a chain; those to come are asked for.
#[inline(always)]
fn words<L: Lanes, O: Operands<L>, T: Element>(chain: &[T], to: &mut [f32]) {
    let to = to.as_chunks_mut::<LANES>().0;
    let whole = chain.as_chunks::<LANES>().0.chunks_exact(O::PER_WORD);
    let n_whole = whole.len();
    for (to, vectors) in to.iter_mut().zip(whole) {
        L::prefetch(vectors, PREFETCH_BYTES / size_of::<[T; LANES]>());
        let mut values = [L::splat(0.0); 2];
        for (value, vector) in values.iter_mut().zip(vectors) {
            *value = T::widen(vector);
        }
        O::along(&Registers(values), 0).store(to);
    }
    for (i, to) in to.iter_mut().enumerate().skip(n_whole) {
        O::along(&Chain(chain), i).store(to);
    }
}

/// Words across two tokens, `[head_dim]`.
#[inline(always)]
pub(super) fn words_across<L: Lanes, O: Operands<L>>(
    steps: [KvRow<'_>; 2],
    head_dim: usize,
    to: &mut [f32],
) {
    match steps {
        [KvRow::F16(a), KvRow::F16(b)] if head_dim.is_multiple_of(LANES) => {
            let (a, b) = (a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
            for ((to, a), b) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(a).zip(b) {
                L::prefetch(a, PREFETCH_BYTES / size_of::<[u16; LANES]>());
                L::prefetch(b, PREFETCH_BYTES / size_of::<[u16; LANES]>());
                let steps = [Registers([L::load_f16(a); 2]), Registers([L::load_f16(b); 2])];
                O::across(&steps, 0).store(to);
            }
        }
        _ => {
            for (i, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                if i * LANES < head_dim {
                    O::across(&steps, i).store(to);
                }
            }
        }
    }
}

impl<L: Lanes> Vectors<L> for KvRow<'_> {
    #[inline(always)]
    fn vector(&self, i: usize) -> L {
        match self {
            KvRow::F16(row) => Chain(row).vector(i),
            KvRow::F32(row) => Chain(row).vector(i),
            KvRow::Nothing => L::splat(0.0),
        }
    }
}

/// Numbers one after the other, and 0 behind them.
struct Chain<'a, T>(&'a [T]);

impl<L: Lanes, T: Element> Vectors<L> for Chain<'_, T> {
    #[inline(always)]
    fn vector(&self, i: usize) -> L {
        let (whole, rest) = self.0.as_chunks::<LANES>();
        match whole.get(i) {
            Some(whole) => T::widen(whole),
            None if i == whole.len() => T::widen(&padded(rest, 0, T::ZERO)),
            None => L::splat(0.0),
        }
    }
}

/// Numbers in registers.
pub(super) struct Registers<L>(pub(super) [L; 2]);

impl<L: Lanes> Vectors<L> for Registers<L> {
    #[inline(always)]
    fn vector(&self, i: usize) -> L {
        self.0[i]
    }
}

/// A query, times what scores are multiplied by.
pub(super) struct Scaled<'a, L> {
    pub(super) row: &'a [f32],
    pub(super) scale: L,
}

impl<L: Lanes> Vectors<L> for Scaled<'_, L> {
    #[inline(always)]
    fn vector(&self, i: usize) -> L {
        let vector: L = Chain(self.row).vector(i);
        vector.mul(self.scale)
    }
}

/// One KV head of the whole context, read in order.
pub(super) struct Context<'a> {
    segments: &'a [AttentionSegment<'a>],
    kv_head: usize,
    head_dim: usize,
    /// The context's token at which the first of `segments` begins.
    first: usize,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        segments: &'a [AttentionSegment<'a>],
        kv_head: usize,
        head_dim: usize,
    ) -> Self {
        Context { segments, kv_head, head_dim, first: 0 }
    }

    /// The segment that holds token `at`, which lies at or behind the one asked
    /// for before; where its V of that token starts; and its tokens from there on.
    #[inline(always)]
    pub(super) fn find(&mut self, at: usize) -> (KvView<'a>, usize, usize) {
        while at - self.first >= self.segments[0].n_tokens {
            self.first += self.segments[0].n_tokens;
            self.segments = &self.segments[1..];
        }
        let segment = &self.segments[0];
        let token = at - self.first;
        let start = self.kv_head * segment.head_stride + token * self.head_dim;
        (segment.v, start, segment.n_tokens - token)
    }

    /// V of token `at`, as for [`find`](Self::find).
    #[inline(always)]
    pub(super) fn value(&mut self, at: usize) -> KvRow<'a> {
        let (view, start, _) = self.find(at);
        KvRow::of(view, start, self.head_dim)
    }
}
