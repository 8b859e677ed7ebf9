//! Activation: which block is taken, and what is computed.

use std::collections::HashMap;
use std::sync::Mutex;

use skillgraft_engine::{
    Activation, BlockOrigin, BlockSource, Mode, activate, compile, compile_from, uninterrupted,
};
use skillgraft_kv::{
    AnchorKind, BlockKey, BlockStore, CompiledBlock, Kept, KvDtype, Lookup, MissReason, StoreStats,
    Stored, Tier, TokenId, VerifiedBlock,
};

use crate::exactness::{bits, block, prefilled};
use crate::tiny;

/// Keeps blocks, and nothing else.
#[derive(Default)]
struct Shelf(Mutex<HashMap<BlockKey, VerifiedBlock>>);

impl BlockStore for Shelf {
    fn get(&self, key: &BlockKey) -> Lookup {
        match self.0.lock().expect("no test panics here").get(key) {
            Some(block) => Lookup::Hit(block.clone(), Tier::Memory),
            None => Lookup::Miss(MissReason::Absent),
        }
    }

    fn put(&self, block: CompiledBlock) -> Stored {
        Stored { block: self.keep(block), kept: Kept::OnDisk }
    }

    fn keep(&self, block: CompiledBlock) -> VerifiedBlock {
        let (key, block) = (block.header.key, VerifiedBlock::from_compiled(block));
        self.0.lock().expect("no test panics here").insert(key, block.clone());
        block
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}

#[test]
fn what_a_context_has_of_an_anchor_is_not_computed_again() {
    let model = tiny::model(KvDtype::F16, 1);
    let (prefix, other, body) = (tiny::tokens(4, 31), tiny::tokens(8, 19), tiny::tokens(5, 40));
    let (mut session, _) = prefilled(&model, &[&prefix, &other]);
    session.graft(block(&model, &prefix, &body), "skill").expect("it fits");
    session.prefill(&other, "live", &uninterrupted).expect("it fits");
    let before = session.tokens().to_vec();
    // Anchors that end before, at and behind what the context has of them, and
    // one whose beginning is another.
    let long = [&before[..], &tiny::tokens(9, 7)].concat();
    let mut foreign = prefix.clone();
    foreign[0] = tiny::tokens(10, 1)[0];
    for anchor in [&prefix[..9], &prefix, &long, &foreign] {
        let source = BlockSource {
            label: "block",
            anchor: AnchorKind::Prefix,
            anchor_tokens: anchor,
            tokens: &body,
            salt: [0; 16],
        };
        let mut from = compile_from(&session, &source, &uninterrupted).expect("it compiles");
        let mut afresh = compile(&model, &source, &uninterrupted).expect("it compiles");
        (from.header.compile_ms, afresh.header.compile_ms) = (0.0, 0.0);
        assert_eq!(from, afresh);
    }
    assert_eq!(session.tokens(), before);
}

#[test]
fn a_text_that_no_store_has_is_prefilled_and_kept() {
    let model = tiny::model(KvDtype::F16, 1);
    let store = Shelf::default();
    let (prefix, header, body) = (tiny::tokens(1, 30), tiny::tokens(2, 5), tiny::tokens(3, 41));
    let question = tiny::tokens(4, 9);
    let behind = [&prefix[..], &header].concat();
    let neutral = tiny::tokens(5, 13);
    let [own, other] = [(AnchorKind::Prefix, &behind), (AnchorKind::Neutral, &neutral)].map(
        |(anchor, anchor_tokens)| BlockSource {
            label: "skill",
            anchor,
            anchor_tokens,
            tokens: &body,
            salt: [0; 16],
        },
    );
    let (_, expected) = prefilled(&model, &[&prefix, &header, &body, &question]);
    let run = |first: &[&[TokenId]], sources: &[BlockSource<'_>]| {
        let (mut session, _) = prefilled(&model, first);
        let activation = Activation { label: "skill", header: &header, sources, repair: &[] };
        let activated = activate(&mut session, &store, &activation, Mode::Graft, &uninterrupted)
            .expect("it fits");
        let logits = session.prefill(&question, "live", &uninterrupted).expect("it fits");
        (activated, bits(&logits.expect("it has tokens")))
    };
    let (kept, logits) = run(&[&prefix], &[own, other]);
    assert!(matches!(kept.block, Some(BlockOrigin::Compiled { .. })), "{kept:?}");
    assert_eq!((kept.grafted_tokens, kept.prefilled_tokens, kept.is_exact), (0, 46, true));
    assert_eq!(logits, bits(&expected));
    let (found, logits) = run(&[&prefix], &[own, other]);
    assert!(matches!(found.block, Some(BlockOrigin::Found(_))), "{found:?}");
    assert_eq!((found.grafted_tokens, found.prefilled_tokens, found.is_exact), (41, 5, true));
    assert_eq!(logits, bits(&expected));
    // Elsewhere the same block is an approximation, and one that is not there is
    // compiled apart.
    let elsewhere = tiny::tokens(6, 8);
    let (moved, _) = run(&[&prefix, &elsewhere], &[own, other]);
    assert_eq!((moved.grafted_tokens, moved.is_exact), (41, false));
    let (apart, _) = run(&[&elsewhere], &[other]);
    assert!(matches!(apart.block, Some(BlockOrigin::Compiled { .. })), "{apart:?}");
    assert_eq!((apart.grafted_tokens, apart.anchor), (41, AnchorKind::Neutral));
}

#[test]
fn a_model_that_cannot_be_grafted_is_exact_and_says_why() {
    // Longer than the rotation's first length: see the phi3 family.
    let model = crate::families::load("phi3", Some(400));
    let store = Shelf::default();
    let ids = |from: u32, n: u32| -> Vec<TokenId> { (from..from + n).map(TokenId).collect() };
    let (prefix, header, body) = (ids(4, 30), ids(20, 5), ids(30, 41));
    let behind = [&prefix[..], &header].concat();
    let source = BlockSource {
        label: "skill",
        anchor: AnchorKind::Prefix,
        anchor_tokens: &behind,
        tokens: &body,
        salt: [0; 16],
    };
    let (mut session, _) = prefilled(&model, &[&prefix]);
    let activation =
        Activation { label: "skill", header: &header, sources: &[source], repair: &[] };
    let activated =
        activate(&mut session, &store, &activation, Mode::Graft, &uninterrupted).expect("it fits");
    assert_eq!((activated.mode, activated.grafted_tokens), (Mode::Exact, 0));
    let reason = activated.fallback.expect("it has a reason");
    assert!(reason.contains("beyond 64 tokens"), "{reason}");
}

#[test]
fn repair_computes_the_named_tokens_anew_and_nothing_where_all_is_exact() {
    let model = tiny::model(KvDtype::F16, 1);
    let store = Shelf::default();
    let (prefix, header, body) = (tiny::tokens(1, 30), tiny::tokens(2, 5), tiny::tokens(3, 41));
    let (neutral, question) = (tiny::tokens(5, 13), tiny::tokens(4, 9));
    let behind = [&prefix[..], &header].concat();
    let [own, other] = [(AnchorKind::Prefix, &behind), (AnchorKind::Neutral, &neutral)].map(
        |(anchor, anchor_tokens)| BlockSource {
            label: "skill",
            anchor,
            anchor_tokens,
            tokens: &body,
            salt: [0; 16],
        },
    );
    let run = |mode, sources: &[BlockSource<'_>], repair: &[std::ops::Range<usize>]| {
        let (mut session, _) = prefilled(&model, &[&prefix]);
        let activation = Activation { label: "skill", header: &header, sources, repair };
        let activated =
            activate(&mut session, &store, &activation, mode, &uninterrupted).expect("it fits");
        let logits = session.prefill(&question, "live", &uninterrupted).expect("it fits");
        (activated, bits(&logits.expect("it has tokens")))
    };
    let (_, full) = run(Mode::Exact, &[other], &[]);
    let (grafted, blind) = run(Mode::Graft, &[other], &[]);
    assert_eq!((grafted.repaired_tokens, blind == full), (0, false));
    let (some, better) = run(Mode::Repair, &[other], &[3..9, 20..31]);
    assert_eq!((some.mode, some.grafted_tokens, some.repaired_tokens), (Mode::Repair, 41, 17));
    assert!(better != blind && better != full);
    let (_, all) = run(Mode::Repair, &[other], &[0..20, 20..41]);
    assert_eq!(all, full);
    let (_, none) = run(Mode::Repair, &[other], &[]);
    assert_eq!(none, blind);
    // Prefilled in place, then found: exact either way.
    for _ in 0..2 {
        let (exact, logits) = run(Mode::Repair, &[own], &[3..9, 11..12]);
        assert_eq!((exact.is_exact, exact.repaired_tokens), (true, 0));
        assert_eq!(logits, full);
    }
}
