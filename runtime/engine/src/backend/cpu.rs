//! The CPU backend: plain buffers and our own kernels.

use std::ops::Range;

use skillgraft_kernels::{
    AlignedBuffer, AttentionSegment, AttentionShape, Coding, Cpu, Gate, HeadRows, Isa, KvShape,
    KvSource, KvTarget, PackedLinear, RopeTable, Threads, WeightBlock,
};
use skillgraft_kv::{KvBuffer, KvGeometry, KvView, LayerIdx, TokenId};

use super::{AttentionSpec, Backend, BackendOptions, HeadSpan, Run, SegmentCopy, Sequence};
use crate::cache::{CacheSegment, SegmentedCache, Storage};

/// Runs the decoder on the CPU.
#[derive(Debug)]
pub struct CpuBackend {
    cpu: Cpu,
    /// Whether everything is computed in `f32`.
    is_strict: bool,
}

/// Activations, `[n_rows, width]`.
#[derive(Debug)]
pub struct CpuHidden {
    data: AlignedBuffer,
    width: usize,
}

/// K and V of a page, one tensor `[n_kv_heads, capacity, head_dim]` a layer.
#[derive(Debug)]
pub struct CpuPage {
    k: Vec<KvBuffer>,
    v: Vec<KvBuffer>,
    geometry: KvGeometry,
    capacity: usize,
}

impl CpuPage {
    /// Elements between two heads.
    fn head_stride(&self) -> usize {
        self.capacity * self.geometry.head_dim
    }
}

impl CpuBackend {
    /// The kernels it runs.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }
}

impl CpuHidden {
    fn zeroed(n_rows: usize, width: usize) -> Self {
        CpuHidden { data: AlignedBuffer::zeroed(n_rows * width), width }
    }

    fn n_rows(&self) -> usize {
        self.data.len() / self.width
    }
}

impl Backend for CpuBackend {
    type Linear = PackedLinear;
    type Vector = Vec<f32>;
    type Hidden = CpuHidden;
    type Page = CpuPage;

    fn new(options: &BackendOptions) -> Self {
        let threads = options.n_threads.map_or_else(Threads::available, Threads::new);
        let cpu = Cpu::new(Isa::detect(), threads);
        let cpu = if options.strict_f32 { cpu.in_f32() } else { cpu };
        CpuBackend { cpu, is_strict: options.strict_f32 }
    }

    fn arithmetic(&self) -> String {
        let kind = if self.is_strict { "f32" } else { "i8" };
        let attention = self.cpu.attention_factors().name();
        format!("cpu {} {kind} attention {attention}", self.cpu.isa().name())
    }

    fn pack_linear(
        &self,
        n_out: usize,
        n_in: usize,
        fill: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> PackedLinear {
        PackedLinear::from_rows(&self.cpu, n_out, n_in, fill)
    }

    fn takes_blocks(&self) -> bool {
        !self.is_strict
    }

    fn pack_blocks(
        &self,
        n_out: usize,
        n_in: usize,
        coding: Coding,
        fill: &(dyn Fn(usize, &mut [WeightBlock]) + Sync),
    ) -> PackedLinear {
        PackedLinear::from_blocks(&self.cpu, n_out, n_in, coding, fill)
    }

    fn linear_bytes(&self, weights: &PackedLinear) -> usize {
        weights.bytes()
    }

    fn pack_vector(&self, values: Vec<f32>) -> Vec<f32> {
        values
    }

    fn new_page(&self, geometry: KvGeometry, capacity: usize) -> CpuPage {
        let tensor = || KvBuffer::zeroed(geometry.dtype, geometry.tensor_len(capacity));
        CpuPage {
            k: (0..geometry.n_layers).map(|_| tensor()).collect(),
            v: (0..geometry.n_layers).map(|_| tensor()).collect(),
            geometry,
            capacity,
        }
    }

    fn embed(&self, table: &PackedLinear, tokens: &[TokenId], scale: f32) -> CpuHidden {
        let mut hidden = CpuHidden::zeroed(tokens.len(), table.n_in());
        for (row, token) in hidden.data.chunks_exact_mut(table.n_in()).zip(tokens) {
            table.row(token.0 as usize, row);
            for x in row {
                *x *= scale;
            }
        }
        hidden
    }

    fn rms_norm(&self, x: &CpuHidden, norm: &Vec<f32>, eps: f32) -> CpuHidden {
        let mut out = CpuHidden::zeroed(x.n_rows(), x.width);
        self.cpu.rms_norm(&x.data, norm, eps, &mut out.data);
        out
    }

    fn head_norm(&self, x: &mut CpuHidden, heads: HeadSpan, norm: &Vec<f32>, eps: f32) {
        let (n_rows, row_stride) = (x.n_rows(), x.width);
        let HeadSpan { at, n_heads } = heads;
        self.cpu.head_norm(&mut x.data[at..], row_stride, n_rows, n_heads, norm, eps);
    }

    fn linear(&self, x: &CpuHidden, weights: &PackedLinear, bias: Option<&Vec<f32>>) -> CpuHidden {
        let mut out = CpuHidden::zeroed(x.n_rows(), weights.n_out());
        self.cpu.linear(&x.data, weights, bias.map(Vec::as_slice), &mut out.data);
        out
    }

    fn add(&self, x: &CpuHidden, sum: &mut CpuHidden) {
        self.cpu.add(&mut sum.data, &x.data);
    }

    fn linear_add(&self, x: &CpuHidden, weights: &PackedLinear, sum: &mut CpuHidden) {
        self.cpu.linear_add(&x.data, weights, &mut sum.data);
    }

    fn gated(&self, x: &CpuHidden, gate_up: &PackedLinear, gate: Gate) -> CpuHidden {
        let both = self.linear(x, gate_up, None);
        let width = gate_up.n_out() / 2;
        let mut out = CpuHidden::zeroed(x.n_rows(), width);
        self.cpu.gated(gate, &both.data, width, &mut out.data);
        out
    }

    fn attention(
        &self,
        attention: &AttentionSpec,
        mut qkv: CpuHidden,
        sequences: &mut [Sequence<'_, Self>],
    ) -> CpuHidden {
        let q_dim = attention.n_heads * attention.head_dim;
        let mut out = CpuHidden::zeroed(qkv.n_rows(), q_dim);
        for Sequence { cache, runs } in sequences {
            for run in &*runs {
                let Range { start, end } = run.rows;
                let qkv_rows = &mut qkv.data[start * qkv.width..end * qkv.width];
                self.put(attention, qkv_rows, run, cache);
                let out_rows = &mut out.data[start * q_dim..end * q_dim];
                self.attend(attention, qkv_rows, run, cache, out_rows);
            }
        }
        out
    }

    fn logits(&self, x: &CpuHidden, rows: &[usize], head: &PackedLinear) -> Vec<f32> {
        let wanted: Vec<f32> =
            rows.iter().flat_map(|row| &x.data[row * x.width..][..x.width]).copied().collect();
        let mut logits = vec![0.0; rows.len() * head.n_out()];
        self.cpu.linear(&wanted, head, None, &mut logits);
        logits
    }

    fn copy_segment(
        &self,
        segment: &CacheSegment<Self>,
        copy: &SegmentCopy,
        rope: Option<&RopeTable>,
        k: &mut KvBuffer,
        v: &mut KvBuffer,
    ) {
        let geometry = match &segment.storage {
            Storage::Page(page) => page.data.geometry,
            Storage::Block(block) => block.header().geometry,
        };
        let KvGeometry { n_kv_heads, head_dim, .. } = geometry;
        let shape = KvShape { n_kv_heads, n_tokens: copy.n_tokens, head_dim };
        let (k_view, v_view, head_stride) = kv_of(copy.layer, head_dim, segment);
        let first = copy.from * head_dim;
        let [k_source, v_source] = [k_view, v_view]
            .map(|view| KvSource { view: view.slice(first, view.len()), head_stride });
        let target =
            |buffer| KvTarget { buffer, head_stride: copy.capacity * head_dim, at_token: copy.at };
        match rope {
            Some(rope) => {
                self.cpu.relocate(rope, segment.delta, k_source, shape, target(k));
            }
            None => self.cpu.copy_kv(k_source, shape, target(k)),
        }
        self.cpu.copy_kv(v_source, shape, target(v));
    }
}

impl CpuBackend {
    /// Rotates the K rows of a run and stores them and its V rows where room was
    /// made for them. Runs come in the order of the context, so that rows before a
    /// run are there when it attends.
    fn put(
        &self,
        attention: &AttentionSpec,
        qkv: &mut [f32],
        run: &Run,
        cache: &mut SegmentedCache<Self>,
    ) {
        let AttentionSpec { n_heads, n_kv_heads, head_dim, .. } = *attention;
        let n_tokens = run.rows.len();
        let row_stride = qkv.len() / n_tokens;
        let (k_at, v_at) = (n_heads * head_dim, (n_heads + n_kv_heads) * head_dim);
        let angles = &run.turns[attention.rope].angles;
        self.cpu.rotate(&mut qkv[k_at..], row_stride, n_kv_heads, head_dim, angles);

        let (page, at_token) = cache.page_mut(run.span);
        let shape = KvShape { n_kv_heads, n_tokens, head_dim };
        let head_stride = page.head_stride();
        let layer = attention.layer.index();
        for (buffer, at) in [(&mut page.k[layer], k_at), (&mut page.v[layer], v_at)] {
            let rows = HeadRows { data: &qkv[at..], row_stride };
            let target = KvTarget { buffer, head_stride, at_token };
            self.cpu.store_kv(rows, shape, target);
        }
    }

    fn attend(
        &self,
        attention: &AttentionSpec,
        qkv: &[f32],
        run: &Run,
        cache: &SegmentedCache<Self>,
        out: &mut [f32],
    ) {
        let AttentionSpec { n_heads, n_kv_heads, head_dim, scale, window, .. } = *attention;
        let frames = &run.turns[attention.rope].frames;
        let n_rows = run.rows.len();
        let queries = HeadRows { data: qkv, row_stride: qkv.len() / n_rows };
        let mut rotated = vec![0.0; frames.n_frames() * out.len()];
        self.cpu.query_frames(frames, queries, n_heads, head_dim, &mut rotated);

        let segments: Vec<AttentionSegment<'_>> = cache
            .segments_before(run.span.end())
            .map(|(segment, n_tokens)| {
                let (k, v, head_stride) = kv_of(attention.layer, head_dim, segment);
                let frame = frames.index_of(segment.delta);
                let frame = frame.expect("every distance in the cache has a frame");
                AttentionSegment { k, v, n_tokens, head_stride, frame }
            })
            .collect();
        let shape = AttentionShape { n_rows, n_heads, n_kv_heads, head_dim, scale, window };
        self.cpu.segment_attention(&shape, &rotated, &segments, out);
    }
}

/// K and V of a segment's layer, from its first token on, and the elements
/// between their heads.
fn kv_of<'a>(
    layer: LayerIdx,
    head_dim: usize,
    segment: &'a CacheSegment<CpuBackend>,
) -> (KvView<'a>, KvView<'a>, usize) {
    let (k, v, head_stride) = match &segment.storage {
        Storage::Page(page) => {
            let (k, v) = (&page.data.k[layer.index()], &page.data.v[layer.index()]);
            (k.view(), v.view(), page.data.head_stride())
        }
        Storage::Block(block) => {
            let head_stride = block.header().n_tokens() * head_dim;
            (block.get().k(layer), block.get().v(layer), head_stride)
        }
    };
    let first = segment.from * head_dim;
    let from = |view: KvView<'a>| view.slice(first, view.len());
    (from(k), from(v), head_stride)
}
