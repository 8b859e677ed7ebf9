//! Newtypes for the integers that must not be swapped.

use std::fmt;
use std::ops::{Add, Sub};

/// A token's place in a context, counted from 0. It is what RoPE rotates by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u32);

/// How far a block has been moved: placed position minus compiled position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PositionDelta(pub i32);

/// An entry of the model's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TokenId(pub u32);

/// A decoder layer, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LayerIdx(pub u32);

/// `len` tokens of a context that start at `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TokenSpan {
    /// Position of the first token.
    pub start: Position,
    /// Number of tokens.
    pub len: u32,
}

impl Position {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl LayerIdx {
    /// The layer as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl TokenSpan {
    /// Position one past the last token.
    pub fn end(self) -> Position {
        self.start + self.len
    }

    /// Whether the span holds no token.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl Add<u32> for Position {
    type Output = Position;

    fn add(self, n_tokens: u32) -> Position {
        Position(self.0 + n_tokens)
    }
}

impl Sub for Position {
    type Output = PositionDelta;

    fn sub(self, other: Position) -> PositionDelta {
        PositionDelta(self.0 as i32 - other.0 as i32)
    }
}

impl Add for PositionDelta {
    type Output = PositionDelta;

    fn add(self, other: PositionDelta) -> PositionDelta {
        PositionDelta(self.0 + other.0)
    }
}

impl Add<PositionDelta> for Position {
    type Output = Position;

    /// # Panics
    /// When the position would lie before the context.
    fn add(self, delta: PositionDelta) -> Position {
        Position(self.0.checked_add_signed(delta.0).expect("a position in the context"))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LayerIdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
