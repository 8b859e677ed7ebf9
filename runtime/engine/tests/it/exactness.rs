//! Logits do not depend on how a context came about: not on the chunks it was
//! prefilled in, not on threads, and not on whether a part of it was grafted,
//! as long as that part was compiled behind the very tokens it is used after.

use std::sync::Arc;

use skillgraft_engine::{BlockSource, Model, Session, compile, take_block, uninterrupted};
use skillgraft_kv::{AnchorKind, KvDtype, PositionDelta, SegmentOrigin, TokenId, VerifiedBlock};

use crate::tiny;

pub(crate) fn prefilled(model: &Arc<Model>, pieces: &[&[TokenId]]) -> (Session, Vec<f32>) {
    let mut session = Session::new(Arc::clone(model));
    let mut logits = Vec::new();
    for piece in pieces {
        let last = session.prefill(piece, "live", &uninterrupted).expect("it fits");
        logits = last.expect("pieces have tokens");
    }
    (session, logits)
}

pub(crate) fn block(model: &Arc<Model>, anchor: &[TokenId], tokens: &[TokenId]) -> VerifiedBlock {
    let source = BlockSource {
        label: "block",
        anchor: AnchorKind::Prefix,
        anchor_tokens: anchor,
        tokens,
        salt: [5; 16],
    };
    VerifiedBlock::from_compiled(compile(model, &source, &uninterrupted).expect("it compiles"))
}

pub(crate) fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn a_block_behind_its_own_prefix_gives_the_logits_of_a_prefill_to_the_bit() {
    for dtype in [KvDtype::F32, KvDtype::F16] {
        let model = tiny::model(dtype, 1);
        // Longer than a page, so that both are cut into chunks.
        let (prefix, body, question) =
            (tiny::tokens(1, 301), tiny::tokens(2, 263), tiny::tokens(3, 17));
        let (_, expected) = prefilled(&model, &[&prefix, &body, &question]);

        let (mut session, _) = prefilled(&model, &[&prefix]);
        session.graft(block(&model, &prefix, &body), "skill").expect("it fits");
        let logits = session.prefill(&question, "live", &uninterrupted).expect("it fits");

        assert_eq!(bits(&logits.expect("it has tokens")), bits(&expected), "{dtype}");
        let origin = session.ledger().segments()[1].origin;
        let SegmentOrigin::Grafted { delta, .. } = origin else { panic!("{origin:?}") };
        assert_eq!(delta, PositionDelta(0));
    }
}

#[test]
fn a_block_of_a_context_is_the_block_that_is_compiled() {
    let model = tiny::model(KvDtype::F16, 1);
    let (prefix, body) = (tiny::tokens(4, 31), tiny::tokens(5, 290));
    let (session, _) = prefilled(&model, &[&prefix, &body]);
    let source = BlockSource {
        label: "block",
        anchor: AnchorKind::Prefix,
        anchor_tokens: &prefix,
        tokens: &body,
        salt: [0; 16],
    };
    let span = session.ledger().segments()[0].span;
    let span = skillgraft_kv::TokenSpan {
        start: span.start + prefix.len() as u32,
        len: body.len() as u32,
    };
    let taken = take_block(&session, &source, span, 0.0);
    let mut compiled = compile(&model, &source, &uninterrupted).expect("it compiles");
    compiled.header.compile_ms = 0.0;
    assert_eq!(taken, compiled);
}

#[test]
fn chunks_and_threads_do_not_change_a_bit() {
    let tokens = tiny::tokens(6, 523);
    let one = tiny::model(KvDtype::F16, 1);
    let (_, expected) = prefilled(&one, &[&tokens]);
    for cut in [1, 2, 255, 256, 257, 522] {
        let (_, logits) = prefilled(&one, &[&tokens[..cut], &tokens[cut..]]);
        assert_eq!(bits(&logits), bits(&expected), "cut at {cut}");
    }
    let three = tiny::model(KvDtype::F16, 3);
    let (_, logits) = prefilled(&three, &[&tokens]);
    assert_eq!(bits(&logits), bits(&expected), "three threads");
}

#[test]
fn decoding_gives_the_logits_of_a_prefill_to_the_bit() {
    let model = tiny::model(KvDtype::F16, 2);
    let tokens = tiny::tokens(7, 40);
    let (_, expected) = prefilled(&model, &[&tokens]);
    let one_by_one: Vec<&[TokenId]> = tokens.chunks(1).collect();
    let (mut session, logits) = prefilled(&model, &one_by_one);
    assert_eq!(bits(&logits), bits(&expected));

    let mut fresh = Session::new(Arc::clone(&model));
    let all = fresh.score(&tokens, "live").expect("it fits");
    let vocab_size = model.spec().vocab_size;
    assert_eq!(all.len(), tokens.len() * vocab_size);
    assert_eq!(bits(&all[all.len() - vocab_size..]), bits(&expected));
    session.roll_back(skillgraft_kv::Position(13)).expect("it is shorter");
    let again = session.score(&tokens[13..], "live").expect("it fits");
    assert_eq!(bits(&again), bits(&all[13 * vocab_size..]));
}

#[test]
fn a_moved_block_sees_the_same_distances() {
    // With nothing but the block to look at, logits depend on distances only:
    // the question behind a block at 0 and behind the same block moved by 97,
    // with the tokens before it hidden, cannot be told apart. Hiding is done by
    // grafting a block compiled at 0 as the first segment of two contexts, one
    // of which calls its position 97 by way of a longer anchor.
    let model = tiny::model(KvDtype::F32, 1);
    let (body, question) = (tiny::tokens(8, 45), tiny::tokens(9, 5));
    let (_, expected) = prefilled(&model, &[&body, &question]);

    let anchor = tiny::tokens(10, 97);
    let mut behind_anchor = block(&model, &anchor, &body);
    let mut session = Session::new(Arc::clone(&model));
    session.graft(behind_anchor.clone(), "skill").expect("it fits");
    let moved = session.prefill(&question, "live", &uninterrupted).expect("it fits");
    let moved = moved.expect("it has tokens");
    // The body has read its anchor, so its KV differs and so do the logits ...
    assert!(distance(&moved, &expected) > 1e-2);

    // ... but a block without an anchor, moved behind nothing it can see, does not.
    behind_anchor = block(&model, &[], &body);
    let mut session = Session::new(Arc::clone(&model));
    session.graft(behind_anchor, "skill").expect("it fits");
    let same = session.prefill(&question, "live", &uninterrupted).expect("it fits");
    assert_eq!(bits(&same.expect("it has tokens")), bits(&expected));
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
