//! Examples of embedding skillgraft are the `*.rs` files beside this one; skill
//! folders to try are in `skills/`.
#![forbid(unsafe_code)]
