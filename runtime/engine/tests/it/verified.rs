//! Verified decoding gives what decoding behind a full prefill gives, however far
//! the draft came before the exact context was ready.

use std::ops::ControlFlow;
use std::sync::Arc;

use skillgraft_engine::{
    AnswerEvent, DecodeOptions, Decoded, Model, SamplingOptions, Session, StopReason, Verified,
    decode, decode_verified, uninterrupted,
};
use skillgraft_kv::{KvDtype, SegmentOrigin, TokenId};

use crate::context::in_step;
use crate::exactness::{block, prefilled};
use crate::tiny;

/// What a reader sees in the end.
fn shown(events: &mut String, event: AnswerEvent<'_>) -> ControlFlow<()> {
    match event {
        AnswerEvent::Text(text) => events.push_str(text),
        AnswerEvent::Corrected { keep_bytes } => events.truncate(keep_bytes),
    }
    ControlFlow::Continue(())
}

fn grafted(model: &Arc<Model>, pieces: [&[TokenId]; 3]) -> (Session, Vec<f32>) {
    let [prefix, body, message] = pieces;
    let (mut session, _) = prefilled(model, &[prefix]);
    session.graft(block(model, &tiny::tokens(99, 23), body), "skill").expect("it fits");
    let logits = session.prefill(message, "message", &uninterrupted).expect("it fits");
    (session, logits.expect("it has tokens"))
}

fn verified(
    session: &mut Session,
    logits: &[f32],
    options: &DecodeOptions,
) -> (Decoded, Verified, String) {
    let mut text = String::new();
    let (decoded, verified) =
        decode_verified(session, logits, options, &mut |event| shown(&mut text, event))
            .expect("it decodes");
    (decoded, verified, text)
}

#[test]
fn the_answer_is_the_one_behind_a_full_prefill() {
    let model = tiny::model(KvDtype::F16, 2);
    let mut n_corrected = 0;
    for seed in 0..30 {
        let (prefix, body, message) =
            (tiny::tokens(seed, 31), tiny::tokens(seed + 100, 150), tiny::tokens(seed + 200, 9));
        let temperature = if seed % 2 == 0 { 0.0 } else { 1.5 };
        let sampling = SamplingOptions {
            temperature,
            repetition_penalty: 1.3,
            seed,
            ..SamplingOptions::default()
        };
        for max_tokens in [1, 2, 13, 40] {
            let options = DecodeOptions { max_tokens, sampling };
            let (mut exact, logits) = prefilled(&model, &[&prefix, &body, &message]);
            let expected =
                decode(&mut exact, logits, &options, &mut |_| ControlFlow::Continue(())).unwrap();

            let (mut session, logits) = grafted(&model, [&prefix, &body, &message]);
            let (decoded, found, text) = verified(&mut session, &logits, &options);
            assert_eq!(
                (&decoded.tokens, decoded.stop),
                (&expected.tokens, expected.stop),
                "{seed}"
            );
            assert_eq!((&decoded.text, decoded.pending), (&expected.text, expected.pending));
            assert_eq!(text, expected.text);
            assert_eq!(found.prefilled_tokens, 150 + 9);
            assert_eq!(session.tokens(), exact.tokens());
            assert_eq!(session.exact_end(), session.end());
            in_step(&session);
            n_corrected += usize::from(found.first_difference.is_some());
        }
    }
    assert!(n_corrected > 30, "the graft differs too little for this to be a test: {n_corrected}");
}

#[test]
fn labels_stay_and_nothing_is_grafted_any_more() {
    let model = tiny::model(KvDtype::F16, 1);
    let pieces = [&tiny::tokens(1, 31)[..], &tiny::tokens(2, 50), &tiny::tokens(3, 9)];
    let (mut session, logits) = grafted(&model, pieces);
    let options = DecodeOptions { max_tokens: 5, sampling: SamplingOptions::default() };
    verified(&mut session, &logits, &options);
    let segments: Vec<(&str, SegmentOrigin)> =
        session.ledger().segments().iter().map(|s| (s.label.as_str(), s.origin)).collect();
    let live = |label| (label, SegmentOrigin::Live);
    assert_eq!(segments, ["live", "skill", "message", "answer"].map(live));
}

#[test]
fn an_exact_context_is_only_decoded() {
    let model = tiny::model(KvDtype::F16, 1);
    let options = DecodeOptions { max_tokens: 7, sampling: SamplingOptions::default() };
    let (mut session, logits) = prefilled(&model, &[&tiny::tokens(1, 31)]);
    let (_, found, _) = verified(&mut session, &logits, &options);
    assert_eq!(found, Verified::default());
}

#[test]
fn an_answer_that_is_stopped_is_not_checked() {
    let model = tiny::model(KvDtype::F16, 1);
    let pieces = [&tiny::tokens(1, 31)[..], &tiny::tokens(2, 150), &tiny::tokens(3, 9)];
    let (mut session, mut logits) = grafted(&model, pieces);
    logits[2] = f32::NEG_INFINITY;
    let options = DecodeOptions { max_tokens: 7, sampling: SamplingOptions::default() };
    let (decoded, found) =
        decode_verified(&mut session, &logits, &options, &mut |_| ControlFlow::Break(()))
            .expect("it decodes");
    assert_eq!(decoded.stop, StopReason::Interrupted);
    // The first token is handed out before anything runs beside it.
    assert_eq!((decoded.tokens.len(), found.is_unchecked), (1, true));
    in_step(&session);
}

#[test]
fn a_full_context_ends_both_alike() {
    let model = tiny::model(KvDtype::F16, 2);
    let n_body = tiny::CONTEXT as usize - 31 - 9 - 6;
    let pieces = [&tiny::tokens(1, 31)[..], &tiny::tokens(2, n_body), &tiny::tokens(3, 9)];
    let options = DecodeOptions { max_tokens: 100, sampling: SamplingOptions::default() };
    let (mut exact, logits) = prefilled(&model, &pieces);
    let expected =
        decode(&mut exact, logits, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    let (mut session, logits) = grafted(&model, pieces);
    let (decoded, _, _) = verified(&mut session, &logits, &options);
    assert_eq!((decoded.tokens, decoded.stop), (expected.tokens, expected.stop));
    in_step(&session);
}
