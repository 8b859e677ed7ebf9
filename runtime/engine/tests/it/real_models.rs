//! Real model files against what transformers computes with the same weights,
//! unpacked to f32. `golden/make_families.py` made the numbers.

use std::path::Path;
use std::sync::Arc;

use skillgraft_engine::{BackendOptions, Model, ModelOptions, Session};
use skillgraft_kv::{KvDtype, TokenId};

use crate::families::golden_json;

/// Folder of real models: files that are not in the repository.
const FOLDER: &str = "SKILLGRAFT_TEST_MODELS";
pub(crate) const GEMMA: &str = "gemma3-270m-q4_k_m.gguf";
pub(crate) const QWEN: &str = "qwen2.5-coder-0.5b-q4_k_m.gguf";

/// A real model, or `None` with the reason on stderr.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn real(file: &str, options: &ModelOptions) -> Option<Arc<Model>> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        eprintln!("SKIPPED: {FOLDER} names no folder with {file}");
        return None;
    };
    let path = Path::new(&folder).join(file);
    if !path.exists() {
        eprintln!("SKIPPED: there is no {}", path.display());
        return None;
    }
    Some(Model::load(&path, options).expect("it loads"))
}

/// The largest difference between logits and the golden ones, in f32 throughout.
fn distance(file: &str, golden: &str) -> Option<f32> {
    let backend = BackendOptions { strict_f32: true, ..BackendOptions::default() };
    let options = ModelOptions { kv_dtype: KvDtype::F32, backend, ..ModelOptions::default() };
    let model = real(file, &options)?;
    let golden = golden_json(golden);
    let list = |value: &serde_json::Value| -> Vec<u32> {
        serde_json::from_value(value.clone()).expect("whole numbers")
    };
    let tokens: Vec<TokenId> = list(&golden["tokens"]).into_iter().map(TokenId).collect();
    let rows = list(&golden["rows"]);
    let mut session = Session::new(model);
    let mut worst = 0f32;
    let mut done = 0;
    for (i, &row) in rows.iter().enumerate() {
        let end = row as usize + 1;
        // One row of logits at a time: a vocabulary is large.
        let logits = session
            .prefill(&tokens[done..end], "live", &skillgraft_engine::uninterrupted)
            .expect("it fits")
            .expect("it has tokens");
        done = end;
        let wanted: Vec<f32> =
            serde_json::from_value(golden["logits"][i].clone()).expect("numbers");
        for (id, wanted) in list(&golden["ids"][i]).into_iter().zip(wanted) {
            worst = worst.max((logits[id as usize] - wanted).abs());
        }
    }
    Some(worst)
}

/// What was measured is 1.5e-4 for logits of up to 32: f32, summed in another order.
const TOLERANCE: f32 = 1e-3;

#[test]
fn gemma_computes_what_transformers_does() {
    // 588 tokens, beyond the window of 512.
    if let Some(distance) = distance(GEMMA, "gemma3_270m_logits.json") {
        assert!(distance < TOLERANCE, "{distance}");
    }
}

#[test]
fn qwen_computes_what_transformers_does() {
    if let Some(distance) = distance(QWEN, "qwen2_logits.json") {
        assert!(distance < TOLERANCE, "{distance}");
    }
}
