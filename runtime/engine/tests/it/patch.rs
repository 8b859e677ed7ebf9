//! Where two versions of a text differ, and what a context is after a patch.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use skillgraft_engine::{BlockSource, Hunk, Model, compile, compile_edited, hunks, uninterrupted};
use skillgraft_kv::{AnchorKind, KvDtype, KvView, Position, TokenId, VerifiedBlock};

use crate::context::in_step;
use crate::exactness::prefilled;
use crate::tiny;

/// A model whose tokens are bytes.
static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| tiny::model(KvDtype::F16, 1));

/// Applies hunks as a patch does.
fn apply(old: &[TokenId], hunks: &[Hunk], new: &[TokenId]) -> Vec<TokenId> {
    let mut text = old.to_vec();
    for hunk in hunks {
        let at = hunk.new.start;
        text.splice(at..at + hunk.old.len(), new[hunk.new.clone()].iter().copied());
    }
    text
}

fn tokens(text: &str) -> Vec<TokenId> {
    MODEL.tokenizer().encode_content(text).expect("it encodes")
}

/// The texts of the hunks, old and new.
fn differences<'a>(old: &'a str, new: &'a str) -> Vec<(&'a str, &'a str)> {
    let hunks = hunks(MODEL.tokenizer(), &tokens(old), &tokens(new)).expect("they are compared");
    hunks.into_iter().map(|hunk| (&old[hunk.old], &new[hunk.new])).collect()
}

#[test]
fn a_hunk_ends_with_its_line() {
    let (old, new) = ("a\nwait 90 s now\nb\n", "a\nwait 75 s now\nb\n");
    assert_eq!(differences(old, new), [("90 s now\n", "75 s now\n")]);
    assert_eq!(differences("last 90", "last 75"), [("90", "75")]);
    assert!(differences("same\n", "same\n").is_empty());
}

#[test]
fn whole_lines_have_no_rest() {
    assert_eq!(differences("a\nc\n", "a\nbb\nc\n"), [("", "bb\n")]);
    assert_eq!(differences("a\nbb\nc\n", "a\nc\n"), [("bb\n", "")]);
    assert_eq!(differences("a\n", "a\nbb"), [("", "bb")]);
}

#[test]
fn differences_in_one_line_are_one_hunk() {
    let (old, new) = ("x 11 y 22 z\nq 33 r\n", "x 44 y 55 z\nq 66 r\n");
    assert_eq!(differences(old, new), [("11 y 22 z\n", "44 y 55 z\n"), ("33 r\n", "66 r\n")]);
}

#[test]
fn a_patched_context_has_the_new_text_and_keeps_the_rest() {
    let (old, new) =
        (tokens("# Tea\nwait 90 s now\nwarm it\n"), tokens("# Tea\nwait 120 s now\nit\n"));
    let (before, after) = (tiny::tokens(1, 20), tiny::tokens(2, 11));
    let (mut session, _) = prefilled(&MODEL, &[&before, &old, &after]);
    let hunks = hunks(MODEL.tokenizer(), &old, &new).expect("they are compared");
    session.patch(Position(20), &hunks, &new, &uninterrupted).expect("it fits");
    in_step(&session);
    assert_eq!(session.tokens(), [&before[..], &new, &after].concat());
    // All of the text is computed anew or comes before the first difference.
    assert_eq!(session.exact_end(), Position(20 + new.len() as u32));
}

#[test]
fn an_edited_block_is_that_of_a_patched_context() {
    let (old, new) =
        (tokens("# Tea\nwait 90 s\nwarm it\n"), tokens("# Tea\nwait 120 s\nwarm it\n"));
    let anchor = tiny::tokens(1, 20);
    let source = |tokens| BlockSource {
        label: "tea",
        anchor: AnchorKind::Neutral,
        anchor_tokens: &anchor,
        tokens,
        salt: [0; 16],
    };
    let base = prefilled(&MODEL, &[&tiny::tokens(7, 3)]).0;
    let earlier = compile(&MODEL, &source(&old), &uninterrupted).expect("it compiles");
    let earlier = VerifiedBlock::from_compiled(earlier);
    let edited = compile_edited(&base, &source(&new), &earlier, &uninterrupted)
        .expect("it compiles")
        .expect("the earlier one was compiled behind the same anchor");
    let full = compile(&MODEL, &source(&new), &uninterrupted).expect("it compiles");
    assert_eq!((edited.header.key, &edited.header.tokens), (full.header.key, &full.header.tokens));
    assert_eq!(edited.header.compiled_at, full.header.compiled_at);

    // Up to the end of the changed line it is the block that is compiled afresh ...
    let n_same = "# Tea\nwait 120 s\n".len() * tiny::HEAD_DIM;
    let [k_edited, k_full] = [&edited.k[2], &full.k[2]].map(|k| {
        let KvView::F16(bits) = k.view() else { panic!("the model's KV is f16") };
        bits
    });
    assert_eq!(k_edited[..n_same], k_full[..n_same]);
    assert_ne!(k_edited[n_same..], k_full[n_same..]);

    // ... and what follows is used as the moved lines of a patched context are, but for
    // the rounding of keys that were rotated on.
    let (mut patched, _) = prefilled(&MODEL, &[&anchor, &old]);
    let hunks = hunks(MODEL.tokenizer(), &old, &new).expect("they are compared");
    patched.patch(Position(20), &hunks, &new, &uninterrupted).expect("it fits");
    let (mut grafted, _) = prefilled(&MODEL, &[&anchor]);
    grafted.graft(VerifiedBlock::from_compiled(edited), "tea").expect("it fits");
    let question = tiny::tokens(3, 5);
    let ask = |session: &mut skillgraft_engine::Session| {
        let logits = session.prefill(&question, "live", &uninterrupted).expect("it fits");
        logits.expect("it has tokens")
    };
    let (a, b) = (ask(&mut patched), ask(&mut grafted));
    // Logits are of the order of 10, and keys are rounded to 11 bits once more.
    let distance = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance < 0.2, "{distance}");

    // A block from elsewhere is of no use.
    let other = BlockSource { anchor_tokens: &anchor[..9], ..source(&new) };
    assert!(
        compile_edited(&base, &other, &earlier, &uninterrupted).expect("it compiles").is_none()
    );
}

proptest! {
    #[test]
    fn hunks_make_the_old_the_new(old in "[ab\n ]{0,40}", new in "[ab\n ]{0,40}") {
            let (old, new) = (tokens(&old), tokens(&new));
        let hunks = hunks(MODEL.tokenizer(), &old, &new).unwrap();
        prop_assert_eq!(apply(&old, &hunks, &new), new);
        for pair in hunks.windows(2) {
            prop_assert!(pair[0].old.end <= pair[1].old.start);
        }
    }
}
