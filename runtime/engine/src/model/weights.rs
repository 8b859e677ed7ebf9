//! Weights from a file to a backend.

use std::collections::HashSet;

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
    pub(super) output_norm: B::Vector,
    /// `None`: the embedding serves as output head.
    pub(super) output: Option<B::Linear>,
}

/// The weights of one layer. What is `None` the model does without.
pub(super) struct LayerWeights<B: Backend> {
    pub(super) attn_norm: B::Vector,
    /// Q, K and V, one below the other.
    pub(super) attn_qkv: B::Linear,
    pub(super) attn_qkv_bias: Option<B::Vector>,
    pub(super) attn_q_norm: Option<B::Vector>,
    pub(super) attn_k_norm: Option<B::Vector>,
    pub(super) attn_output: B::Linear,
    pub(super) attn_post_norm: Option<B::Vector>,
    pub(super) ffn_norm: B::Vector,
    /// Gate and up, one below the other.
    pub(super) ffn_gate_up: B::Linear,
    pub(super) ffn_down: B::Linear,
    pub(super) ffn_post_norm: Option<B::Vector>,
}

/// Loads all weights, layers side by side.
pub(super) fn load<B: Backend>(
    file: &GgufFile,
    spec: &DecoderSpec,
    names: &WeightNames,
    backend: &B,
) -> Result<Weights<B>, EngineError> {
    check_names(file, spec, names)?;
    let loader = Loader { file, spec, names, backend };
    let (layers, ends) = rayon::join(
        || (0..spec.n_layers).into_par_iter().map(|layer| loader.layer(layer)).collect(),
        || loader.ends(),
    );
    let (token_embedding, output_norm, output) = ends?;
    let layers: Result<Vec<_>, EngineError> = layers;
    Ok(Weights { token_embedding, layers: layers?, output_norm, output })
}

/// Refuses a file with a tensor that nobody would read: a model of the family
/// with something more, such as a bias, would run and be wrong.
fn check_names(
    file: &GgufFile,
    spec: &DecoderSpec,
    names: &WeightNames,
) -> Result<(), EngineError> {
    let of_layer: HashSet<String> = (0..spec.n_layers)
        .flat_map(|layer| names.of_layer().map(move |name| layer_tensor(layer, name)))
        .collect();
    let is_known = |name: &str| names.of_model().any(|known| known == name);
    match file.tensor_names().find(|name| !is_known(name) && !of_layer.contains(*name)) {
        None => Ok(()),
        Some(name) => Err(EngineError::UnsupportedModel(format!(
            "tensor `{name}` is not one that a model of the {} family has",
            spec.family
        ))),
    }
}

struct Loader<'a, B: Backend> {
    file: &'a GgufFile,
    spec: &'a DecoderSpec,
    names: &'a WeightNames,
    backend: &'a B,
}

type Ends<B> = (<B as Backend>::Linear, <B as Backend>::Vector, Option<<B as Backend>::Linear>);

impl<B: Backend> Loader<'_, B> {
    /// What comes before the first layer and after the last.
    fn ends(&self) -> Result<Ends<B>, EngineError> {
        let (vocab_size, hidden_dim) = (self.spec.vocab_size, self.spec.hidden_dim);
        let table = self.linear(self.names.token_embedding, vocab_size, hidden_dim)?;
        let norm = self.vector(self.names.output_norm, hidden_dim)?;
        let output = if self.file.has_tensor(self.names.output) {
            Some(self.linear(self.names.output, vocab_size, hidden_dim)?)
        } else {
            None
        };
        Ok((table, norm, output))
    }

    fn layer(&self, layer: usize) -> Result<LayerWeights<B>, EngineError> {
        let DecoderSpec { hidden_dim, ffn_dim, n_heads, head_dim, .. } = *self.spec;
        let names = self.names;
        let name = |name: &str| layer_tensor(layer, name);
        let norm = |tensor| self.vector(&name(tensor), hidden_dim);
        let head_norm = |tensor| self.vector(&name(tensor), head_dim);
        Ok(LayerWeights {
            attn_norm: norm(names.attn_norm)?,
            attn_qkv: self.qkv(layer)?,
            attn_qkv_bias: self.qkv_bias(layer)?,
            attn_q_norm: names.attn_q_norm.map(head_norm).transpose()?,
            attn_k_norm: names.attn_k_norm.map(head_norm).transpose()?,
            attn_output: self.linear(&name(names.attn_output), hidden_dim, n_heads * head_dim)?,
            attn_post_norm: names.attn_post_norm.map(norm).transpose()?,
            ffn_norm: norm(names.ffn_norm)?,
            ffn_gate_up: self.stacked(
                &named(layer, names.ffn_gate_up, &[ffn_dim, ffn_dim]),
                hidden_dim,
                &|row| row,
            )?,
            ffn_down: self.linear(&name(names.ffn_down), hidden_dim, ffn_dim)?,
            ffn_post_norm: names.ffn_post_norm.map(norm).transpose()?,
        })
    }

    /// Rows of Q, of K and of V.
    fn qkv_rows(&self) -> [usize; 3] {
        let DecoderSpec { n_heads, n_kv_heads, head_dim, .. } = *self.spec;
        [n_heads * head_dim, n_kv_heads * head_dim, n_kv_heads * head_dim]
    }

    fn qkv(&self, layer: usize) -> Result<B::Linear, EngineError> {
        let tensors = named(layer, self.names.attn_qkv, &self.qkv_rows());
        self.stacked(&tensors, self.spec.hidden_dim, &|row| self.rotated_row(row))
    }

    fn qkv_bias(&self, layer: usize) -> Result<Option<B::Vector>, EngineError> {
        if self.names.attn_qkv_bias.is_empty() {
            return Ok(None);
        }
        let mut values = Vec::new();
        for (name, n_rows) in named(layer, self.names.attn_qkv_bias, &self.qkv_rows()) {
            values.extend(self.file.dequantize_len(&name, n_rows)?);
        }
        let reordered = (0..values.len()).map(|row| values[self.rotated_row(row)]).collect();
        Ok(Some(self.backend.pack_vector(reordered)))
    }

    fn vector(&self, name: &str, len: usize) -> Result<B::Vector, EngineError> {
        Ok(self.backend.pack_vector(self.file.dequantize_len(name, len)?))
    }

    fn linear(&self, name: &str, n_out: usize, n_in: usize) -> Result<B::Linear, EngineError> {
        self.stacked(&[(name.to_owned(), n_out)], n_in, &|row| row)
    }

    /// Several maps of the same inputs, each a tensor's name and its number of
    /// rows, packed as one. Row `i` of the whole is row `source(i)`.
    fn stacked(
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

    /// Where the file has the row of Q, K and V that the decoder wants here.
    fn rotated_row(&self, row: usize) -> usize {
        let [q, k, _] = self.qkv_rows();
        match self.spec.qk_rows {
            // Only Q and K are rotated, so only their rows are reordered.
            QkRowOrder::Interleaved { rotary_dim } if row < q + k => {
                half_split_source(row, self.spec.head_dim, rotary_dim / 2)
            }
            QkRowOrder::AsIs | QkRowOrder::Interleaved { .. } => row,
        }
    }
}

/// Full name of a layer's tensor.
fn layer_tensor(layer: usize, name: &str) -> String {
    format!("blk.{layer}.{name}")
}

/// Tensors of a layer with the rows of each: one for each of `rows`, or a single
/// one that has them all.
fn named(layer: usize, names: &[&str], rows: &[usize]) -> Vec<(String, usize)> {
    match names {
        [one] => vec![(layer_tensor(layer, one), rows.iter().sum())],
        names => names.iter().zip(rows).map(|(name, &n)| (layer_tensor(layer, name), n)).collect(),
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
