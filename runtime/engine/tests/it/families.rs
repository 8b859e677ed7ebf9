//! The families against another implementation: tiny random models, and what
//! Hugging Face transformers computes with them. `golden/make_families.py` made
//! both, and says with which versions.
//!
//! Sums are taken in another order there, in f32 as here; that shows in the last
//! digits of logits of up to 20: 1.5e-5 at most, where the bound is 2e-4. What a wrong number
//! in a family does is at least 100 times the bound.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skillgraft_engine::{
    BackendOptions, BlockSource, EngineError, Model, ModelOptions, Session, compile, uninterrupted,
};
use skillgraft_kernels::{KvShape, KvSource, RopeTable, reference};
use skillgraft_kv::{
    AnchorKind, CompiledBlock, KvBuffer, KvDtype, KvGeometry, KvView, LayerIdx, Position, TokenId,
    VerifiedBlock,
};

use crate::exactness::{bits, block, prefilled};

const MODELS: [&str; 6] = ["llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3"];
/// The most that a logit may differ by.
const TOLERANCE: f32 = 2e-4;

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

pub(crate) fn golden_json(name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(golden(name)).expect("a committed file");
    serde_json::from_str(&text).expect("JSON")
}

fn try_load(name: &str, options: ModelOptions) -> Result<Arc<Model>, EngineError> {
    Model::load(&golden(&format!("{name}.gguf")), &options)
}

pub(crate) fn load(name: &str, context_length: Option<u32>) -> Arc<Model> {
    let backend = BackendOptions { n_threads: Some(1), strict_f32: true };
    let options = ModelOptions { kv_dtype: KvDtype::F32, context_length, backend };
    try_load(name, options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// One sequence, and the logits of some of its rows.
struct Case {
    tokens: Vec<TokenId>,
    context_limit: Option<u32>,
    rows: Vec<(usize, Vec<f32>)>,
}

fn cases(name: &str) -> Vec<Case> {
    let all = golden_json("families.json");
    let cases = all["models"][name].as_array().expect("cases").clone();
    let read = |case: &serde_json::Value| {
        let list = |key: &str| serde_json::from_value::<Vec<u32>>(case[key].clone()).expect(key);
        let logits: Vec<Vec<f32>> =
            serde_json::from_value(case["logits"].clone()).expect("rows of numbers");
        Case {
            tokens: list("tokens").into_iter().map(TokenId).collect(),
            context_limit: case["context_limit"].as_u64().map(|n| n as u32),
            rows: list("rows").into_iter().map(|row| row as usize).zip(logits).collect(),
        }
    };
    cases.iter().map(read).collect()
}

fn farthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_are_those_of_transformers() {
    for name in MODELS {
        for case in cases(name) {
            let model = load(name, case.context_limit);
            let vocab_size = model.spec().vocab_size;
            for chunk in [case.tokens.len(), 23] {
                let mut session = Session::new(Arc::clone(&model));
                let mut all = Vec::new();
                for tokens in case.tokens.chunks(chunk) {
                    all.extend(session.score(tokens, "live").expect("it fits"));
                }
                for (row, wanted) in &case.rows {
                    let got = &all[row * vocab_size..(row + 1) * vocab_size];
                    let distance = farthest(got, wanted);
                    let tokens = case.tokens.len();
                    assert!(distance < TOLERANCE, "{name}, {row} of {tokens}: {distance}");
                }
            }
        }
    }
}

/// A model whose file has another number under a key.
pub(crate) fn changed(name: &str, key: &str, value: &[u8]) -> Arc<Model> {
    let mut bytes = std::fs::read(golden(&format!("{name}.gguf"))).expect("a committed file");
    let start = bytes.windows(key.len()).position(|window| window == key.as_bytes());
    // Behind the key is the value's type, four bytes too.
    let at = start.expect("the file has the key") + key.len() + 4;
    bytes[at..at + value.len()].copy_from_slice(value);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("the folder can be written");
    let backend = BackendOptions { n_threads: Some(1), strict_f32: true };
    let options = ModelOptions { kv_dtype: KvDtype::F32, context_length: None, backend };
    Model::load(&path, &options).expect("it loads")
}

#[test]
fn golden_rows_tell_every_number_of_a_family() {
    let window = 10u32.to_le_bytes();
    let theta = 5e3f32.to_le_bytes();
    for (name, key, value) in [
        ("llama", "llama.rope.freq_base", theta),
        ("mistral", "llama.attention.sliding_window", window),
        ("qwen2", "qwen2.rope.freq_base", theta),
        ("qwen3", "qwen3.attention.layer_norm_rms_epsilon", 0.1f32.to_le_bytes()),
        ("gemma3", "gemma3.attention.sliding_window", window),
        ("gemma3", "gemma3.rope.scaling.factor", 1f32.to_le_bytes()),
        ("phi3", "phi3.rope.scaling.attn_factor", 1f32.to_le_bytes()),
    ] {
        let model = changed(name, key, &value);
        let case = &cases(name)[0];
        let mut session = Session::new(Arc::clone(&model));
        let all = session.score(&case.tokens, "live").expect("it fits");
        let vocab_size = model.spec().vocab_size;
        let distance = |(row, wanted): &(usize, Vec<f32>)| {
            farthest(&all[row * vocab_size..(row + 1) * vocab_size], wanted)
        };
        let worst = case.rows.iter().map(distance).fold(0.0, f32::max);
        assert!(worst > 100.0 * TOLERANCE, "{name} {key}: {worst}");
    }
}

/// Divergence of the distribution that `b` gives from that of `a`, in nats.
fn kl(a: &[f32], b: &[f32]) -> f64 {
    let log_softmax = |logits: &[f32]| -> Vec<f64> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&x| f64::from(x - largest).exp()).sum();
        logits.iter().map(|&x| f64::from(x - largest) - sum.ln()).collect()
    };
    let (a, b) = (log_softmax(a), log_softmax(b));
    a.iter().zip(&b).map(|(a, b)| a.exp() * (a - b)).sum()
}

#[test]
fn a_block_behind_its_own_prefix_is_exact_in_each_family() {
    for name in MODELS {
        for kv_dtype in [KvDtype::F32, KvDtype::F16] {
            let backend = BackendOptions { n_threads: Some(1), strict_f32: false };
            let options = ModelOptions { kv_dtype, context_length: None, backend };
            let model = try_load(name, options).expect("it loads");
            let tokens = &cases(name)[0].tokens;
            // Longer than the windows of the tiny models.
            let (prefix, rest) = tokens.split_at(25);
            let (body, question) = rest.split_at(30);
            let question = &question[..5];
            let (_, expected) = prefilled(&model, &[prefix, body, question]);
            let (mut session, _) = prefilled(&model, &[prefix]);
            session.graft(block(&model, prefix, body), "skill").expect("it fits");
            let logits = session.prefill(question, "live", &uninterrupted).expect("it fits");
            assert_eq!(bits(&logits.expect("it has tokens")), bits(&expected), "{name} {kv_dtype}");
        }
    }
}

/// The block as if it had been compiled at `to`: K rotated, layer by layer, by
/// the reference in f64.
fn relocated(model: &Model, source: &VerifiedBlock, to: Position) -> VerifiedBlock {
    let mut header = source.header().clone();
    let delta = to - header.compiled_at;
    header.compiled_at = to;
    let KvGeometry { n_kv_heads, head_dim, .. } = header.geometry;
    let shape = KvShape { n_kv_heads, n_tokens: header.n_tokens(), head_dim };
    let (mut k, mut v) = (Vec::new(), Vec::new());
    for (layer, attention) in (0..).map(LayerIdx).zip(&model.spec().layers) {
        let table = RopeTable::new(&model.spec().ropes[attention.rope]);
        let view = source.get().k(layer);
        let from = KvSource { view, head_stride: shape.n_tokens * head_dim };
        let moved = reference::relocate(&table, delta, from, shape);
        k.push(KvBuffer::F32(moved.into_iter().map(|x| x as f32).collect()));
        let KvView::F32(values) = source.get().v(layer) else { panic!("the test keeps f32") };
        v.push(KvBuffer::F32(values.to_vec()));
    }
    VerifiedBlock::from_compiled(CompiledBlock { header, k, v })
}

#[test]
fn a_moved_block_is_the_block_with_its_keys_rotated() {
    // What a block costs that has read nine more tokens than a prefill would
    // have: at most this divergence, in nats. It says little of real models,
    // since random weights look at all tokens alike. Mistral's local layers do
    // not see that far, so that only the rotation's rounding is left.
    let bounds = [0.04, 1e-9, 0.02, 1.0, 0.003, 0.03];
    for (name, bound) in MODELS.into_iter().zip(bounds) {
        let model = load(name, None);
        let tokens = &cases(name)[0].tokens;
        let (prefix, body, question) = (&tokens[..13], &tokens[13..40], &tokens[40..46]);
        // The same anchor behind nine other tokens, so that the block moves back.
        let anchor = [&tokens[46..55], prefix].concat();
        let compiled = block(&model, &anchor, body);
        let ask = |grafted: VerifiedBlock| {
            let (mut session, _) = prefilled(&model, &[prefix]);
            session.graft(grafted, "skill").expect("it fits");
            let logits = session.prefill(question, "live", &uninterrupted).expect("it fits");
            logits.expect("it has tokens")
        };
        let moved = ask(compiled.clone());
        let reference = ask(relocated(&model, &compiled, Position(prefix.len() as u32)));
        assert!(farthest(&moved, &reference) < TOLERANCE, "{name}: {moved:?} {reference:?}");
        // Left where it was, its keys are nine positions off: that is told apart.
        let mut header = compiled.header().clone();
        header.compiled_at = Position(prefix.len() as u32);
        let (k, v) = copies(&compiled);
        let unmoved = ask(VerifiedBlock::from_compiled(CompiledBlock { header, k, v }));
        assert!(farthest(&unmoved, &reference) > 100.0 * TOLERANCE, "{name}");

        let (_, full) = prefilled(&model, &[prefix, body, question]);
        let divergence = kl(&full, &moved);
        assert!(divergence < bound, "{name}: {divergence}");
        assert!(divergence < kl(&full, &unmoved), "{name}: {divergence}");
    }
}

fn copies(block: &VerifiedBlock) -> (Vec<KvBuffer>, Vec<KvBuffer>) {
    let copy = |view: KvView<'_>| match view {
        KvView::F32(values) => KvBuffer::F32(values.to_vec()),
        KvView::F16(bits) => KvBuffer::F16(bits.to_vec()),
    };
    let layers = || (0..block.header().geometry.n_layers as u32).map(LayerIdx);
    let k = layers().map(|layer| copy(block.get().k(layer))).collect();
    (k, layers().map(|layer| copy(block.get().v(layer))).collect())
}

#[test]
fn beyond_its_first_length_longrope_is_not_grafted() {
    let short = load("phi3", None);
    assert_eq!((short.context_length(), short.not_graftable()), (64, None));
    let long = load("phi3", Some(400));
    assert_eq!(long.context_length(), 400);
    let reason = long.not_graftable().expect("it has a reason");
    assert!(reason.contains("beyond 64 tokens"), "{reason}");
    let tokens = &cases("phi3")[1].tokens;
    let source = BlockSource {
        label: "block",
        anchor: AnchorKind::Neutral,
        anchor_tokens: &[],
        tokens: &tokens[..20],
        salt: [0; 16],
    };
    // Blocks of the two regimes cannot be taken for one another.
    assert_ne!(source.key(&short), source.key(&long));
    let block = compile(&long, &source, &uninterrupted).expect("it compiles");
    let (mut session, _) = prefilled(&long, &[&tokens[20..30]]);
    let refused = session.graft(VerifiedBlock::from_compiled(block), "skill");
    assert!(matches!(refused, Err(EngineError::ForeignBlock { .. })), "{refused:?}");
}
