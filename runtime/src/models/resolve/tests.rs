use std::fs;

use super::*;
use crate::models::manifest::DEFAULT_MODEL_ID;

#[test]
fn an_id_is_a_known_model() {
    for model in MODELS {
        let choice = ModelChoice::parse(model.id).unwrap();
        assert!(matches!(choice, ModelChoice::Known(known) if known.id == model.id));
    }
    let ModelChoice::Known(model) = ModelChoice::default() else { panic!("not a known model") };
    assert_eq!(model.id, DEFAULT_MODEL_ID);
}

#[test]
fn a_file_is_accepted_by_its_first_bytes_not_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let good = write("blob without extension", b"GGUF\x03\0\0\0");
    let choice = ModelChoice::parse(good.to_str().unwrap()).unwrap();
    let ModelChoice::File(path) = &choice else { panic!("{choice:?}") };
    assert_eq!(path, &good);
    let store = ModelStore::open(dir.path());
    assert_eq!(choice.obtain(&store, &mut |_| {}).unwrap(), good);

    for (name, bytes, found) in [
        ("page.gguf", b"<!DOCTYPE html>".as_slice(), "it begins with `<!DO`"),
        ("empty.gguf", b"", "it begins with ``"),
        ("short.gguf", b"GG\0", "it begins with `GG\\x00`"),
    ] {
        let path = write(name, bytes);
        let error = ModelChoice::parse(path.to_str().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}` is not a GGUF file: {found}", path.display()));
        assert!(error.hint().is_some() && error.is_user_error());
    }
    let error = ModelChoice::parse(dir.path().to_str().unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("it is a folder"), "{error}");
}

#[test]
fn a_missing_file_has_a_hint() {
    let error = ModelChoice::parse("/no/such/place/some.gguf").unwrap_err();
    assert_eq!(error.to_string(), "no model file at `/no/such/place/some.gguf`");
    assert!(error.hint().unwrap().contains("skillgraft model list"));
    let error = ModelChoice::parse("models/smollm2-135m-instruct.q4_1.GGUF").unwrap_err();
    assert!(error.hint().unwrap().contains(&format!("--model {DEFAULT_MODEL_ID}")));
}

#[test]
fn a_near_miss_gets_a_suggestion_and_nonsense_gets_the_list() {
    for (text, expected) in [
        ("smollm2-135m-instruct-q4-1", Some(DEFAULT_MODEL_ID)),
        ("SmolLM2-135M-Instruct-Q4_1", Some(DEFAULT_MODEL_ID)),
        ("smollm2", Some(DEFAULT_MODEL_ID)),
        ("qwen2.5-coder", Some("qwen2.5-coder-0.5b-instruct-q4_k_m")),
        ("llama-3-8b", None),
        ("s", None),
        ("", None),
    ] {
        match ModelChoice::parse(text).unwrap_err() {
            ModelError::UnknownModel { id, nearest, known } => {
                assert_eq!((id.as_str(), nearest.as_deref()), (text, expected));
                assert_eq!(known.len(), MODELS.len());
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// The recursive definition, exponential and plain.
fn edit_distance_by_definition(a: &[char], b: &[char]) -> usize {
    match (a, b) {
        ([], rest) | (rest, []) => rest.len(),
        ([x, a_rest @ ..], [y, b_rest @ ..]) => {
            let substituted = edit_distance_by_definition(a_rest, b_rest) + usize::from(x != y);
            let deleted = edit_distance_by_definition(a_rest, b) + 1;
            let inserted = edit_distance_by_definition(a, b_rest) + 1;
            substituted.min(deleted).min(inserted)
        }
    }
}

#[test]
fn edit_distance_agrees_with_its_definition() {
    let words: Vec<String> = (0..3_u32.pow(4))
        .map(|n| {
            let letters = (0..4).map(|i| ["", "a", "é"][(n / 3_u32.pow(i) % 3) as usize]);
            letters.collect()
        })
        .collect();
    for a in &words {
        for b in &words {
            let (x, y): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            assert_eq!(edit_distance(a, b), edit_distance_by_definition(&x, &y), "{a:?} {b:?}");
        }
    }
}
