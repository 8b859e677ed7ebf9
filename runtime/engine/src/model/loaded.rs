//! A model ready to run: weights, tokenizer, template, and what identifies them.

use std::path::Path;
use std::sync::Arc;

use skillgraft_kernels::Coding;
use skillgraft_kv::{KvDtype, KvGeometry, Relocatability, TokenId};

use super::{Decoder, family_of};
use crate::backend::{Backend, BackendOptions, CpuBackend};
use crate::error::EngineError;
use crate::load::{BlockFormat, GgufFile, is_float};
use crate::text::{ChatTemplate, TextTokenizer};

/// What a user may choose when a model is loaded.
#[derive(Debug, Clone, Copy)]
pub struct ModelOptions {
    /// Element type of the KV cache. f16 costs a KL of about 1e-7 against f32
    /// and halves memory and block files.
    pub kv_dtype: KvDtype,
    /// Context limit in tokens; `None` takes the model's own.
    pub context_length: Option<u32>,
    /// Choices about the device.
    pub backend: BackendOptions,
}

impl Default for ModelOptions {
    fn default() -> Self {
        ModelOptions {
            kv_dtype: KvDtype::F16,
            context_length: None,
            backend: BackendOptions::default(),
        }
    }
}

/// A model ready to run. Immutable, and shared by all its sessions.
pub struct Model<B: Backend = CpuBackend> {
    pub(crate) decoder: Decoder<B>,
    pub(crate) backend: B,
    tokenizer: TextTokenizer,
    template: ChatTemplate,
    fingerprint: [u8; 32],
    kv_dtype: KvDtype,
    context_length: u32,
}

impl<B: Backend> std::fmt::Debug for Model<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("spec", self.spec()).finish_non_exhaustive()
    }
}

impl<B: Backend> Model<B> {
    /// Loads a GGUF file.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, is of an unsupported kind, or
    /// does not fit into memory.
    pub fn load(path: &Path, options: &ModelOptions) -> Result<Arc<Self>, EngineError> {
        let file = GgufFile::read(path)?;
        let family = family_of(&file)?;
        let spec = family.spec(&file, options.context_length)?;
        let backend = B::new(&options.backend);
        check_memory(&file, backend.takes_blocks())?;

        let (decoder, text) = rayon::join(
            || Decoder::load(&file, family, spec, &backend),
            || load_text(&file).map(|text| (text, file.fingerprint())),
        );
        let ((tokenizer, template), fingerprint) = text?;
        let decoder = decoder?;
        let own = decoder.spec().context_length;
        Ok(Arc::new(Model {
            decoder,
            backend,
            tokenizer,
            template,
            fingerprint,
            kv_dtype: options.kv_dtype,
            context_length: options.context_length.map_or(own, |limit| limit.min(own)),
        }))
    }

    /// What the model is made of.
    pub fn spec(&self) -> &super::DecoderSpec {
        self.decoder.spec()
    }

    /// Text to tokens.
    pub fn tokenizer(&self) -> &TextTokenizer {
        &self.tokenizer
    }

    /// Messages to text.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The device that runs it.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// BLAKE3 of the model file.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Bytes of packed weights that one token's products read: what decoding takes
    /// from memory beside the KV.
    pub fn weight_bytes(&self) -> usize {
        self.decoder.weight_bytes(&self.backend)
    }

    /// Shape and element type of its KV.
    pub fn kv_geometry(&self) -> KvGeometry {
        self.spec().kv_geometry(self.kv_dtype)
    }

    /// Tokens that a context of this model may hold.
    pub fn context_length(&self) -> u32 {
        self.context_length
    }

    /// Why blocks of this model cannot be grafted, if they cannot.
    pub fn not_graftable(&self) -> Option<&str> {
        match &self.spec().relocatability {
            Relocatability::Relocatable => None,
            Relocatability::Fixed(reason) => Some(reason),
        }
    }

    /// Whether a token id is in the vocabulary.
    pub fn knows(&self, token: TokenId) -> bool {
        (token.0 as usize) < self.spec().vocab_size
    }
}

fn load_text(file: &GgufFile) -> Result<(TextTokenizer, ChatTemplate), EngineError> {
    let tokenizer = TextTokenizer::from_gguf(file)?;
    let bos = tokenizer.bos_text().unwrap_or_default();
    let eos = tokenizer.eos_text().unwrap_or_default();
    let template = match file.str("tokenizer.chat_template") {
        Some(source) => ChatTemplate::new(source, &bos, &eos)?,
        None if tokenizer.required_bos().is_some() => ChatTemplate::plain(&bos)?,
        None => ChatTemplate::plain("")?,
    };
    Ok((tokenizer, template))
}

/// Refuses a model whose packed weights would not fit, before they are packed
/// and the system starts to kill processes.
fn check_memory(file: &GgufFile, takes_blocks: bool) -> Result<(), EngineError> {
    let bytes = |(dtype, n_elements): (_, u64)| {
        let is_packed = takes_blocks && !is_float(dtype);
        match BlockFormat::of(dtype).map(|format| format.coding) {
            // Twenty bytes for 32 weights, scale and offset among them, or 36.
            Some(Coding::FourBits { .. } | Coding::FourBitsOffset) if is_packed => {
                n_elements * 20 / 32
            }
            _ if is_packed => n_elements * 36 / 32,
            _ => n_elements * size_of::<f32>() as u64,
        }
    };
    let needed_bytes = file.tensors().map(bytes).sum();
    match available_bytes() {
        Some(available_bytes) if needed_bytes > available_bytes => {
            Err(EngineError::TooLarge { needed_bytes, available_bytes })
        }
        _ => Ok(()),
    }
}

/// Memory that can be had without swapping, where the system tells (Linux).
fn available_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
