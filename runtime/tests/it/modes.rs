//! What a turn promises under each mode, on the real model; and what happens when a
//! block is lost in the middle of a conversation.

use std::ops::ControlFlow;

use skillgraft::kv::SegmentOrigin;
use skillgraft::{Placement, TurnEvent, TurnMode, TurnOptions};

use crate::main_job::{QUESTION, ask, blocks, brief, examples, open};

/// Behind the message a graft is an approximation: what is computed anew, and an
/// answer that is checked.
#[test]
fn behind_the_message_lines_are_repaired_and_answers_verified() {
    let cache_dir = tempfile::tempdir().expect("a temporary folder");
    let runtime = open(cache_dir.path(), examples());
    let tail = |mode| TurnOptions {
        mode,
        placement: Placement::Tail,
        use_skills: vec!["deploy-rollback".to_owned()],
        ..brief()
    };
    let run = |mode| {
        let mut conversation = runtime.conversation().expect("it opens");
        let mut seen = String::new();
        let report = conversation.run_turn(QUESTION, &tail(mode), &mut |event| {
            match event {
                TurnEvent::Text(text) => seen.push_str(text),
                TurnEvent::Corrected { keep_bytes } => seen.truncate(keep_bytes),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let report = report.expect("the turn works");
        assert_eq!(seen, report.answer);
        (report, conversation.session().tokens().to_vec(), conversation.session().exact_end())
    };
    let (exact, tokens, end) = run(TurnMode::Exact);
    assert_eq!((exact.mode, exact.activations[0].placement), ("exact", "tail"));
    assert_eq!(end.index(), tokens.len());

    let (grafted, _, approximate) = run(TurnMode::Graft);
    assert_eq!(grafted.activations[0].repaired_tokens, 0);
    assert!(approximate.index() < tokens.len());

    let (repaired, _, _) = run(TurnMode::Auto);
    let activation = &repaired.activations[0];
    assert_eq!((repaired.mode, activation.placement), ("repair", "tail"));
    let most = (activation.grafted_tokens as f64 * 0.15).ceil() as usize;
    assert!((1..=most).contains(&activation.repaired_tokens), "{activation:?}");

    let (verified, verified_tokens, end) = run(TurnMode::Verified);
    assert_eq!((verified.mode, verified.answer), ("verified", exact.answer));
    assert_eq!((verified_tokens, end.index()), (tokens.clone(), tokens.len()));
    let found = verified.verified.expect("it was checked");
    assert!(found.prefilled_tokens > 600 && !found.unchecked, "{found:?}");
}

#[test]
fn a_block_file_that_is_shortened_during_a_conversation_is_survived() {
    let cache_dir = tempfile::tempdir().expect("a temporary folder");
    let options = TurnOptions { use_skills: vec!["deploy-rollback".to_owned()], ..brief() };
    let mut expected = open(cache_dir.path(), examples()).conversation().expect("it opens");
    ask(&mut expected, QUESTION, &options);
    let expected = ask(&mut expected, "And in production?", &brief());

    // Prefix and block come from the disk now, and lie in maps.
    let mut conversation = open(cache_dir.path(), examples()).conversation().expect("it opens");
    assert_eq!(ask(&mut conversation, QUESTION, &options).activations[0].block, "disk");
    for path in blocks(&cache_dir) {
        let file = std::fs::File::options().write(true).open(path).expect("it can be opened");
        file.set_len(4096).expect("it can be shortened");
    }
    let answer = ask(&mut conversation, "And in production?", &brief());
    assert_eq!(answer.answer, expected.answer);
    let is_live = |origin| matches!(origin, SegmentOrigin::Live | SegmentOrigin::Recomputed);
    assert!(conversation.ledger().segments().iter().all(|segment| is_live(segment.origin)));
    // The next process compiles it again.
    let mut next = open(cache_dir.path(), examples()).conversation().expect("it opens");
    assert_eq!(ask(&mut next, QUESTION, &options).activations[0].miss, Some("damaged"));
}
