//! Tokens computed anew where they are, and tokens put in the place of others.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use skillgraft_engine::{Model, Session, uninterrupted};
use skillgraft_kv::{KvDtype, Position, SegmentOrigin, TokenId, TokenSpan};

use crate::context::in_step;
use crate::exactness::{bits, block, prefilled};
use crate::tiny;

fn span(start: usize, len: usize) -> TokenSpan {
    TokenSpan { start: Position(start as u32), len: len as u32 }
}

/// A prefix, a block that was compiled elsewhere, and a message.
fn grafted(model: &Arc<Model>, pieces: [&[TokenId]; 3]) -> Session {
    let [prefix, body, message] = pieces;
    let (mut session, _) = prefilled(model, &[prefix]);
    session.graft(block(model, &tiny::tokens(99, 23), body), "skill").expect("it fits");
    session.prefill(message, "message", &uninterrupted).expect("it fits");
    session
}

fn next_logits(mut session: Session) -> Vec<u32> {
    let logits = session.prefill(&tiny::tokens(98, 3), "live", &uninterrupted).expect("it fits");
    bits(&logits.expect("it has tokens"))
}

#[test]
fn everything_behind_a_graft_computed_anew_is_a_prefill_to_the_bit() {
    for dtype in [KvDtype::F16, KvDtype::F32] {
        let model = tiny::model(dtype, 2);
        let (prefix, body, message) =
            (tiny::tokens(1, 31), tiny::tokens(2, 350), tiny::tokens(3, 17));
        let expected = next_logits(prefilled(&model, &[&prefix, &body, &message]).0);

        let mut session = grafted(&model, [&prefix, &body, &message]);
        assert_ne!(next_logits(session.branch()), expected);
        // In spans that fall into one pass, and one that is cut between passes.
        let cuts = [31, 40, 41, 77, 381, 398];
        let spans: Vec<TokenSpan> =
            cuts.windows(2).map(|cut| span(cut[0], cut[1] - cut[0])).collect();
        session.recompute(&spans, &uninterrupted).expect("they are there");
        in_step(&session);
        assert_eq!(session.exact_end(), session.end());
        assert_eq!(next_logits(session), expected, "{dtype}");
    }
}

#[test]
fn what_has_read_a_graft_stays_an_approximation_when_the_graft_is_computed_anew() {
    let model = tiny::model(KvDtype::F16, 1);
    let pieces = [&tiny::tokens(1, 31)[..], &tiny::tokens(2, 50), &tiny::tokens(3, 17)];
    let mut session = grafted(&model, pieces);
    session.recompute(&[span(31, 50)], &uninterrupted).expect("it is there");
    assert_eq!(session.exact_end(), Position(81));
    session.recompute(&[span(81, 17)], &uninterrupted).expect("it is there");
    assert_eq!(session.exact_end(), session.end());
    // Computing what is exact anew changes nothing, and nothing behind it.
    session.recompute(&[span(10, 5)], &uninterrupted).expect("it is there");
    assert_eq!(session.exact_end(), session.end());
}

#[test]
fn spans_in_one_pass_see_one_another() {
    let model = tiny::model(KvDtype::F16, 1);
    let pieces = [&tiny::tokens(1, 31)[..], &tiny::tokens(2, 120), &tiny::tokens(3, 17)];
    let mut together = grafted(&model, pieces);
    let mut one_by_one = together.branch();
    let untouched = next_logits(together.branch());
    let spans = [span(35, 9), span(70, 1), span(101, 30), span(140, 13)];
    together.recompute(&spans, &uninterrupted).expect("they are there");
    for span in spans {
        one_by_one.recompute(&[span], &uninterrupted).expect("it is there");
    }
    let logits = next_logits(together);
    assert_ne!(logits, untouched);
    assert_eq!(logits, next_logits(one_by_one));
}

#[test]
fn other_tokens_in_the_middle_and_all_behind_them_anew_is_a_prefill_to_the_bit() {
    let model = tiny::model(KvDtype::F16, 1);
    let (prefix, body, message) = (tiny::tokens(1, 31), tiny::tokens(2, 150), tiny::tokens(3, 17));
    for n_tokens in [0, 5, 12, 300] {
        let new = tiny::tokens(4, n_tokens);
        let mut session = grafted(&model, [&prefix, &body, &message]);
        session.replace(span(50, 12), &new).expect("it fits");
        in_step(&session);
        let all = [&prefix[..], &body[..19], &new, &body[31..], &message].concat();
        assert_eq!(session.tokens(), all);
        assert_eq!(session.exact_end(), Position(31));
        session.recompute(&[span(31, all.len() - 31)], &uninterrupted).expect("it is there");
        assert_eq!(next_logits(session), next_logits(prefilled(&model, &[&all]).0), "{n_tokens}");
    }
}

#[test]
fn an_edit_of_what_was_prefilled_leaves_what_is_before_it_exact() {
    let model = tiny::model(KvDtype::F16, 1);
    let all = tiny::tokens(1, 300);
    let (mut session, _) = prefilled(&model, &[&all]);
    let branch = session.branch();
    session.replace(span(100, 7), &tiny::tokens(2, 9)).expect("it fits");
    let origins: Vec<_> = session.ledger().segments().iter().map(|s| s.origin).collect();
    let delta = skillgraft_kv::PositionDelta(2);
    let stale = SegmentOrigin::Stale { delta };
    assert_eq!(origins, [SegmentOrigin::Live, SegmentOrigin::Recomputed, stale]);
    assert_eq!(session.exact_end(), Position(109));
    // A branch shares the pages, and is as it was.
    assert_eq!(next_logits(branch), next_logits(prefilled(&model, &[&all]).0));
    // What comes next is not written into a page that was moved.
    session.prefill(&tiny::tokens(3, 5), "live", &uninterrupted).expect("it fits");
    in_step(&session);
    assert_eq!(session.ledger().segments().last().map(|s| s.origin), Some(SegmentOrigin::Live));
}

#[test]
fn what_is_not_there_is_refused_and_changes_nothing() {
    let model = tiny::model(KvDtype::F16, 1);
    let (mut session, _) = prefilled(&model, &[&tiny::tokens(1, 40)]);
    let before = next_logits(session.branch());
    assert!(session.recompute(&[span(3, 4), span(39, 2)], &uninterrupted).is_err());
    assert!(session.recompute(&[span(3, 0)], &uninterrupted).is_err());
    assert!(session.replace(span(40, 1), &tiny::tokens(2, 3)).is_err());
    assert!(session.replace(span(3, 1), &tiny::tokens(2, 1090)).is_err());
    in_step(&session);
    assert_eq!(next_logits(session), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever was grafted, edited and dropped: computing everything anew gives a
    /// prefill of the same tokens, to the bit.
    #[test]
    fn any_edits_are_undone_by_computing_everything_anew(
        edits in prop::collection::vec((0u8..5, 0usize..200, 0usize..40, 0usize..40), 1..9)
    ) {
        static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| tiny::model(KvDtype::F16, 1));
        let model = &*MODEL;
        let (mut session, _) = prefilled(model, &[&tiny::tokens(1, 60)]);
        for (seed, (kind, at, len, n_tokens)) in (100..).zip(edits) {
            let new = tiny::tokens(seed, n_tokens);
            // Some of them are refused, and change nothing.
            let done = match kind {
                0 => session.prefill(&new, "live", &uninterrupted).map(|_| ()),
                1 => session.graft(block(model, &new, &tiny::tokens(seed + 50, len)), "s")
                    .map(|_| ()),
                2 => session.recompute(&[span(at, len)], &uninterrupted),
                3 => session.replace(span(at, len), &new),
                _ => session.roll_back(Position(at as u32)),
            };
            drop(done);
            in_step(&session);
        }
        let all = session.tokens().to_vec();
        prop_assume!(!all.is_empty());
        session.recompute(&[span(0, all.len())], &uninterrupted).expect("it is there");
        prop_assert_eq!(next_logits(session), next_logits(prefilled(model, &[&all]).0));
    }
}
