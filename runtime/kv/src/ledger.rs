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
    /// Computed anew in this context, in the place of what was there.
    Recomputed,
    /// Computed in this context before something that it has read was edited.
    Stale {
        /// How far the edits have moved it.
        delta: PositionDelta,
    },
}

impl SegmentOrigin {
    /// Whether the KV may differ from a full prefill's, all before it being exact.
    pub fn is_approximate(self) -> bool {
        match self {
            SegmentOrigin::Grafted { .. } | SegmentOrigin::Stale { .. } => true,
            SegmentOrigin::Live | SegmentOrigin::Exact { .. } | SegmentOrigin::Recomputed => false,
        }
    }

    /// The origin after something before the segment was edited, which moved it
    /// by `by`.
    fn moved(self, by: PositionDelta) -> Self {
        match self {
            SegmentOrigin::Grafted { block, anchor, delta } => {
                SegmentOrigin::Grafted { block, anchor, delta: delta + by }
            }
            SegmentOrigin::Stale { delta } => SegmentOrigin::Stale { delta: delta + by },
            SegmentOrigin::Live | SegmentOrigin::Exact { .. } | SegmentOrigin::Recomputed => {
                SegmentOrigin::Stale { delta: by }
            }
        }
    }
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
    /// An edit of tokens that the context does not have.
    NotThere {
        /// Where the context ends.
        end: Position,
        /// What was to be edited.
        span: TokenSpan,
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
            LedgerError::NotThere { end, span } => {
                let (from, to) = (span.start, span.end());
                write!(f, "cannot edit tokens {from} to {to}: the context ends at {end}")
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

    /// Notes that the tokens of `span` were computed anew where they are. Where
    /// something up to them was an approximation, what follows has read other KV than
    /// is there now.
    ///
    /// # Errors
    /// [`LedgerError::NotThere`]; the ledger is unchanged then.
    pub fn recompute(&mut self, span: TokenSpan) -> Result<(), LedgerError> {
        self.check_there(span)?;
        let (first, end) = (self.cut(span.start), self.cut(span.end()));
        let (before, after) = self.segments.split_at_mut(end);
        if before.iter().any(|segment| segment.origin.is_approximate()) {
            for segment in after {
                segment.origin = segment.origin.moved(PositionDelta(0));
            }
        }
        for segment in &mut before[first..] {
            segment.origin = SegmentOrigin::Recomputed;
        }
        Ok(())
    }

    /// Puts `n_tokens` recomputed tokens in the place of `span`, which may be empty:
    /// then they are put in between. What follows is moved, and was computed before
    /// the edit.
    ///
    /// # Errors
    /// [`LedgerError::NotThere`], [`LedgerError::ContextFull`]; the ledger is
    /// unchanged then.
    pub fn replace(&mut self, span: TokenSpan, n_tokens: u32) -> Result<(), LedgerError> {
        if span.end() > self.end() {
            return Err(LedgerError::NotThere { end: self.end(), span });
        }
        if n_tokens == 0 && span.is_empty() {
            return Ok(());
        }
        let limit = self.limit;
        if n_tokens > self.room() + span.len {
            return Err(LedgerError::ContextFull { at: span.start, n_tokens, limit });
        }
        let label = self.label_at(span.start).to_owned();
        let (first, end) = (self.cut(span.start), self.cut(span.end()));
        let by = PositionDelta(n_tokens as i32 - span.len as i32);
        for segment in &mut self.segments[end..] {
            segment.origin = segment.origin.moved(by);
            segment.span.start = segment.span.start + by;
        }
        let span = TokenSpan { start: span.start, len: n_tokens };
        let edited = Segment { span, origin: SegmentOrigin::Recomputed, label };
        self.segments.splice(first..end, (n_tokens > 0).then_some(edited));
        Ok(())
    }

    fn check_there(&self, span: TokenSpan) -> Result<(), LedgerError> {
        if span.is_empty() || span.end() > self.end() {
            return Err(LedgerError::NotThere { end: self.end(), span });
        }
        Ok(())
    }

    fn label_at(&self, at: Position) -> &str {
        let segment = self.segments.iter().find(|segment| at < segment.span.end());
        segment.or(self.segments.last()).map_or("", |segment| &segment.label)
    }

    /// Makes a segment begin at `at`, and returns its index.
    fn cut(&mut self, at: Position) -> usize {
        let idx = self.segments.partition_point(|segment| segment.span.end() <= at);
        let Some(segment) = self.segments.get_mut(idx).filter(|segment| segment.span.start < at)
        else {
            return idx;
        };
        let mut rest = segment.clone();
        rest.span = TokenSpan { start: at, len: segment.span.end().0 - at.0 };
        segment.span.len -= rest.span.len;
        self.segments.insert(idx + 1, rest);
        idx + 1
    }

    /// Tokens whose KV was grafted.
    pub fn grafted_tokens(&self) -> u32 {
        let grafted = |origin| matches!(origin, SegmentOrigin::Grafted { .. });
        self.segments.iter().filter(|s| grafted(s.origin)).map(|s| s.span.len).sum()
    }
}

#[cfg(test)]
mod tests;
