//! The header of a block: what is written beside its K and V.

use std::collections::BTreeMap;

use crate::{AnchorKind, BlockKey, KvDtype, KvGeometry, Position, TokenId};

/// Version of the block file. A file of another version is a miss.
pub const FORMAT_VERSION: u32 = 1;

/// What a block is and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockHeader {
    /// The block's name.
    pub key: BlockKey,
    /// Shape and element type.
    pub geometry: KvGeometry,
    /// The block's token ids.
    pub tokens: Vec<TokenId>,
    /// Position of the first token when K was rotated: the anchor's length.
    pub compiled_at: Position,
    /// What it was compiled behind.
    pub anchor: AnchorKind,
    /// What a person calls it, such as the skill's name. Not part of the key.
    pub label: String,
    /// What compiling the block's tokens took on the machine that did it, in
    /// milliseconds: an estimate of the prefill that a graft saves.
    pub compile_ms: f64,
}

/// Why a header could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderError {
    /// A field is absent or cannot be understood.
    Field(&'static str),
    /// Written by another version of the format.
    Version {
        /// What the file says.
        found: String,
    },
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HeaderError::Field(name) => write!(f, "missing or bad header field `{name}`"),
            HeaderError::Version { found } => {
                write!(f, "block format version `{found}`, this program reads {FORMAT_VERSION}")
            }
        }
    }
}

impl std::error::Error for HeaderError {}

impl BlockHeader {
    /// Number of tokens.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The header as text fields, for the metadata of a safetensors file.
    pub fn to_fields(&self) -> BTreeMap<String, String> {
        let tokens: Vec<String> = self.tokens.iter().map(|token| token.0.to_string()).collect();
        [
            ("format", FORMAT_VERSION.to_string()),
            ("key", self.key.to_hex()),
            ("n_layers", self.geometry.n_layers.to_string()),
            ("n_kv_heads", self.geometry.n_kv_heads.to_string()),
            ("head_dim", self.geometry.head_dim.to_string()),
            ("dtype", self.geometry.dtype.to_string()),
            ("tokens", tokens.join(" ")),
            ("compiled_at", self.compiled_at.to_string()),
            ("anchor", self.anchor.name().to_owned()),
            ("label", self.label.clone()),
            ("compile_ms", format!("{:.3}", self.compile_ms)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// Reads [`to_fields`](Self::to_fields).
    ///
    /// # Errors
    /// When the version is not [`FORMAT_VERSION`], or a field is absent or bad.
    pub fn from_fields(fields: &BTreeMap<String, String>) -> Result<Self, HeaderError> {
        fn parse<T: std::str::FromStr>(
            fields: &BTreeMap<String, String>,
            name: &'static str,
        ) -> Result<T, HeaderError> {
            fields.get(name).and_then(|value| value.parse().ok()).ok_or(HeaderError::Field(name))
        }
        let version: String = parse(fields, "format")?;
        if version != FORMAT_VERSION.to_string() {
            return Err(HeaderError::Version { found: version });
        }
        let key: String = parse(fields, "key")?;
        let anchor: String = parse(fields, "anchor")?;
        let tokens: String = parse(fields, "tokens")?;
        let tokens: Result<Vec<TokenId>, _> =
            tokens.split_ascii_whitespace().map(|id| id.parse().map(TokenId)).collect();
        Ok(BlockHeader {
            key: BlockKey::from_hex(&key).ok_or(HeaderError::Field("key"))?,
            geometry: KvGeometry {
                n_layers: parse(fields, "n_layers")?,
                n_kv_heads: parse(fields, "n_kv_heads")?,
                head_dim: parse(fields, "head_dim")?,
                dtype: parse::<KvDtype>(fields, "dtype")?,
            },
            tokens: tokens.map_err(|_| HeaderError::Field("tokens"))?,
            compiled_at: Position(parse(fields, "compiled_at")?),
            anchor: AnchorKind::from_name(&anchor).ok_or(HeaderError::Field("anchor"))?,
            label: parse(fields, "label")?,
            compile_ms: parse(fields, "compile_ms")?,
        })
    }
}
