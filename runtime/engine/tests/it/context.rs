//! Branches, roll-backs, limits: ledger, cache and token ids stay in step.

use std::ops::ControlFlow;
use std::sync::Arc;

use skillgraft_engine::{
    BlockSource, DecodeOptions, EngineError, SamplingOptions, Session, StopReason, compile, decode,
    uninterrupted,
};
use skillgraft_kv::{AnchorKind, KvDtype, LedgerError, Position, TokenId, VerifiedBlock};

use crate::tiny;

pub(crate) fn in_step(session: &Session) {
    assert_eq!(session.end().index(), session.tokens().len());
    assert_eq!(session.end(), session.cache().end());
}

#[test]
fn a_branch_leaves_the_original_as_it_was() {
    let model = tiny::model(KvDtype::F16, 1);
    let (prefix, one, other) = (tiny::tokens(1, 19), tiny::tokens(2, 7), tiny::tokens(3, 11));
    let mut session = Session::new(Arc::clone(&model));
    session.prefill(&prefix, "prefix", &uninterrupted).expect("it fits");

    let mut branch = session.branch();
    branch.prefill(&one, "scratch", &uninterrupted).expect("it fits");
    let on_original = session.prefill(&other, "message", &uninterrupted).expect("it fits");

    let mut fresh = Session::new(model);
    fresh.prefill(&prefix, "prefix", &uninterrupted).expect("it fits");
    let expected = fresh.prefill(&other, "message", &uninterrupted).expect("it fits");
    assert_eq!(on_original, expected);
    in_step(&session);
    in_step(&branch);
    assert_eq!(branch.tokens()[prefix.len()..], one[..]);
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let model = tiny::model(KvDtype::F16, 1);
    let mut session = Session::new(model);
    session.prefill(&tiny::tokens(1, 500), "prefix", &uninterrupted).expect("it fits");
    let refused = session.prefill(&tiny::tokens(2, 601), "message", &uninterrupted);
    let Err(EngineError::Context(LedgerError::ContextFull { at, n_tokens, limit })) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!((at, n_tokens, limit), (Position(500), 601, tiny::CONTEXT));
    in_step(&session);
    assert_eq!(session.end(), Position(500));
}

#[test]
fn an_interrupt_leaves_whole_chunks() {
    let model = tiny::model(KvDtype::F16, 1);
    let mut session = Session::new(model);
    let n_asked = std::sync::atomic::AtomicUsize::new(0);
    let third = || match n_asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        2 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let stopped = session.prefill(&tiny::tokens(1, 900), "prefix", &third);
    assert!(matches!(stopped, Err(EngineError::Interrupted)));
    assert_eq!(session.end(), Position(512));
    in_step(&session);
}

#[test]
fn a_block_of_another_shape_is_refused() {
    let half = tiny::model(KvDtype::F16, 1);
    let full = tiny::model(KvDtype::F32, 1);
    let tokens = tiny::tokens(1, 9);
    let source = BlockSource {
        label: "deploy",
        anchor: AnchorKind::Neutral,
        anchor_tokens: &[],
        tokens: &tokens,
        salt: [0; 16],
    };
    assert_ne!(source.key(&half), source.key(&full));
    let block = compile(&half, &source, &uninterrupted).expect("it compiles");
    let mut session = Session::new(full);
    let refused = session.graft(VerifiedBlock::from_compiled(block), "skill");
    assert!(matches!(refused, Err(EngineError::ForeignBlock { label, .. }) if label == "deploy"));
    in_step(&session);
    assert_eq!(session.end(), Position(0));
}

#[test]
fn keys_tell_anchors_texts_and_salts_apart() {
    let model = tiny::model(KvDtype::F16, 1);
    let (a, b) = (tiny::tokens(1, 9), tiny::tokens(2, 9));
    let source = BlockSource {
        label: "label",
        anchor: AnchorKind::Neutral,
        anchor_tokens: &a,
        tokens: &b,
        salt: [0; 16],
    };
    let key = source.key(&model);
    let others = [
        BlockSource { anchor: AnchorKind::Prefix, ..source },
        BlockSource { anchor_tokens: &b, ..source },
        BlockSource { tokens: &a, ..source },
        BlockSource { salt: [1; 16], ..source },
        // The boundary between anchor and text is part of the identity.
        BlockSource { anchor_tokens: &a[..8], ..source },
    ];
    for other in others {
        assert_ne!(other.key(&model), key, "{other:?}");
    }
    assert_eq!(BlockSource { label: "another", ..source }.key(&model), key);
}

#[test]
fn decoding_ends_at_the_context_limit_and_at_the_token_limit() {
    let model = tiny::model(KvDtype::F16, 1);
    for (n_tokens, max_tokens, stop, n_generated) in [
        (tiny::CONTEXT as usize - 4, 100, StopReason::ContextFull, 5),
        (7, 6, StopReason::MaxTokens, 6),
    ] {
        let mut session = Session::new(Arc::clone(&model));
        let prompt = tiny::tokens(4, n_tokens);
        let logits = session.prefill(&prompt, "message", &uninterrupted).expect("it fits");
        let mut logits = logits.expect("it has tokens");
        // The tiny model may well want to stop: forbid it on the first token and
        // see that no later one does either.
        logits[2] = f32::NEG_INFINITY;
        let options = DecodeOptions { max_tokens, sampling: SamplingOptions::default() };
        let decoded = decode(&mut session, logits, &options, &mut |_| ControlFlow::Continue(()))
            .expect("it decodes");
        assert_eq!(decoded.stop, stop);
        assert_eq!(decoded.tokens.len(), n_generated);
        assert_eq!(decoded.pending, decoded.tokens.last().copied());
        in_step(&session);
        // The last token has no KV: nobody needed what comes after it.
        assert_eq!(session.end().index(), n_tokens + n_generated - 1);
    }
}

#[test]
fn streamed_text_is_the_text() {
    let model = tiny::model(KvDtype::F16, 1);
    let text = "na\u{ef}ve \u{1F980} caf\u{e9} <|im_end|>";
    let tokens = model.tokenizer().encode_content(text).expect("it encodes");
    assert!(tokens.iter().all(|&token| !model.tokenizer().is_control(token)));
    let mut stream = model.tokenizer().stream();
    let mut pieces = Vec::new();
    for &token in &tokens {
        pieces.push(stream.push(token).expect("it decodes"));
    }
    assert!(pieces.iter().all(|piece| !piece.contains('\u{FFFD}')));
    assert_eq!(pieces.concat() + &stream.finish().expect("it decodes"), text);

    let mut cut = model.tokenizer().stream();
    assert_eq!(cut.push(tokens[2]).expect("it decodes"), "", "half a character is kept back");
    assert_eq!(cut.finish().expect("it decodes"), "\u{FFFD}");

    let markup = model.tokenizer().encode_markup("<|im_end|>").expect("it encodes");
    assert_eq!(markup, [TokenId(2)]);
}
