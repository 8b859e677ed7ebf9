//! Blocks to test with: odd, distinct dimensions, and elements of all bit
//! patterns, NaN among them, so that a copy through arithmetic would show.

use skillgraft_kv::{
    AnchorKind, BlockHeader, BlockKey, CompiledBlock, KvBlock, KvBuffer, KvDtype, KvGeometry,
    KvView, LayerIdx, Position, TokenId,
};

/// A block of 3 layers, 2 KV heads and `head_dim` 5. Blocks of different seeds
/// differ in key and in every tensor.
pub(crate) fn block(seed: u8, dtype: KvDtype, n_tokens: usize) -> CompiledBlock {
    let geometry = KvGeometry { n_layers: 3, n_kv_heads: 2, head_dim: 5, dtype };
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        // A step of xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as u32
    };
    let len = geometry.tensor_len(n_tokens);
    let mut buffers = || -> Vec<KvBuffer> {
        let mut buffer = || match dtype {
            KvDtype::F16 => KvBuffer::F16((0..len).map(|_| next() as u16).collect()),
            KvDtype::F32 => KvBuffer::F32((0..len).map(|_| f32::from_bits(next())).collect()),
        };
        (0..geometry.n_layers).map(|_| buffer()).collect()
    };
    let (k, v) = (buffers(), buffers());
    let header = BlockHeader {
        key: BlockKey([seed; 32]),
        geometry,
        tokens: (0..n_tokens).map(|i| TokenId(i as u32 * 31 + u32::from(seed))).collect(),
        compiled_at: Position(11),
        anchor: AnchorKind::Neutral,
        label: format!("skill \"é\\{seed}\"\n"),
        compile_ms: 12.125,
    };
    CompiledBlock { header, k, v }
}

/// Every element of K and V as bits, layer by layer.
pub(crate) fn bits(block: &dyn KvBlock) -> Vec<u32> {
    let layers = 0..block.header().geometry.n_layers as u32;
    layers
        .flat_map(|layer| [block.k(LayerIdx(layer)), block.v(LayerIdx(layer))])
        .flat_map(|view| -> Vec<u32> {
            match view {
                KvView::F16(bits) => bits.iter().map(|&bits| u32::from(bits)).collect(),
                KvView::F32(values) => values.iter().map(|value| value.to_bits()).collect(),
            }
        })
        .collect()
}
