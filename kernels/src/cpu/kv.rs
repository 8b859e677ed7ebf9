//! K and V in their storage type: writing rows, copying, relocating.
//!
//! A K or V tensor is `[n_kv_heads, capacity, head_dim]`; a page has room for
//! more tokens than it holds, so heads lie `capacity * head_dim` apart.
//!
//! **Invariant:** rounding to storage is to nearest even, once. Copying between
//! equal types, and relocating by 0, keep every bit.
//!
//! **Refuses:** rotating V, and applying an attention scaling again.

use skillgraft_kv::{KvBuffer, KvView, PositionDelta};

use crate::cpu::buffer::with_scratch;
use crate::cpu::dispatch::{Cpu, Kernel};
use crate::cpu::lanes::{LANES, Lanes, padded};
use crate::cpu::rotate::{HeadRows, rotate_head};
use crate::rope::{Angles, RopeTable};

/// How much of a K or V tensor an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// KV heads.
    pub n_kv_heads: usize,
    /// Tokens of each head.
    pub n_tokens: usize,
    /// Elements of one head of one token.
    pub head_dim: usize,
}

/// Where K or V is read from.
#[derive(Debug, Clone, Copy)]
pub struct KvSource<'a> {
    /// `[n_kv_heads, capacity, head_dim]`, from the first token to be read on.
    pub view: KvView<'a>,
    /// Elements from one head to the next: `capacity * head_dim`.
    pub head_stride: usize,
}

/// Where K or V is written to.
#[derive(Debug)]
pub struct KvTarget<'a> {
    /// `[n_kv_heads, capacity, head_dim]`
    pub buffer: &'a mut KvBuffer,
    /// Elements from one head to the next: `capacity * head_dim`.
    pub head_stride: usize,
    /// Token at which writing starts.
    pub at_token: usize,
}

impl KvShape {
    /// Asserts that heads of `n_tokens` tokens fit into a tensor.
    fn check(self, len: usize, head_stride: usize, n_tokens: usize) {
        assert!(self.n_kv_heads > 0 && self.head_dim > 0, "no heads in {self:?}");
        let head_len = n_tokens * self.head_dim;
        assert!(head_len <= head_stride, "{n_tokens} tokens in heads of {head_stride} elements");
        let needed = (self.n_kv_heads - 1) * head_stride + head_len;
        assert!(len >= needed, "{self:?} needs {needed} elements, not {len}");
    }
}

impl KvSource<'_> {
    pub(crate) fn check(&self, shape: KvShape) {
        shape.check(self.view.len(), self.head_stride, shape.n_tokens);
    }
}

impl KvTarget<'_> {
    fn check(&self, shape: KvShape) {
        shape.check(self.buffer.len(), self.head_stride, self.at_token + shape.n_tokens);
    }
}

impl Cpu {
    /// Writes `rows`, `[n_tokens, n_kv_heads, head_dim]` in `f32`, as tokens
    /// `at_token..at_token + n_tokens` of `target`.
    ///
    /// # Panics
    /// When a shape does not fit.
    pub fn store_kv(&self, rows: HeadRows<'_>, shape: KvShape, target: KvTarget<'_>) {
        rows.check(shape.n_tokens, shape.n_kv_heads * shape.head_dim);
        target.check(shape);
        let KvTarget { buffer, head_stride, at_token } = target;
        match buffer {
            KvBuffer::F16(to) => self.run(Store { rows, shape, to, head_stride, at_token }),
            KvBuffer::F32(to) => self.run(Store { rows, shape, to, head_stride, at_token }),
        }
    }

    /// Copies K or V as it is: `[n_kv_heads, n_tokens, head_dim]`. Between
    /// different types elements are converted.
    ///
    /// # Panics
    /// When a shape does not fit.
    pub fn copy_kv(&self, source: KvSource<'_>, shape: KvShape, target: KvTarget<'_>) {
        self.move_kv(source, shape, target, None);
    }

    /// Copies K, `[n_kv_heads, n_tokens, head_dim]`, rotated by `delta`
    /// positions: the other way to use a block elsewhere, for caches that must
    /// be contiguous. The rotation is in `f32`, and storage rounds once more.
    ///
    /// # Panics
    /// When a shape does not fit, or `rotary_dim` exceeds `head_dim`.
    pub fn relocate(
        &self,
        table: &RopeTable,
        delta: PositionDelta,
        source: KvSource<'_>,
        shape: KvShape,
        target: KvTarget<'_>,
    ) {
        assert!(table.rotary_dim() <= shape.head_dim, "`rotary_dim` exceeds {}", shape.head_dim);
        let angles = table.angles_pure([i64::from(delta.0)]);
        // A rotation by 0 would lose the sign of some zeros.
        self.move_kv(source, shape, target, (delta.0 != 0).then_some(&angles));
    }

    fn move_kv(
        &self,
        source: KvSource<'_>,
        shape: KvShape,
        target: KvTarget<'_>,
        by: Option<&Angles>,
    ) {
        source.check(shape);
        target.check(shape);
        let KvTarget { buffer, head_stride, at_token } = target;
        let span = Span { shape, source_stride: source.head_stride, head_stride, at_token };
        match (source.view, buffer) {
            (KvView::F16(from), KvBuffer::F16(to)) if by.is_none() => {
                self.copy_heads(from, to, span);
            }
            (KvView::F32(from), KvBuffer::F32(to)) if by.is_none() => {
                self.copy_heads(from, to, span);
            }
            (KvView::F16(from), KvBuffer::F16(to)) => self.move_heads(from, to, span, by),
            (KvView::F16(from), KvBuffer::F32(to)) => self.move_heads(from, to, span, by),
            (KvView::F32(from), KvBuffer::F16(to)) => self.move_heads(from, to, span, by),
            (KvView::F32(from), KvBuffer::F32(to)) => self.move_heads(from, to, span, by),
        }
    }

    fn copy_heads<T: Element>(&self, from: &[T], to: &mut [T], span: Span) {
        self.for_each_head(to, span, |from_start, to| {
            to.copy_from_slice(&from[from_start..][..to.len()]);
        });
    }

    fn move_heads<S: Element, T: Element>(
        &self,
        from: &[S],
        to: &mut [T],
        span: Span,
        by: Option<&Angles>,
    ) {
        let head_dim = span.shape.head_dim;
        self.for_each_head(to, span, |from_start, to| {
            let from = &from[from_start..][..to.len()];
            with_scratch([head_dim], |[wide]| self.run(Move { from, to, by, wide }));
        });
    }

    /// Calls `work` with where each head starts in the source, and where it goes.
    fn for_each_head<T: Element>(
        &self,
        to: &mut [T],
        span: Span,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let Span { shape, source_stride, head_stride, at_token } = span;
        let len = shape.n_tokens * shape.head_dim;
        if len == 0 {
            return;
        }
        let used = to.len().min(shape.n_kv_heads * head_stride);
        self.threads().for_each_chunk(&mut to[..used], head_stride, |head, to| {
            work(head * source_stride, &mut to[at_token * shape.head_dim..][..len]);
        });
    }
}

/// What is moved, and from and to where.
#[derive(Clone, Copy)]
struct Span {
    shape: KvShape,
    source_stride: usize,
    head_stride: usize,
    at_token: usize,
}

/// A storage type of K and V.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    const ZERO: Self;
    fn widen<L: Lanes>(from: &[Self; LANES]) -> L;
    fn narrow<L: Lanes>(lanes: L, to: &mut [Self; LANES]);
}

impl Element for u16 {
    const ZERO: u16 = 0;

    #[inline(always)]
    fn widen<L: Lanes>(from: &[u16; LANES]) -> L {
        L::load_f16(from)
    }

    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, to: &mut [u16; LANES]) {
        lanes.store_f16(to);
    }
}

impl Element for f32 {
    const ZERO: f32 = 0.0;

    #[inline(always)]
    fn widen<L: Lanes>(from: &[f32; LANES]) -> L {
        L::load(from)
    }

    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, to: &mut [f32; LANES]) {
        lanes.store(to);
    }
}

/// How far ahead of a conversion its source is asked for, in bytes.
const PREFETCH_BYTES: usize = 2048;

/// Converts between storage types.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub(crate) fn convert<L: Lanes, S: Element, T: Element>(from: &[S], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "`from` is not like `to`");
    let (from_chunks, from_rest) = from.as_chunks::<LANES>();
    let (to_chunks, to_rest) = to.as_chunks_mut::<LANES>();
    for (from, to) in from_chunks.iter().zip(to_chunks) {
        L::prefetch(from, PREFETCH_BYTES / size_of::<S>());
        T::narrow(S::widen::<L>(from), to);
    }
    if !from_rest.is_empty() {
        let mut last = [T::ZERO; LANES];
        T::narrow(S::widen::<L>(&padded(from_rest, 0, S::ZERO)), &mut last);
        to_rest.copy_from_slice(&last[..from_rest.len()]);
    }
}

struct Store<'a, T> {
    rows: HeadRows<'a>,
    shape: KvShape,
    to: &'a mut [T],
    head_stride: usize,
    at_token: usize,
}

impl<T: Element> Kernel for Store<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let KvShape { n_kv_heads, n_tokens, head_dim } = self.shape;
        for token in 0..n_tokens {
            let row = self.rows.row(token, n_kv_heads * head_dim);
            for (head, from) in row.chunks_exact(head_dim).enumerate() {
                let start = head * self.head_stride + (self.at_token + token) * head_dim;
                convert::<L, f32, T>(from, &mut self.to[start..start + head_dim]);
            }
        }
    }
}

/// One head, `[n_tokens, head_dim]`.
struct Move<'a, S, T> {
    from: &'a [S],
    to: &'a mut [T],
    by: Option<&'a Angles>,
    /// `[head_dim]`
    wide: &'a mut [f32],
}

impl<S: Element, T: Element> Kernel for Move<'_, S, T> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Some(angles) = self.by else {
            return convert::<L, S, T>(self.from, self.to);
        };
        let (cos, sin) = angles.row(0);
        let head_dim = self.wide.len();
        let tokens = self.from.chunks_exact(head_dim);
        for (from, to) in tokens.zip(self.to.chunks_exact_mut(head_dim)) {
            convert::<L, S, f32>(from, self.wide);
            rotate_head(self.wide, cos, sin, angles.pairing());
            convert::<L, f32, T>(self.wide, to);
        }
    }
}
