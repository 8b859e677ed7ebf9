//! The decoder and the families it is driven by.

mod decoder;
mod families;
mod loaded;
mod spec;
mod weights;

pub use decoder::{Decoder, LogitRows, Step};
pub(crate) use families::family_of;
pub use families::supported_architectures;
pub use loaded::{Model, ModelOptions};
pub use spec::{DecoderSpec, QkRowOrder};
