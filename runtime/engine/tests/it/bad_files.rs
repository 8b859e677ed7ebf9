//! Model files that are not what they should be.

use std::path::Path;

use candle_core::quantized::gguf_file::Value;
use skillgraft_engine::{EngineError, Message, Model, ModelOptions, Role};

use crate::tiny;

fn load(bytes: &[u8]) -> Result<(), EngineError> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("the folder can be written");
    let loaded: Result<std::sync::Arc<Model>, _> = Model::load(&path, &ModelOptions::default());
    loaded.map(drop)
}

fn load_changed(key: &'static str, value: Option<Value>) -> EngineError {
    load(&tiny::gguf(&[(key, value)])).expect_err("the file is wrong")
}

#[test]
fn every_truncation_is_an_error() {
    let whole = tiny::gguf(&[]);
    assert!(load(&whole).is_ok());
    for n_bytes in (0..whole.len()).step_by(4801).chain([whole.len() - 1]) {
        let error = load(&whole[..n_bytes]).expect_err("a part is not a model");
        let named = match &error {
            EngineError::NotGguf { .. } => n_bytes < whole.len() / 2,
            EngineError::Truncated { needed, found, .. } => found < needed,
            _ => false,
        };
        assert!(named, "{n_bytes} bytes: {error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_missing_file_is_named() {
    let missing = Model::<skillgraft_engine::CpuBackend>::load(
        Path::new("/nowhere/model.gguf"),
        &ModelOptions::default(),
    );
    let error = missing.expect_err("there is no such file");
    assert!(error.to_string().contains("/nowhere/model.gguf"), "{error}");
}

#[test]
fn other_architectures_are_named_with_the_supported_ones() {
    let error = load_changed("general.architecture", Some(Value::String("mamba".into())));
    let supported = skillgraft_engine::supported_architectures().join(", ");
    let wanted = format!("unsupported model architecture `mamba`; supported: {supported}");
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn unknown_pre_tokenizers_are_refused() {
    let error = load_changed("tokenizer.ggml.pre", Some(Value::String("viking".into())));
    assert!(error.to_string().contains("unsupported pre-tokenizer `viking`"), "{error}");
}

#[test]
fn a_model_without_a_chat_template_goes_on_with_plain_text() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, tiny::gguf(&[("tokenizer.chat_template", None)]))
        .expect("the folder can be written");
    let model: std::sync::Arc<Model> =
        Model::load(&path, &ModelOptions::default()).expect("it needs no template");
    let template = model.template();
    assert!(template.is_plain());
    let message = |role, content: &str| Message { role, content: content.to_owned() };
    let mut history = vec![message(Role::System, "be kind")];
    let frame = template.frame(&history, Role::User).expect("it renders");
    assert_eq!((frame.head.as_str(), frame.tail.as_str()), ("", "\n\n"));
    history.push(message(Role::User, "hello"));
    assert_eq!(template.generation_prompt(&history).expect("it renders"), "Answer:");
    let frame = template.frame(&history, Role::Assistant).expect("it renders");
    assert_eq!((frame.head.as_str(), frame.tail.as_str()), ("Answer: ", "\n\n"));
}

#[test]
fn metadata_that_contradicts_the_tensors_is_refused() {
    let error = load_changed("llama.feed_forward_length", Some(Value::U32(76)));
    assert!(error.to_string().contains("ffn_gate.weight"), "{error}");
    let error = load_changed("llama.attention.head_count_kv", Some(Value::U32(4)));
    assert!(error.to_string().contains("6 query heads with 4 KV heads"), "{error}");
    let error = load_changed("llama.block_count", Some(Value::U32(tiny::N_LAYERS as u32 + 1)));
    assert!(error.to_string().contains("`blk.3.attn_norm.weight` is missing"), "{error}");
    // Tensors that nobody would read: another family's, or more layers.
    let error = load_changed("llama.block_count", Some(Value::U32(tiny::N_LAYERS as u32 - 1)));
    assert!(error.to_string().contains("tensor `blk.2."), "{error}");
    let heads_of_layers = Value::Array(vec![Value::U32(2); tiny::N_LAYERS]);
    let error = load_changed("llama.attention.head_count_kv", Some(heads_of_layers));
    assert!(error.to_string().contains("is not one whole number"), "{error}");
}

#[test]
fn a_template_that_rewrites_earlier_turns_is_reported() {
    let template = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model.gguf");
    let changed = [("tokenizer.chat_template", Some(Value::String(template.into())))];
    std::fs::write(&path, tiny::gguf(&changed)).expect("the folder can be written");
    let model: std::sync::Arc<Model> =
        Model::load(&path, &ModelOptions::default()).expect("the template parses");
    let system = Message { role: Role::System, content: "be kind".to_owned() };
    let refused = model.template().frame(&[system], Role::User);
    assert!(matches!(refused, Err(EngineError::TemplateRewrites { role: "user" })));
}
