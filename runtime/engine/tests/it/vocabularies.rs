//! Token ids against other implementations: the sentencepiece library, and
//! transformers' tokenizer of Qwen2. `golden/make_families.py` made them.

use skillgraft_engine::{Model, ModelOptions};
use skillgraft_kv::TokenId;

use crate::families::{changed, golden, golden_json};
use crate::real_models::{GEMMA, QWEN, real};

fn check(model: &Model, ids: &str) {
    for case in golden_json(ids).as_array().expect("a list") {
        let text = case["text"].as_str().expect("a text");
        let wanted: Vec<u32> = serde_json::from_value(case["ids"].clone()).expect("ids");
        let wanted: Vec<TokenId> = wanted.into_iter().map(TokenId).collect();
        let tokenizer = model.tokenizer();
        let got = tokenizer.encode_content(text).expect("it encodes");
        assert_eq!(got, wanted, "{text:?}");
        assert!(got.iter().all(|&token| !tokenizer.is_control(token)), "{text:?}");
        assert_eq!(tokenizer.decode(&got).expect("it decodes"), text);

        let mut stream = tokenizer.stream();
        let pieces: Vec<String> =
            got.iter().map(|&token| stream.push(token).expect("it decodes")).collect();
        assert_eq!(pieces.concat() + &stream.finish().expect("it decodes"), text);
    }
}

#[test]
fn scored_vocabularies_give_the_ids_of_sentencepiece() {
    let model: std::sync::Arc<Model> =
        Model::load(&golden("gemma3.gguf"), &ModelOptions::default()).expect("it loads");
    check(&model, "sentence_piece.json");
    let tokenizer = model.tokenizer();
    assert_eq!(tokenizer.required_bos(), Some(TokenId(2)));
    let markup = tokenizer.encode_markup("<bos>the").expect("it encodes");
    let content = tokenizer.encode_content("the").expect("it encodes");
    assert_eq!(markup, [&[TokenId(2)][..], &content].concat());
}

#[test]
fn a_space_comes_before_a_text_behind_a_control_token() {
    let model = changed("gemma3", "tokenizer.ggml.add_space_prefix", &[1]);
    let tokenizer = model.tokenizer();
    for case in golden_json("sentence_piece_spaced.json").as_array().expect("a list") {
        let text = case["text"].as_str().expect("a text");
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).expect("ids");
        let ids: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
        if text.contains("<bos>") {
            // In markup these are no text.
            continue;
        }
        let plain = tokenizer.encode_content(text).expect("it encodes");
        let markup = tokenizer.encode_markup(&format!("{text}<bos>{text}<eos>"));
        let wanted = [&plain, &[TokenId(2)][..], &ids, &[TokenId(1)]].concat();
        assert_eq!(markup.expect("it encodes"), wanted, "{text:?}");
    }
}

#[test]
fn gemma_gives_the_ids_of_sentencepiece() {
    if let Some(model) = real(GEMMA, &ModelOptions::default()) {
        check(&model, "gemma3_270m_ids.json");
    }
}

#[test]
fn qwen_gives_the_ids_of_transformers() {
    if let Some(model) = real(QWEN, &ModelOptions::default()) {
        check(&model, "qwen2_ids.json");
    }
}
