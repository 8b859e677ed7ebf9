//! Agreement with reference numbers that were computed in f32 from dequantised
//! weights and checked against Hugging Face transformers; `tests/golden/README.md`.

use std::path::PathBuf;
use std::sync::Arc;

use safetensors::SafeTensors;
use serde_json::Value;
use skillgraft::engine::{BlockSource, Model, Session, arg_max, compile, uninterrupted};
use skillgraft::kv::{
    AnchorKind, KvBuffer, KvDtype, KvView, Position, TokenId, TokenSpan, VerifiedBlock,
};

use crate::model;

/// Absolute tolerance of logits, K and V: some 30 layers of f32 sums in another
/// order, with K outliers of 25.
const TOLERANCE: f32 = 1e-3;
/// A greedy step whose two best logits are nearer than this is a tie.
const TIE: f64 = 0.02;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn json(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name)).expect("golden data");
    serde_json::from_str(&text).expect("golden data is JSON")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn numbers(value: &Value) -> Vec<f32> {
    list(value).iter().map(|number| number.as_f64().expect("a number") as f32).collect()
}

fn prefill(model: &Arc<Model>, tokens: &[TokenId]) -> (Session, Vec<f32>) {
    let mut session = Session::new(Arc::clone(model));
    let logits = session.prefill(tokens, "prompt", &uninterrupted).expect("it fits");
    (session, logits.expect("prompts have tokens"))
}

#[test]
fn token_ids_are_equal() {
    let model = model::with_f32_kv();
    let cases = json("tokenize.json");
    for case in list(&cases) {
        let text = case["text"].as_str().expect("a text");
        let ids = model.tokenizer().encode_markup(text).expect("it encodes");
        assert_eq!(ids, model::token_ids(&case["ids"]), "{text:?}");
    }
    assert_eq!(list(&cases).len(), 22);
}

#[test]
fn logits_of_the_prompts_agree() {
    let model = model::with_f32_kv();
    let prompts = json("prompts.json");
    assert_eq!(list(&prompts).len(), 6);
    for prompt in list(&prompts) {
        let tokens = model::token_ids(&prompt["ids"]);
        let text = prompt["text"].as_str().expect("a text");
        assert_eq!(model.tokenizer().encode_markup(text).expect("it encodes"), tokens);
        let (_, logits) = prefill(&model, &tokens);
        let expected = numbers(&prompt["top50_logits"]);
        for (id, expected) in model::token_ids(&prompt["top50_ids"]).iter().zip(expected) {
            let found = logits[id.0 as usize];
            assert!((found - expected).abs() < TOLERANCE, "{text:?} {id:?}: {found} {expected}");
        }
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        let expected = prompt["logsumexp"].as_f64().expect("a number");
        assert!((sum.ln() - expected).abs() < f64::from(TOLERANCE), "{text:?}");
    }
}

#[test]
fn greedy_continuations_are_equal_up_to_ties() {
    let model = model::with_f32_kv();
    let mut n_equal = 0;
    for prompt in list(&json("prompts.json")) {
        let (mut session, mut logits) = prefill(&model, &model::token_ids(&prompt["ids"]));
        let gaps = list(&prompt["greedy32_top2_gap"]);
        for (&expected, gap) in model::token_ids(&prompt["greedy32_ids"]).iter().zip(gaps) {
            if arg_max(&logits) != expected {
                let gap = gap.as_f64().expect("a number");
                assert!(gap < TIE, "{}: gap {gap}", prompt["text"]);
            }
            n_equal += usize::from(arg_max(&logits) == expected);
            // Behind the reference's own token, so that a tie does not end the test.
            let next = session.prefill(&[expected], "answer", &uninterrupted).expect("it fits");
            logits = next.expect("one token");
        }
    }
    assert!(n_equal >= 6 * 32 - 3, "{n_equal} of {}", 6 * 32);
}

/// Rows of a K or V tensor, `[n_kv_heads, n_tokens, head_dim]`.
fn row(tensor: &KvBuffer, model: &Model, n_tokens: usize, head: usize, token: usize) -> Vec<f32> {
    let head_dim = model.spec().head_dim;
    let start = (head * n_tokens + token) * head_dim;
    match tensor.view().slice(start, start + head_dim) {
        KvView::F32(values) => values.to_vec(),
        KvView::F16(_) => panic!("the cache was opened with f32"),
    }
}

fn f32s(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let bytes = tensors.tensor(name).expect("a golden tensor").data();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
}

fn compare_rows(found: &[f32], expected: &[f32], what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < TOLERANCE, "{what}: {found} {expected}");
    }
}

#[test]
fn k_and_v_agree() {
    let model = model::with_f32_kv();
    let bytes = std::fs::read(path("kv_slices.safetensors")).expect("golden data");
    let golden = SafeTensors::deserialize(&bytes).expect("golden data");
    let prompts = json("prompts.json");
    for prompt in [0, 5] {
        let tokens = model::token_ids(&prompts[prompt]["ids"]);
        let (session, _) = prefill(&model, &tokens);
        let span = TokenSpan { start: Position(0), len: tokens.len() as u32 };
        let [k, v] = session.cache().extract(model.backend(), span).expect("all of it is live");
        let positions = golden.tensor(&format!("p{prompt}.positions")).expect("a golden tensor");
        let positions: Vec<usize> = positions
            .data()
            .chunks_exact(8)
            .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")) as usize)
            .collect();
        for (layer, head) in [0, 1, 14, 29].into_iter().flat_map(|layer| [(layer, 0), (layer, 2)]) {
            for (kind, tensor) in [("k_rot", &k[layer]), ("v", &v[layer])] {
                let name = format!("p{prompt}.l{layer}.h{head}.{kind}");
                let expected = f32s(&golden, &name);
                for (&position, expected) in positions.iter().zip(expected.chunks_exact(64)) {
                    let found = row(tensor, &model, tokens.len(), head, position);
                    compare_rows(&found, expected, &name);
                }
            }
        }
    }
}

/// KL(p || q) in f64 over all logits.
pub(crate) fn kl(p: &[f32], q: &[f32]) -> f64 {
    let log_softmax = |logits: &[f32]| -> Vec<f64> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shifted: Vec<f64> = logits.iter().map(|&logit| f64::from(logit - max)).collect();
        let log_sum = shifted.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        shifted.into_iter().map(|logit| logit - log_sum).collect()
    };
    let (p, q) = (log_softmax(p), log_softmax(q));
    p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum()
}

struct Graft {
    prefix: Vec<TokenId>,
    block: Vec<TokenId>,
    question: Vec<TokenId>,
    methods: Vec<Value>,
}

impl Graft {
    fn load() -> Self {
        let case = json("paste.json");
        Graft {
            prefix: model::token_ids(&case["prefix_ids"]),
            block: model::token_ids(&case["block_ids"]),
            question: model::token_ids(&case["question_ids"]),
            methods: list(&case["methods"]).clone(),
        }
    }

    fn method(&self, name: &str) -> &Value {
        let found = self.methods.iter().find(|method| method["method"] == name);
        found.expect("the method is in the golden data")
    }

    fn grafted(&self, model: &Arc<Model>, anchor_tokens: &[TokenId]) -> (Session, Vec<f32>) {
        let source = BlockSource {
            label: "golden",
            anchor: AnchorKind::Neutral,
            anchor_tokens,
            tokens: &self.block,
            salt: [0; 16],
        };
        let block = compile(model, &source, &uninterrupted).expect("it compiles");
        let (mut session, _) = prefill(model, &self.prefix);
        session.graft(VerifiedBlock::from_compiled(block), "skill").expect("it fits");
        let logits = session.prefill(&self.question, "message", &uninterrupted).expect("it fits");
        (session, logits.expect("the question has tokens"))
    }

    fn full(&self, model: &Arc<Model>) -> (Session, Vec<f32>) {
        prefill(model, &[&self.prefix[..], &self.block, &self.question].concat())
    }
}

#[test]
fn the_golden_grafts_are_reproduced() {
    let model = model::with_f32_kv();
    let case = Graft::load();
    let (_, full) = case.full(&model);
    let compile_prefix =
        model::token_ids(&case.method("context_compiled_paste")["compile_prefix_ids"]);
    for (name, anchor) in [("blind_paste", &[][..]), ("context_compiled_paste", &compile_prefix)] {
        let (_, grafted) = case.grafted(&model, anchor);
        let method = case.method(name);
        let expected_kl = method["kl_ref"].as_f64().expect("a number");
        let found_kl = kl(&full, &grafted);
        let off = (found_kl - expected_kl).abs() / expected_kl;
        assert!(off < 0.1, "{name}: KL {found_kl}, reference {expected_kl}");
        // The reference rotates K by the distance and rounds it again; here the
        // query is rotated. Both are f32, so the logits agree as closely as any.
        let ids = model::token_ids(&method["top50_ids"]);
        for (id, expected) in ids.iter().zip(numbers(&method["top50_logits"])) {
            let found = grafted[id.0 as usize];
            assert!((found - expected).abs() < 2e-3, "{name} {id:?}: {found} {expected}");
        }
    }
}

#[test]
fn k_and_v_of_a_full_prefill_and_of_a_lone_block_agree() {
    let model = model::with_f32_kv();
    let case = Graft::load();
    let bytes = std::fs::read(path("paste.safetensors")).expect("golden data");
    let golden = SafeTensors::deserialize(&bytes).expect("golden data");
    let (full, _) = case.full(&model);
    let at = case.prefix.len();
    let span = TokenSpan { start: Position(at as u32), len: 12 };
    let [k, v] = full.cache().extract(model.backend(), span).expect("all of it is live");
    let (lone, _) = prefill(&model, &case.block);
    let span = TokenSpan { start: Position(0), len: 12 };
    let [_, lone_v] = lone.cache().extract(model.backend(), span).expect("all of it is live");
    for layer in [0, 1, 15, 29] {
        // V is not rotated, so that of a lone block is the blind graft's.
        for (name, tensor) in [
            (format!("full.l{layer}.h1.k"), &k[layer]),
            (format!("full.l{layer}.h1.v"), &v[layer]),
            (format!("blind.l{layer}.h1.v"), &lone_v[layer]),
        ] {
            let expected = f32s(&golden, &name);
            for (token, expected) in expected.chunks_exact(64).enumerate() {
                compare_rows(&row(tensor, &model, 12, 1, token), expected, &name);
            }
        }
    }
}

#[test]
fn a_block_behind_its_own_prefix_is_exact_on_the_real_model() {
    for model in [model::as_shipped(), model::with_f32_kv()] {
        let case = Graft::load();
        let (_, expected) = case.full(&model);
        let (_, grafted) = case.grafted(&model, &case.prefix);
        let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&grafted), bits(&expected));
    }
}

#[test]
fn f16_storage_costs_next_to_nothing() {
    let case = Graft::load();
    let (_, reference) = case.full(&model::with_f32_kv());
    let shipped = model::with_f16_kv();
    assert_eq!(shipped.kv_geometry().dtype, KvDtype::F16);
    let (_, stored) = case.full(&shipped);
    let kl = kl(&reference, &stored);
    assert!(kl < 1e-5, "KL {kl}");
}

#[test]
fn inputs_in_bytes_cost_little() {
    let (strict, shipped) = (model::with_f16_kv(), model::as_shipped());
    let (mut sum, mut worst, mut n_same, mut n) = (0.0, 0.0_f64, 0, 0);
    for prompt in list(&json("prompts.json")) {
        let ids =
            [model::token_ids(&prompt["ids"]), model::token_ids(&prompt["greedy32_ids"])].concat();
        let score = |model: &Arc<Model>| {
            Session::new(Arc::clone(model)).score(&ids, "prompt").expect("it fits")
        };
        let (expected, found) = (score(&strict), score(&shipped));
        let vocab_size = strict.spec().vocab_size;
        let rows = expected.chunks_exact(vocab_size).zip(found.chunks_exact(vocab_size));
        for (expected, found) in rows.skip(ids.len() - 32) {
            let kl = kl(expected, found);
            sum += kl;
            worst = worst.max(kl);
            n_same += usize::from(arg_max(expected) == arg_max(found));
            n += 1;
        }
    }
    let mean = sum / f64::from(n);
    let found = format!("KL mean {mean:.5}, worst {worst:.4}, {n_same} of {n} first choices");
    assert!(mean < 0.01 && n_same * 100 >= 96 * n as usize, "{found}");
}
