//! Patching: a text in a context becomes its next version, in place.
//!
//! Where the two differ, the new tokens are computed up to the end of their line,
//! and everything else is kept: what follows in the text and in the context is
//! moved, and goes on saying what it read before. That costs a few tokens where a
//! full prefill costs all of them, and it is why a value that was concluded from the
//! old text has to be told anew at the tail.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};
use skillgraft_kv::{Position, TokenId, TokenSpan};

use crate::backend::Backend;
use crate::error::EngineError;
use crate::session::{Interrupt, Session};
use crate::text::TextTokenizer;

/// Tokens in one version of a text, and those of the next that stand for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Tokens of the old version.
    pub old: Range<usize>,
    /// Tokens of the new version.
    pub new: Range<usize>,
}

/// Where two versions of a text differ, each place up to the end of its line, in
/// order. What is between them is equal.
///
/// # Errors
/// [`EngineError::Tokenizer`] for an id outside the vocabulary.
pub fn hunks(
    tokenizer: &TextTokenizer,
    old: &[TokenId],
    new: &[TokenId],
) -> Result<Vec<Hunk>, EngineError> {
    // What is equal, in both; the differences are what is between.
    let mut equal: Vec<[Range<usize>; 2]> = capture_diff_slices(Algorithm::Patience, old, new)
        .into_iter()
        .filter(|op| matches!(op, DiffOp::Equal { .. }))
        .map(|op| [op.old_range(), op.new_range()])
        .collect();
    equal.push([old.len()..old.len(), new.len()..new.len()]);
    let mut hunks = Vec::new();
    let mut begun = Hunk { old: 0..0, new: 0..0 };
    for [in_old, in_new] in equal {
        begun = Hunk { old: begun.old.start..in_old.start, new: begun.new.start..in_new.start };
        if begun.old.is_empty() && begun.new.is_empty() {
            begun = Hunk { old: in_old.end..in_old.end, new: in_new.end..in_new.end };
            continue;
        }
        let n_tokens = rest_of_line(tokenizer, &begun, old, new, in_new.len())?;
        let is_whole = n_tokens < in_new.len() || in_new.end == new.len();
        begun.old.end += n_tokens;
        begun.new.end += n_tokens;
        if is_whole {
            hunks.push(begun);
            begun = Hunk { old: in_old.end..in_old.end, new: in_new.end..in_new.end };
        }
        // Otherwise the line goes on in the next difference.
    }
    Ok(hunks)
}

/// Of `n_equal` equal tokens behind a hunk, those up to the end of its line.
fn rest_of_line(
    tokenizer: &TextTokenizer,
    hunk: &Hunk,
    old: &[TokenId],
    new: &[TokenId],
    n_equal: usize,
) -> Result<usize, EngineError> {
    let ends =
        |token: Option<&TokenId>| token.map_or(Ok(true), |&token| ends_line(tokenizer, token));
    // Lines that were put in or taken out as a whole have no rest.
    let is_whole = |tokens: &[TokenId], range: &Range<usize>| {
        Ok::<_, EngineError>(
            ends(tokens[..range.start].last())?
                && (range.is_empty() || ends(tokens[..range.end].last())?),
        )
    };
    if is_whole(old, &hunk.old)? && is_whole(new, &hunk.new)? {
        return Ok(0);
    }
    for n_tokens in 0..n_equal {
        if ends_line(tokenizer, new[hunk.new.end + n_tokens])? {
            return Ok(n_tokens + 1);
        }
    }
    Ok(n_equal)
}

fn ends_line(tokenizer: &TextTokenizer, token: TokenId) -> Result<bool, EngineError> {
    Ok(tokenizer.decode(&[token])?.contains('\n'))
}

impl<B: Backend> Session<B> {
    /// Makes the text that begins at `start` its next version, `new`, by putting
    /// the hunks in their places.
    ///
    /// # Errors
    /// [`EngineError::Context`] when it does not fit or is not there,
    /// [`EngineError::Interrupted`] between hunks. Hunks before are in place then:
    /// patch a branch where that matters.
    pub fn patch(
        &mut self,
        start: Position,
        hunks: &[Hunk],
        new: &[TokenId],
        interrupt: Interrupt<'_>,
    ) -> Result<(), EngineError> {
        for hunk in hunks {
            if interrupt().is_break() {
                return Err(EngineError::Interrupted);
            }
            // Hunks before have moved it to where it is in the new version.
            let at = start + hunk.new.start as u32;
            let span = TokenSpan { start: at, len: hunk.old.len() as u32 };
            self.replace(span, &new[hunk.new.clone()])?;
        }
        Ok(())
    }
}
