//! Repair: which tokens of a grafted block are computed anew in their context.
//!
//! In mid-turn a block stands behind the question, which a full prefill's block has
//! read and a grafted one has not. What the question is about is in a few lines of
//! the block; whoever knows the texts ranks the lines, and here they become tokens,
//! whole lines within a budget. Computing them is [`Session::recompute`].
//!
//! [`Session::recompute`]: crate::Session::recompute

use std::ops::Range;

use skillgraft_kv::TokenId;

use crate::error::EngineError;
use crate::text::TextTokenizer;

/// The most of a block that is computed anew. On the evaluation set the best line
/// alone is 11 % of a block, the best two are 14 %.
pub const REPAIR_SHARE: f64 = 0.15;

/// A line is computed anew whatever its share of a short block, up to this many
/// tokens.
const LINE_TOKENS_MIN: usize = 32;

/// The tokens of `text` that have a byte of `lines`, best line first: whole lines,
/// as many as fit into [`REPAIR_SHARE`] of the text, and with what is left of it the
/// first tokens of the text, through which the others are read. Ranges are sorted,
/// distinct, and of `tokens`, which are `text` encoded as content.
///
/// # Errors
/// [`EngineError::Tokenizer`] when the library refuses the text.
pub fn tokens_to_repair(
    tokenizer: &TextTokenizer,
    text: &str,
    tokens: &[TokenId],
    lines: &[Range<usize>],
) -> Result<Vec<Range<usize>>, EngineError> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let offsets = tokenizer.content_offsets(text)?;
    if offsets.len() != tokens.len() {
        let (found, n_tokens) = (offsets.len(), tokens.len());
        let reason = format!("{found} offsets for {n_tokens} tokens of a block");
        return Err(EngineError::Tokenizer(reason));
    }
    let ranges: Vec<Range<usize>> = lines
        .iter()
        .map(|line| {
            let first = offsets.partition_point(|token| token.end <= line.start);
            let end = offsets.partition_point(|token| token.start < line.end);
            first..end.max(first)
        })
        .collect();
    Ok(within_budget(&ranges, tokens.len()))
}

/// The first of `ranges` that fit together, and the beginning, sorted.
fn within_budget(ranges: &[Range<usize>], n_tokens: usize) -> Vec<Range<usize>> {
    let share = (n_tokens as f64 * REPAIR_SHARE) as usize;
    let mut left = share.max(LINE_TOKENS_MIN.min(n_tokens));
    let mut is_chosen = vec![false; n_tokens];
    for range in ranges {
        let n_new = is_chosen[range.clone()].iter().filter(|chosen| !**chosen).count();
        // A shorter line further down the list may still fit.
        if n_new <= left {
            left -= n_new;
            is_chosen[range.clone()].fill(true);
        }
    }
    if is_chosen.contains(&true) {
        for chosen in is_chosen.iter_mut().filter(|chosen| !**chosen).take(left) {
            *chosen = true;
        }
    }
    let mut chosen = Vec::<Range<usize>>::new();
    for at in (0..n_tokens).filter(|&at| is_chosen[at]) {
        match chosen.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => chosen.push(at..at + 1),
        }
    }
    chosen
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_within_the_budget() {
        // 15 % of 400 are 60.
        let lines = [100..140, 10..20, 140..170, 390..400, 12..16];
        assert_eq!(within_budget(&lines, 400), [10..20, 100..140, 390..400]);
        assert!(within_budget(&[0..61], 400).is_empty());
        assert_eq!(within_budget(&[0..30, 30..60], 400), [0..60]);
    }

    #[test]
    fn what_is_left_goes_to_the_beginning() {
        assert_eq!(within_budget(&[100..140], 400), [0..20, 100..140]);
        assert_eq!(within_budget(&[5..45], 400), [0..60]);
        assert!(within_budget(&[], 400).is_empty());
    }

    #[test]
    fn a_short_block_has_room_for_a_line() {
        assert_eq!(within_budget(&[5..37], 40), [5..37]);
        assert_eq!(within_budget(&[0..9], 9), [0..9]);
        assert!(within_budget(&[5..38], 40).is_empty());
    }
}
