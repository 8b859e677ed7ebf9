//! Blocks: the KV of one framed text, and what makes two blocks the same.

use std::fmt;
use std::sync::Arc;

use crate::{
    BlockHeader, KvBuffer, KvGeometry, KvView, LayerAttention, LayerIdx, RopeSpec, TokenId,
};

/// BLAKE3 of a [`BlockIdentity`]: a block's only name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub [u8; 32]);

impl BlockKey {
    /// The key as 64 lower-case hexadecimal digits.
    pub fn to_hex(self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(BlockKey(key))
    }
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockKey({})", &self.to_hex()[..12])
    }
}

/// What a block was compiled behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnchorKind {
    /// Nothing before it: the block is exact from position 0 (a static prefix).
    None,
    /// A short system turn and the activation's header.
    Neutral,
    /// The real static prefix and the activation's header.
    Prefix,
}

impl AnchorKind {
    /// The name used in block files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            AnchorKind::None => "none",
            AnchorKind::Neutral => "neutral",
            AnchorKind::Prefix => "prefix",
        }
    }

    /// Reads [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        [AnchorKind::None, AnchorKind::Neutral, AnchorKind::Prefix]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// Everything that decides the bytes of a block. Two blocks with equal
/// identities are interchangeable; any difference is a miss.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockIdentity {
    /// BLAKE3 of the model's tensor data and configuration.
    pub model: [u8; 32],
    /// BLAKE3 of the vocabulary, merges and pre-tokenizer.
    pub tokenizer: [u8; 32],
    /// BLAKE3 of the chat template.
    pub template: [u8; 32],
    /// How K was rotated: the model's rotations.
    pub ropes: Vec<RopeSpec>,
    /// Which of them each layer uses, and how far back it sees.
    pub layers: Vec<LayerAttention>,
    /// Shape and element type of K and V.
    pub geometry: KvGeometry,
    /// Arithmetic that produced the KV (instruction set and precision): its
    /// results may differ in the last bit from another's.
    pub arithmetic: String,
    /// What the anchor is.
    pub anchor: AnchorKind,
    /// The anchor's token ids; their KV is not in the block.
    pub anchor_tokens: Vec<TokenId>,
    /// The block's token ids.
    pub tokens: Vec<TokenId>,
    /// Keeps one user's blocks from being guessed by another.
    pub salt: [u8; 16],
}

impl BlockIdentity {
    /// An injective encoding of the identity: every part is preceded by its length.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let ids = |tokens: &[TokenId]| -> Vec<u8> {
            tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect()
        };
        let geometry = [self.geometry.n_layers, self.geometry.n_kv_heads, self.geometry.head_dim];
        let geometry: Vec<u8> = geometry.iter().flat_map(|&n| (n as u64).to_le_bytes()).collect();
        let ropes: Vec<u8> = self.ropes.iter().flat_map(with_length).collect();
        let layers: Vec<u8> = self.layers.iter().flat_map(layer_bytes).collect();
        let parts: [&[u8]; 13] = [
            &crate::FORMAT_VERSION.to_le_bytes(),
            &self.model,
            &self.tokenizer,
            &self.template,
            &ropes,
            &layers,
            &geometry,
            self.geometry.dtype.name().as_bytes(),
            self.arithmetic.as_bytes(),
            self.anchor.name().as_bytes(),
            &ids(&self.anchor_tokens),
            &ids(&self.tokens),
            &self.salt,
        ];
        let mut out = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
        for part in parts {
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        }
        out
    }
}

fn with_length(rope: &RopeSpec) -> Vec<u8> {
    let bytes = rope.canonical_bytes();
    [&(bytes.len() as u64).to_le_bytes()[..], &bytes].concat()
}

fn layer_bytes(layer: &LayerAttention) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&(layer.rope as u64).to_le_bytes());
    // No window is as long as the largest number, so it stands for none.
    let window = layer.window.map_or(u64::MAX, |window| window as u64);
    out[8..].copy_from_slice(&window.to_le_bytes());
    out
}

/// Read access to the KV of a block, wherever it lies.
pub trait KvBlock: Send + Sync + fmt::Debug {
    /// Identity, shape and provenance.
    fn header(&self) -> &BlockHeader;

    /// K of one layer, `[n_kv_heads, n_tokens, head_dim]`, rotated for the
    /// positions from [`BlockHeader::compiled_at`] on.
    ///
    /// # Panics
    /// When the layer is out of range.
    fn k(&self, layer: LayerIdx) -> KvView<'_>;

    /// V of one layer, `[n_kv_heads, n_tokens, head_dim]`.
    ///
    /// # Panics
    /// When the layer is out of range.
    fn v(&self, layer: LayerIdx) -> KvView<'_>;

    /// Whether K and V can be read as they were checked. A block in a file that
    /// another program has shortened cannot: reading it may end the process.
    fn is_intact(&self) -> bool {
        true
    }
}

/// A block in this process's own memory, as the engine compiled it.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledBlock {
    /// Identity, shape and provenance.
    pub header: BlockHeader,
    /// K of each layer, `[n_kv_heads, n_tokens, head_dim]`.
    pub k: Vec<KvBuffer>,
    /// V of each layer, `[n_kv_heads, n_tokens, head_dim]`.
    pub v: Vec<KvBuffer>,
}

impl KvBlock for CompiledBlock {
    fn header(&self) -> &BlockHeader {
        &self.header
    }

    fn k(&self, layer: LayerIdx) -> KvView<'_> {
        self.k[layer.index()].view()
    }

    fn v(&self, layer: LayerIdx) -> KvView<'_> {
        self.v[layer.index()].view()
    }
}

/// A block that may be grafted: its bytes are known to be those that were
/// compiled. Only this type can enter a cache.
#[derive(Debug, Clone)]
pub struct VerifiedBlock(Arc<dyn KvBlock>);

impl VerifiedBlock {
    /// Takes a block just compiled in this process.
    pub fn from_compiled(block: CompiledBlock) -> Self {
        VerifiedBlock(Arc::new(block))
    }

    /// Takes a block whose checksums the caller has compared with its bytes.
    /// For implementations of [`BlockStore`](crate::BlockStore) only.
    pub fn from_checked(block: Arc<dyn KvBlock>) -> Self {
        VerifiedBlock(block)
    }

    /// The block.
    pub fn get(&self) -> &Arc<dyn KvBlock> {
        &self.0
    }

    /// Identity, shape and provenance.
    pub fn header(&self) -> &BlockHeader {
        self.0.header()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KvDtype, RopePairing, RopeScaling};

    #[test]
    fn rotations_and_windows_of_layers_are_part_of_the_identity() {
        let rope = |theta| RopeSpec {
            theta,
            rotary_dim: 8,
            pairing: RopePairing::HalfSplit,
            scaling: RopeScaling::None,
        };
        let layer = |rope, window| LayerAttention { rope, window };
        let bytes = |ropes: &[RopeSpec], layers: &[LayerAttention]| {
            BlockIdentity {
                model: [1; 32],
                tokenizer: [2; 32],
                template: [3; 32],
                ropes: ropes.to_vec(),
                layers: layers.to_vec(),
                geometry: KvGeometry {
                    n_layers: 2,
                    n_kv_heads: 1,
                    head_dim: 8,
                    dtype: KvDtype::F16,
                },
                arithmetic: "cpu".to_owned(),
                anchor: AnchorKind::Neutral,
                anchor_tokens: vec![TokenId(1)],
                tokens: vec![TokenId(2)],
                salt: [4; 16],
            }
            .canonical_bytes()
        };
        let ropes = [rope(1e6), rope(1e4)];
        let long = RopeScaling::LongRope { divisors: vec![1.0; 4], attention_factor: 1.2 };
        let layers = [layer(0, None), layer(1, Some(20))];
        let all = [
            bytes(&ropes, &layers),
            bytes(&ropes[..1], &layers),
            bytes(&[rope(1e4), rope(1e6)], &layers),
            bytes(&[rope(1e6), RopeSpec { scaling: long, ..rope(1e4) }], &layers),
            bytes(&ropes, &[layer(0, None), layer(1, None)]),
            bytes(&ropes, &[layer(0, None), layer(1, Some(21))]),
            bytes(&ropes, &[layer(0, None), layer(0, Some(20))]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one), "{i}");
        }
    }
}
