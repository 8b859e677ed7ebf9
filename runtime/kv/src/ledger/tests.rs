use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Edit {
    Append { n_tokens: u32, label: u8, grafted: bool },
    RollBack { per_mille: u32 },
    Recompute { start: u32, len: u32 },
    Replace { start: u32, len: u32, n_tokens: u32 },
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let append = (0u32..70, 0u8..3, any::<bool>())
        .prop_map(|(n_tokens, label, grafted)| Edit::Append { n_tokens, label, grafted });
    let roll_back = (0u32..1000).prop_map(|per_mille| Edit::RollBack { per_mille });
    let recompute = (0u32..193, 0u32..30).prop_map(|(start, len)| Edit::Recompute { start, len });
    let replace = (0u32..193, 0u32..30, 0u32..30)
        .prop_map(|(start, len, n_tokens)| Edit::Replace { start, len, n_tokens });
    let edit = prop_oneof![3 => append, 1 => roll_back, 1 => recompute, 1 => replace];
    prop::collection::vec(edit, 0..40)
}

fn origin(grafted: bool) -> SegmentOrigin {
    if grafted {
        let block = BlockKey([7; 32]);
        SegmentOrigin::Grafted { block, anchor: AnchorKind::Neutral, delta: PositionDelta(-3) }
    } else {
        SegmentOrigin::Live
    }
}

fn span(start: u32, len: u32) -> TokenSpan {
    TokenSpan { start: Position(start), len }
}

fn is_there<T>(tokens: &[T], span: &std::ops::Range<u32>) -> bool {
    !span.is_empty() && span.end as usize <= tokens.len()
}

fn moved(origin: SegmentOrigin, by: i32) -> SegmentOrigin {
    match origin {
        SegmentOrigin::Grafted { block, anchor, delta } => {
            SegmentOrigin::Grafted { block, anchor, delta: PositionDelta(delta.0 + by) }
        }
        SegmentOrigin::Stale { delta } => {
            SegmentOrigin::Stale { delta: PositionDelta(delta.0 + by) }
        }
        _ => SegmentOrigin::Stale { delta: PositionDelta(by) },
    }
}

fn recompute(tokens: &mut [(SegmentOrigin, String)], start: usize, end: usize) {
    if tokens[..end].iter().any(|(origin, _)| origin.is_approximate()) {
        for (origin, _) in &mut tokens[end..] {
            *origin = moved(*origin, 0);
        }
    }
    for (origin, _) in &mut tokens[start..end] {
        *origin = SegmentOrigin::Recomputed;
    }
}

fn replace(tokens: &mut Vec<(SegmentOrigin, String)>, at: usize, len: usize, n_tokens: usize) {
    if len == 0 && n_tokens == 0 {
        return;
    }
    for (origin, _) in &mut tokens[at + len..] {
        *origin = moved(*origin, n_tokens as i32 - len as i32);
    }
    let label = tokens.get(at).or(tokens.last()).map_or(String::new(), |(_, label)| label.clone());
    tokens.splice(at..at + len, vec![(SegmentOrigin::Recomputed, label); n_tokens]);
}

proptest! {
    /// Against the naive oracle: one label and origin a token.
    #[test]
    fn agrees_with_a_list_of_tokens(edits in edits()) {
        let limit = 193;
        let mut ledger = Ledger::new(limit);
        let mut tokens: Vec<(SegmentOrigin, String)> = Vec::new();
        for edit in edits {
            match edit {
                Edit::Append { n_tokens, label, grafted } => {
                    let label = format!("label {label}");
                    let appended = ledger.append(n_tokens, origin(grafted), &label);
                    let fits = tokens.len() + n_tokens as usize <= limit as usize;
                    prop_assert_eq!(appended.is_ok(), fits);
                    if fits {
                        tokens.extend((0..n_tokens).map(|_| (origin(grafted), label.clone())));
                    }
                }
                Edit::RollBack { per_mille } => {
                    let to = tokens.len() as u32 * per_mille / 1000;
                    ledger.roll_back(Position(to)).unwrap();
                    tokens.truncate(to as usize);
                }
                Edit::Recompute { start, len } => {
                    let (done, span) = (ledger.recompute(span(start, len)), start..start + len);
                    prop_assert_eq!(done.is_ok(), is_there(&tokens, &span));
                    if done.is_ok() {
                        recompute(&mut tokens, span.start as usize, span.end as usize);
                    }
                }
                Edit::Replace { start, len, n_tokens } => {
                    let done = ledger.replace(span(start, len), n_tokens);
                    let there = (start + len) as usize <= tokens.len();
                    let fits = tokens.len() as u32 + n_tokens <= limit + len;
                    prop_assert_eq!(done.is_ok(), there && fits);
                    if done.is_ok() {
                        replace(&mut tokens, start as usize, len as usize, n_tokens as usize);
                    }
                }
            }
            prop_assert_eq!(ledger.end().index(), tokens.len());
            let mut next = Position(0);
            for segment in ledger.segments() {
                prop_assert_eq!(segment.span.start, next);
                prop_assert!(!segment.span.is_empty());
                for position in segment.span.start.0..segment.span.end().0 {
                    let (origin, label) = &tokens[position as usize];
                    prop_assert_eq!(segment.origin, *origin);
                    prop_assert_eq!(&segment.label, label);
                }
                next = segment.span.end();
            }
        }
    }
}

#[test]
fn rolling_forward_is_refused() {
    let mut ledger = Ledger::new(10);
    ledger.append(4, SegmentOrigin::Live, "prefix").unwrap();
    let refused = ledger.roll_back(Position(5));
    assert_eq!(refused, Err(LedgerError::RollbackForward { end: Position(4), to: Position(5) }));
}
