//! The ledger: the truth about what is in a context, segment by segment.

use crate::{AnchorKind, BlockKey, Position, PositionDelta, TokenSpan};

/// Where the KV of a segment came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentOrigin {
    /// Prefilled or decoded in this context.
    Live,
    /// A block, used `delta` positions away from where it was compiled.
    Grafted {
        /// The block.
        block: BlockKey,
        /// What it was compiled behind.
        anchor: AnchorKind,
        /// Placed position minus compiled position.
        delta: PositionDelta,
    },
    /// A block of the same tokens at the same positions: no approximation.
    Exact {
        /// The block.
        block: BlockKey,
    },
}

/// A span of the context with one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it lies.
    pub span: TokenSpan,
    /// Where its KV came from.
    pub origin: SegmentOrigin,
    /// What it is, for people: `prefix`, `skill deploy`, `message`, `answer`.
    pub label: String,
}

/// Why an edit of the ledger was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerError {
    /// Appending `n_tokens` at `at` would pass the context limit.
    ContextFull {
        /// Tokens in the context.
        at: Position,
        /// Tokens to be appended.
        n_tokens: u32,
        /// The model's context length.
        limit: u32,
    },
    /// A roll-back to a position behind the end.
    RollbackForward {
        /// Where the context ends.
        end: Position,
        /// Where it was asked to end.
        to: Position,
    },
}

impl std::fmt::Display for LedgerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LedgerError::ContextFull { at, n_tokens, limit } => {
                write!(f, "{n_tokens} tokens do not fit behind {at} in a context of {limit}")
            }
            LedgerError::RollbackForward { end, to } => {
                write!(f, "cannot roll back to {to}: the context ends at {end}")
            }
        }
    }
}

impl std::error::Error for LedgerError {}

/// Ordered segments with their positions. Segments follow one another without
/// gap or overlap, none is empty, and none passes the context limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    segments: Vec<Segment>,
    limit: u32,
}

impl Ledger {
    /// An empty context that holds at most `limit` tokens.
    pub fn new(limit: u32) -> Self {
        Ledger { segments: Vec::new(), limit }
    }

    /// Position of the next token.
    pub fn end(&self) -> Position {
        self.segments.last().map_or(Position(0), |segment| segment.span.end())
    }

    /// The context limit, in tokens.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Tokens that still fit.
    pub fn room(&self) -> u32 {
        self.limit - self.end().0
    }

    /// The segments, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Appends `n_tokens` tokens. Live tokens with the label of the last
    /// segment join it; appending nothing changes nothing.
    ///
    /// # Errors
    /// [`LedgerError::ContextFull`]; the ledger is unchanged then.
    pub fn append(
        &mut self,
        n_tokens: u32,
        origin: SegmentOrigin,
        label: &str,
    ) -> Result<TokenSpan, LedgerError> {
        let span = TokenSpan { start: self.end(), len: n_tokens };
        if n_tokens > self.room() {
            return Err(LedgerError::ContextFull { at: span.start, n_tokens, limit: self.limit });
        }
        if span.is_empty() {
            return Ok(span);
        }
        match self.segments.last_mut() {
            Some(last)
                if origin == SegmentOrigin::Live
                    && last.origin == SegmentOrigin::Live
                    && last.label == label =>
            {
                last.span.len += n_tokens;
            }
            _ => self.segments.push(Segment { span, origin, label: label.to_owned() }),
        }
        Ok(span)
    }

    /// Drops everything from `to` on.
    ///
    /// # Errors
    /// [`LedgerError::RollbackForward`] when `to` lies behind the end.
    pub fn roll_back(&mut self, to: Position) -> Result<(), LedgerError> {
        if to > self.end() {
            return Err(LedgerError::RollbackForward { end: self.end(), to });
        }
        self.segments.retain(|segment| segment.span.start < to);
        if let Some(last) = self.segments.last_mut() {
            last.span.len = last.span.len.min(to.0 - last.span.start.0);
        }
        Ok(())
    }

    /// Tokens whose KV was grafted.
    pub fn grafted_tokens(&self) -> u32 {
        let grafted = |origin| matches!(origin, SegmentOrigin::Grafted { .. });
        self.segments.iter().filter(|s| grafted(s.origin)).map(|s| s.span.len).sum()
    }
}

#[cfg(test)]
mod tests;
