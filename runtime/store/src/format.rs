//! The block file, as bytes.
//!
//! A safetensors file: eight bytes of header length, a JSON header padded with
//! spaces, then `k.0`, `v.0`, `k.1`, `v.1` and so on without gaps. The header's
//! metadata is the [`BlockHeader`], a BLAKE3 digest of each tensor, and one of
//! the metadata itself, so that every byte that matters is covered. The header
//! is written here, because the safetensors crate aligns tensor data to 8 bytes
//! only; it is read by that crate, so that any safetensors reader agrees.
//!
//! **Invariant:** the place of every tensor follows from the metadata alone, and
//! a file in which it lies elsewhere is refused. [`check`] accepts only what
//! [`encode`] says, however its JSON is spelled, and panics on no bytes. No I/O
//! here: `mapped` and `write` do that.

use std::collections::BTreeMap;
use std::ops::Range;

use blake3::Hash;
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};
use skillgraft_kv::{BlockHeader, BlockKey, CompiledBlock, KvBuffer, KvDtype};

use crate::error::Fault;

/// Tensor data starts on a multiple of this, in bytes: a cache line, and the
/// widest vector that a kernel loads.
pub(crate) const ALIGNMENT: usize = 64;

/// Most bytes of a header that are parsed. A token takes up to 11 bytes, a layer
/// about 300, so this is a million tokens with room to spare.
const HEADER_BYTES_MAX: usize = 16 << 20;

/// Bytes of the header's length at the start of the file.
const LENGTH_BYTES: usize = 8;

/// The metadata field with the digest of all other metadata fields. The digest
/// of tensor `k.0` is in the field `blake3.k.0`.
const METADATA_DIGEST: &str = "blake3";

/// Which tensor of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    K,
    V,
}

/// Where the tensors lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// First byte of tensor data.
    data_start: usize,
    /// Bytes of one tensor; all have the same size.
    tensor_bytes: usize,
    n_layers: usize,
}

/// What a file says about itself, once it has been checked against its length.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) header: BlockHeader,
    pub(crate) layout: Layout,
    /// Digests of the tensors in the order of the file.
    digests: Vec<Hash>,
}

impl Layout {
    /// The bytes of one tensor in the file.
    ///
    /// # Panics
    /// When the layer is out of range.
    pub(crate) fn range(&self, part: Part, layer: usize) -> Range<usize> {
        assert!(layer < self.n_layers, "layer {layer} of a block of {} layers", self.n_layers);
        let tensor_idx = 2 * layer + usize::from(part == Part::V);
        let start = self.data_start + tensor_idx * self.tensor_bytes;
        start..start + self.tensor_bytes
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.n_layers)
            .flat_map(|layer| [self.range(Part::K, layer), self.range(Part::V, layer)])
    }
}

/// The bytes of a block's tensors in the order of the file.
pub(crate) fn tensors(block: &CompiledBlock) -> Vec<&[u8]> {
    fn bytes(buffer: &KvBuffer) -> &[u8] {
        match buffer {
            KvBuffer::F16(bits) => bytemuck::cast_slice(bits),
            KvBuffer::F32(values) => bytemuck::cast_slice(values),
        }
    }
    block.k.iter().zip(&block.v).flat_map(|(k, v)| [bytes(k), bytes(v)]).collect()
}

/// The bytes that come before the tensor data: length, JSON, padding.
/// `tensors` are those of the file, in its order.
pub(crate) fn encode(header: &BlockHeader, tensors: &[&[u8]]) -> Vec<u8> {
    let names = || tensor_names(header.geometry.n_layers);
    let mut fields = header.to_fields();
    for (name, tensor) in names().zip(tensors) {
        fields.insert(digest_field(&name), blake3::hash(tensor).to_hex().to_string());
    }
    fields.insert(METADATA_DIGEST.to_owned(), metadata_digest(&fields).to_hex().to_string());

    let mut json = Map::from_iter([("__metadata__".to_owned(), json!(fields))]);
    let dtype = safetensors_dtype(header.geometry.dtype).to_string();
    let shape = [header.geometry.n_kv_heads, header.n_tokens(), header.geometry.head_dim];
    let mut start = 0;
    for (name, tensor) in names().zip(tensors) {
        let end = start + tensor.len();
        json.insert(name, json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] }));
        start = end;
    }
    frame(&Value::Object(json).to_string())
}

/// Puts the length before a JSON header and pads it to [`ALIGNMENT`].
fn frame(json: &str) -> Vec<u8> {
    let data_start = (LENGTH_BYTES + json.len()).next_multiple_of(ALIGNMENT);
    let mut out = Vec::with_capacity(data_start);
    out.extend_from_slice(&((data_start - LENGTH_BYTES) as u64).to_le_bytes());
    out.extend_from_slice(json.as_bytes());
    out.resize(data_start, b' ');
    out
}

/// Checks everything: head, key and the digest of every tensor.
///
/// # Errors
/// The first fault that is found.
pub(crate) fn check(file: &[u8], key: &BlockKey) -> Result<Head, Fault> {
    let head = read_head(file)?;
    if head.header.key != *key {
        return Err(Fault::Foreign { expected: *key, found: head.header.key });
    }
    let names = tensor_names(head.header.geometry.n_layers);
    for ((name, range), expected) in names.zip(head.layout.ranges()).zip(&head.digests) {
        let found = blake3::hash(&file[range]);
        if found != *expected {
            return Err(Fault::TensorDigest {
                name,
                expected: expected.to_hex().to_string(),
                found: found.to_hex().to_string(),
            });
        }
    }
    Ok(head)
}

/// Checks all but the tensors' bytes, which it does not touch.
///
/// # Errors
/// The first fault that is found.
pub(crate) fn read_head(file: &[u8]) -> Result<Head, Fault> {
    let json = header_bytes(file)?;
    // The crate's own whole-file reader adds offsets from the file without
    // checking for overflow; its header type does not.
    let metadata: Metadata = serde_json::from_slice(json).map_err(Fault::Safetensors)?;
    let fields: BTreeMap<String, String> =
        metadata.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    // The version comes first: what another version covers by which digest is
    // not known here.
    let header = BlockHeader::from_fields(&fields).map_err(Fault::Header)?;
    check_metadata_digest(&fields)?;
    let layout = layout(&header, &metadata, LENGTH_BYTES + json.len(), file.len())?;
    let digests = tensor_names(layout.n_layers)
        .map(|name| read_digest(&fields, &digest_field(&name)))
        .collect::<Result<_, _>>()?;
    Ok(Head { header, layout, digests })
}

/// The JSON header with its padding.
fn header_bytes(file: &[u8]) -> Result<&[u8], Fault> {
    let found = file.len() as u64;
    let Some((length, rest)) = file.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Fault::Length { expected: LENGTH_BYTES as u64, found });
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_BYTES_MAX as u64 {
        return Err(Fault::HeaderTooLong { found: length, limit: HEADER_BYTES_MAX as u64 });
    }
    rest.get(..length as usize)
        .ok_or(Fault::Length { expected: LENGTH_BYTES as u64 + length, found })
}

/// Compares the tensors in the file with those that the metadata asks for.
fn layout(
    header: &BlockHeader,
    metadata: &Metadata,
    data_start: usize,
    file_len: usize,
) -> Result<Layout, Fault> {
    if !data_start.is_multiple_of(ALIGNMENT) {
        return Err(Fault::Misaligned { data_start, alignment: ALIGNMENT });
    }
    let geometry = header.geometry;
    let n_layers = geometry.n_layers;
    let shape = [geometry.n_kv_heads, header.n_tokens(), geometry.head_dim];
    let product = |start: usize, factors: &[usize]| {
        factors.iter().try_fold(start, |bytes, &n| bytes.checked_mul(n)).filter(|&bytes| bytes > 0)
    };
    let bad_shape = || Fault::Shape { n_layers, shape };
    let tensor_bytes = product(geometry.dtype.size_bytes(), &shape).ok_or_else(bad_shape)?;
    let data_bytes = product(tensor_bytes, &[2, n_layers]).ok_or_else(bad_shape)?;
    let expected = data_start.checked_add(data_bytes).ok_or_else(bad_shape)?;

    let found = metadata.offset_keys().len();
    if found != 2 * n_layers {
        return Err(Fault::TensorCount { n_layers, expected: 2 * n_layers, found });
    }
    let dtype = safetensors_dtype(geometry.dtype);
    for (tensor_idx, name) in tensor_names(n_layers).enumerate() {
        let start = tensor_idx * tensor_bytes;
        let as_described = metadata.info(&name).is_some_and(|info| {
            info.dtype == dtype
                && info.shape == shape
                && info.data_offsets == (start, start + tensor_bytes)
        });
        if !as_described {
            return Err(Fault::Tensor { name });
        }
    }
    if file_len != expected {
        return Err(Fault::Length { expected: expected as u64, found: file_len as u64 });
    }
    Ok(Layout { data_start, tensor_bytes, n_layers })
}

fn check_metadata_digest(fields: &BTreeMap<String, String>) -> Result<(), Fault> {
    let expected = read_digest(fields, METADATA_DIGEST)?;
    let found = metadata_digest(fields);
    if found == expected {
        return Ok(());
    }
    Err(Fault::MetadataDigest {
        expected: expected.to_hex().to_string(),
        found: found.to_hex().to_string(),
    })
}

/// Digest of all fields but [`METADATA_DIGEST`], in order of their names, each
/// name and each value preceded by its length, so that no two sets of fields
/// give the same bytes.
fn metadata_digest(fields: &BTreeMap<String, String>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for (name, value) in fields.iter().filter(|(name, _)| *name != METADATA_DIGEST) {
        for text in [name, value] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    hasher.finalize()
}

fn read_digest(fields: &BTreeMap<String, String>, field: &str) -> Result<Hash, Fault> {
    fields
        .get(field)
        .and_then(|hex| Hash::from_hex(hex).ok().filter(|hash| *hash.to_hex() == **hex))
        .ok_or_else(|| Fault::DigestField { field: field.to_owned() })
}

fn digest_field(tensor: &str) -> String {
    format!("{METADATA_DIGEST}.{tensor}")
}

/// The tensors' names in the order of the file.
fn tensor_names(n_layers: usize) -> impl Iterator<Item = String> {
    (0..n_layers).flat_map(|layer| [format!("k.{layer}"), format!("v.{layer}")])
}

fn safetensors_dtype(dtype: KvDtype) -> Dtype {
    match dtype {
        KvDtype::F16 => Dtype::F16,
        KvDtype::F32 => Dtype::F32,
    }
}

#[cfg(test)]
mod tests;
