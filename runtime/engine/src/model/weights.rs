//! Weights from a file to a backend.

use rayon::prelude::*;
use skillgraft_kernels::{Coding, WeightBlock};

use super::families::WeightNames;
use super::spec::{DecoderSpec, QkRowOrder};
use crate::backend::Backend;
use crate::error::EngineError;
use crate::load::{BLOCK, BlockFormat, GgufFile, is_float, widen};

/// All weights of a decoder.
pub(super) struct Weights<B: Backend> {
    pub(super) token_embedding: B::Linear,
    pub(super) layers: Vec<LayerWeights<B>>,
    pub(super) output_norm: B::Norm,
    /// `None`: the embedding serves as output head.
    pub(super) output: Option<B::Linear>,
}

/// The weights of one layer.
pub(super) struct LayerWeights<B: Backend> {
    pub(super) attn_norm: B::Norm,
    /// Q, K and V, one below the other.
    pub(super) attn_qkv: B::Linear,
    pub(super) attn_output: B::Linear,
    pub(super) ffn_norm: B::Norm,
    /// Gate and up, one below the other.
    pub(super) ffn_gate_up: B::Linear,
    pub(super) ffn_down: B::Linear,
}

/// Loads all weights, layers side by side.
pub(super) fn load<B: Backend>(
    file: &GgufFile,
    spec: &DecoderSpec,
    names: &WeightNames,
    backend: &B,
) -> Result<Weights<B>, EngineError> {
    let loader = Loader { file, spec, names, backend };
    let (layers, ends) = rayon::join(
        || (0..spec.n_layers).into_par_iter().map(|layer| loader.layer(layer)).collect(),
        || loader.ends(),
    );
    let (token_embedding, output_norm, output) = ends?;
    let layers: Result<Vec<_>, EngineError> = layers;
    Ok(Weights { token_embedding, layers: layers?, output_norm, output })
}

struct Loader<'a, B: Backend> {
    file: &'a GgufFile,
    spec: &'a DecoderSpec,
    names: &'a WeightNames,
    backend: &'a B,
}

type Ends<B> = (<B as Backend>::Linear, <B as Backend>::Norm, Option<<B as Backend>::Linear>);

impl<B: Backend> Loader<'_, B> {
    /// What comes before the first layer and after the last.
    fn ends(&self) -> Result<Ends<B>, EngineError> {
        let (vocab_size, hidden_dim) = (self.spec.vocab_size, self.spec.hidden_dim);
        let table = self.linear(self.names.token_embedding, vocab_size, hidden_dim)?;
        let norm = self.norm(self.names.output_norm)?;
        let output = if self.file.has_tensor(self.names.output) {
            Some(self.linear(self.names.output, vocab_size, hidden_dim)?)
        } else {
            None
        };
        Ok((table, norm, output))
    }

    fn layer(&self, layer: usize) -> Result<LayerWeights<B>, EngineError> {
        let DecoderSpec { hidden_dim, ffn_dim, n_heads, n_kv_heads, head_dim, .. } = *self.spec;
        let name = |name: &str| format!("blk.{layer}.{name}");
        let names = self.names;
        let (q_dim, kv_dim) = (n_heads * head_dim, n_kv_heads * head_dim);
        let qkv = [(names.attn_q, q_dim), (names.attn_k, kv_dim), (names.attn_v, kv_dim)];
        let gate_up = [(names.ffn_gate, ffn_dim), (names.ffn_up, ffn_dim)];
        Ok(LayerWeights {
            attn_norm: self.norm(&name(names.attn_norm))?,
            attn_qkv: self.stacked(&qkv.map(|(tensor, n)| (name(tensor), n)), &|row| {
                // Only Q and K are rotated, so only their rows are reordered.
                if row < q_dim + kv_dim { self.rotated_row(row) } else { row }
            })?,
            attn_output: self.linear(&name(names.attn_output), hidden_dim, q_dim)?,
            ffn_norm: self.norm(&name(names.ffn_norm))?,
            ffn_gate_up: self.stacked(&gate_up.map(|(tensor, n)| (name(tensor), n)), &|row| row)?,
            ffn_down: self.linear(&name(names.ffn_down), hidden_dim, ffn_dim)?,
        })
    }

    fn norm(&self, name: &str) -> Result<B::Norm, EngineError> {
        let values = self.file.dequantize_len(name, self.spec.hidden_dim)?;
        Ok(self.backend.pack_norm(values))
    }

    fn linear(&self, name: &str, n_out: usize, n_in: usize) -> Result<B::Linear, EngineError> {
        self.packed(&[(name.to_owned(), n_out)], n_in, &|row| row)
    }

    /// Several maps of the residual stream, each a tensor's name and its number
    /// of rows, packed as one. Row `i` of the whole is row `source(i)`.
    fn stacked(
        &self,
        tensors: &[(String, usize)],
        source: &(dyn Fn(usize) -> usize + Sync),
    ) -> Result<B::Linear, EngineError> {
        self.packed(tensors, self.spec.hidden_dim, source)
    }

    fn packed(
        &self,
        tensors: &[(String, usize)],
        n_in: usize,
        source: &(dyn Fn(usize) -> usize + Sync),
    ) -> Result<B::Linear, EngineError> {
        let n_out = tensors.iter().map(|(_, n_rows)| n_rows).sum();
        if self.backend.takes_blocks()
            && n_in.is_multiple_of(BLOCK)
            && let Some(rows) = QuantisedRows::read(self.file, tensors, n_in)?
        {
            return Ok(self.backend.pack_blocks(n_out, n_in, rows.coding, &|row, blocks| {
                rows.fill(source(row), blocks);
            }));
        }
        let mut values = Vec::new();
        for (name, n_rows) in tensors {
            values.extend(self.file.dequantize_len(name, n_rows * n_in)?);
        }
        Ok(self.backend.pack_linear(n_out, n_in, &|row, out| {
            out.copy_from_slice(&values[source(row) * n_in..][..n_in]);
        }))
    }

    /// Where the file has a row of Q or K that [`DecoderSpec::rope`] wants here.
    fn rotated_row(&self, row: usize) -> usize {
        match self.spec.qk_rows {
            QkRowOrder::AsIs => row,
            QkRowOrder::Interleaved => {
                half_split_source(row, self.spec.head_dim, self.spec.rope.rotary_dim / 2)
            }
        }
    }
}

/// Rows of quantised tensors, one below the other.
struct QuantisedRows<'a> {
    /// What all of them can be written in.
    coding: Coding,
    tensors: Vec<QuantisedTensor<'a>>,
}

struct QuantisedTensor<'a> {
    n_rows: usize,
    n_in: usize,
    weights: Quantised<'a>,
}

enum Quantised<'a> {
    /// As the file has them.
    Blocks(BlockFormat, &'a [u8]),
    /// Unpacked, to be rounded to eight bits.
    Unpacked(Vec<f32>),
}

impl<'a> QuantisedRows<'a> {
    /// `None` when a tensor is not quantised in the file: then none is here.
    fn read(
        file: &'a GgufFile,
        tensors: &[(String, usize)],
        n_in: usize,
    ) -> Result<Option<Self>, EngineError> {
        let mut found = Vec::new();
        for (name, n_rows) in tensors {
            let (dtype, bytes) = file.raw(name, n_rows * n_in)?;
            if is_float(dtype) {
                return Ok(None);
            }
            let weights = match BlockFormat::of(dtype) {
                Some(format) => Quantised::Blocks(format, bytes),
                None => Quantised::Unpacked(file.dequantize_len(name, n_rows * n_in)?),
            };
            found.push(QuantisedTensor { n_rows: *n_rows, n_in, weights });
        }
        let coding = found[0].coding();
        let is_one = found.iter().all(|tensor| tensor.coding() == coding);
        let coding = if is_one { coding } else { Coding::EightBitsOffset };
        Ok(Some(QuantisedRows { coding, tensors: found }))
    }

    fn fill(&self, mut row: usize, blocks: &mut [WeightBlock]) {
        for tensor in &self.tensors {
            if row >= tensor.n_rows {
                row -= tensor.n_rows;
                continue;
            }
            tensor.fill(row, blocks);
            if tensor.coding() != self.coding {
                widen(tensor.coding(), blocks);
            }
            return;
        }
        unreachable!("the rows of all tensors are those of the whole")
    }
}

impl QuantisedTensor<'_> {
    fn coding(&self) -> Coding {
        match &self.weights {
            Quantised::Blocks(format, _) => format.coding,
            Quantised::Unpacked(_) => WeightBlock::ROUNDED,
        }
    }

    fn fill(&self, row: usize, blocks: &mut [WeightBlock]) {
        match &self.weights {
            Quantised::Blocks(format, bytes) => {
                let row_bytes = bytes.len() / self.n_rows;
                format.read(&bytes[row * row_bytes..(row + 1) * row_bytes], blocks);
            }
            Quantised::Unpacked(values) => {
                let values = values[row * self.n_in..(row + 1) * self.n_in].as_chunks().0;
                for (block, weights) in blocks.iter_mut().zip(values) {
                    *block = WeightBlock::rounded(weights);
                }
            }
        }
    }
}

/// The row of an interleaved head that becomes row `row` of a half-split one.
fn half_split_source(row: usize, head_dim: usize, half: usize) -> usize {
    let (head, i) = (row / head_dim, row % head_dim);
    let source = match i {
        i if i < half => 2 * i,
        i if i < 2 * half => 2 * (i - half) + 1,
        i => i,
    };
    head * head_dim + source
}
