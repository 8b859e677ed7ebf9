//! A tiny random llama-family model as a GGUF file.

use std::io::Cursor;
use std::sync::Arc;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use skillgraft_engine::{Model, ModelOptions};
use skillgraft_kv::{KvDtype, TokenId};

/// Dimensions are odd where they may be and distinct everywhere, so that a
/// swapped pair cannot pass.
pub(crate) const N_LAYERS: usize = 3;
const N_HEADS: usize = 6;
const N_KV_HEADS: usize = 2;
pub(crate) const HEAD_DIM: usize = 16;
const HIDDEN: usize = N_HEADS * HEAD_DIM;
const FFN: usize = 77;
pub(crate) const CONTEXT: u32 = 1100;

const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' \
    + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Deterministic noise in -1..1 (an LCG, Knuth's MMIX constants).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1 << 23) as f32) - 1.0
    }
}

/// The vocabulary: the 256 bytes as GPT-2 writes them, and three control tokens.
fn vocabulary() -> (Vec<String>, Vec<i32>) {
    let mut tokens = vec!["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let mut types = vec![3; tokens.len()];
    let mut spare = 256;
    for byte in 0..=255u32 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let code = if printable { byte } else { spare };
        spare += u32::from(!printable);
        tokens.push(char::from_u32(code).expect("a character").to_string());
        types.push(1);
    }
    (tokens, types)
}

fn metadata() -> Vec<(&'static str, Value)> {
    let (tokens, types) = vocabulary();
    let strings = |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::String).collect());
    vec![
        ("general.architecture", Value::String("llama".into())),
        ("llama.block_count", Value::U32(N_LAYERS as u32)),
        ("llama.context_length", Value::U32(CONTEXT)),
        ("llama.embedding_length", Value::U32(HIDDEN as u32)),
        ("llama.feed_forward_length", Value::U32(FFN as u32)),
        ("llama.attention.head_count", Value::U32(N_HEADS as u32)),
        ("llama.attention.head_count_kv", Value::U32(N_KV_HEADS as u32)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.rope.freq_base", Value::F32(10_000.0)),
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("smollm".into())),
        ("tokenizer.ggml.tokens", strings(tokens)),
        ("tokenizer.ggml.token_type", Value::Array(types.into_iter().map(Value::I32).collect())),
        ("tokenizer.ggml.merges", strings(Vec::new())),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
        ("tokenizer.chat_template", Value::String(TEMPLATE.into())),
    ]
}

/// The file's bytes, with metadata entries replaced or, by `None`, left out.
pub(crate) fn gguf(changes: &[(&'static str, Option<Value>)]) -> Vec<u8> {
    let mut noise = Noise(42);
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: &[usize], scale: f32, offset: f32| {
        let n: usize = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|_| noise.next() * scale + offset).collect();
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu).expect("the shape fits");
        let tensor = QTensor::quantize(&tensor, GgmlDType::F32).expect("f32 stays f32");
        tensors.push((name, tensor));
    };
    let vocab_size = vocabulary().0.len();
    let kv = N_KV_HEADS * HEAD_DIM;
    add("token_embd.weight".into(), &[vocab_size, HIDDEN], 1.0, 0.0);
    add("output_norm.weight".into(), &[HIDDEN], 0.1, 1.0);
    for layer in 0..N_LAYERS {
        let name = |name: &str| format!("blk.{layer}.{name}.weight");
        add(name("attn_norm"), &[HIDDEN], 0.1, 1.0);
        add(name("attn_q"), &[HIDDEN, HIDDEN], 0.3, 0.0);
        add(name("attn_k"), &[kv, HIDDEN], 0.3, 0.0);
        add(name("attn_v"), &[kv, HIDDEN], 0.2, 0.0);
        add(name("attn_output"), &[HIDDEN, HIDDEN], 0.2, 0.0);
        add(name("ffn_norm"), &[HIDDEN], 0.1, 1.0);
        add(name("ffn_gate"), &[FFN, HIDDEN], 0.2, 0.0);
        add(name("ffn_up"), &[FFN, HIDDEN], 0.2, 0.0);
        add(name("ffn_down"), &[HIDDEN, FFN], 0.2, 0.0);
    }
    let mut metadata = metadata();
    for (key, value) in changes {
        metadata.retain(|(name, _)| name != key);
        metadata.extend(value.clone().map(|value| (*key, value)));
    }
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let tensors: Vec<(&str, &QTensor)> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = Cursor::new(Vec::new());
    gguf_file::write(&mut file, &metadata, &tensors).expect("memory can be written");
    file.into_inner()
}

/// The model, loaded through a file as any other.
pub(crate) fn model(kv_dtype: KvDtype, n_threads: usize) -> Arc<Model> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("tiny.gguf");
    std::fs::write(&path, gguf(&[])).expect("the folder can be written");
    let mut options = ModelOptions { kv_dtype, ..ModelOptions::default() };
    options.backend.n_threads = Some(n_threads);
    Model::load(&path, &options).expect("the tiny model loads")
}

/// Token ids that differ from one another and from call to call.
pub(crate) fn tokens(seed: u64, n_tokens: usize) -> Vec<TokenId> {
    let mut noise = Noise(seed);
    (0..n_tokens).map(|_| TokenId(3 + ((noise.next() + 1.0) * 127.0) as u32)).collect()
}
