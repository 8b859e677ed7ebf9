//! A GGUF file in memory. Parsing and dequantising are candle's; this adds
//! typed metadata, checks and errors that name the file.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};

use crate::error::EngineError;

/// A GGUF file, read whole.
pub(crate) struct GgufFile {
    path: PathBuf,
    bytes: Vec<u8>,
    content: Content,
}

impl GgufFile {
    /// Reads a file and checks that every tensor lies inside it.
    ///
    /// # Errors
    /// [`EngineError::Io`], [`EngineError::NotGguf`], [`EngineError::Truncated`].
    pub(crate) fn read(path: &Path) -> Result<Self, EngineError> {
        let bytes = std::fs::read(path)
            .map_err(|source| EngineError::Io { path: path.to_owned(), source })?;
        let not_gguf = |reason: String| EngineError::NotGguf { path: path.to_owned(), reason };
        if !bytes.starts_with(b"GGUF") {
            return Err(not_gguf("it does not start with `GGUF`".to_owned()));
        }
        let content = Content::read(&mut Cursor::new(&bytes))
            .map_err(|error| not_gguf(header_fault(&error)))?;
        let file = GgufFile { path: path.to_owned(), bytes, content };
        file.check_extent()?;
        Ok(file)
    }

    fn check_extent(&self) -> Result<(), EngineError> {
        let found = self.bytes.len() as u64;
        for (name, info) in &self.content.tensor_infos {
            let n_blocks = (info.shape.elem_count() / info.ggml_dtype.block_size()) as u64;
            let n_bytes = n_blocks.saturating_mul(info.ggml_dtype.type_size() as u64);
            let start = self.content.tensor_data_offset.saturating_add(info.offset);
            let needed = start.saturating_add(n_bytes);
            if needed > found {
                return Err(EngineError::Truncated {
                    path: self.path.clone(),
                    tensor: name.clone(),
                    needed,
                    found,
                });
            }
        }
        Ok(())
    }

    /// BLAKE3 of the whole file: tensor data, configuration and tokenizer.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        *blake3::hash(&self.bytes).as_bytes()
    }

    /// `general.architecture`.
    pub(crate) fn architecture(&self) -> Result<&str, EngineError> {
        self.str("general.architecture").ok_or_else(|| self.missing("general.architecture"))
    }

    /// Types of all tensors, with the elements of each.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (GgmlDType, u64)> {
        let infos = self.content.tensor_infos.values();
        infos.map(|info| (info.ggml_dtype, info.shape.elem_count() as u64))
    }

    /// Names of all tensors.
    pub(crate) fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.content.tensor_infos.keys().map(String::as_str)
    }

    /// Whether the metadata has a key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.content.metadata.contains_key(key)
    }

    /// Whether the file holds a tensor.
    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// First dimension of a tensor (GGUF lists dimensions innermost first; this
    /// is the outermost).
    pub(crate) fn rows_of(&self, name: &str) -> Result<usize, EngineError> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| self.missing(name))?;
        info.shape.dims().first().copied().ok_or_else(|| self.missing(name))
    }

    /// A tensor as f32, row-major. Its length is `expected` elements.
    pub(crate) fn dequantize_len(
        &self,
        name: &str,
        expected: usize,
    ) -> Result<Vec<f32>, EngineError> {
        let values = self.dequantize(name)?;
        if values.len() != expected {
            return Err(wrong_length(name, values.len(), expected));
        }
        Ok(values)
    }

    /// A tensor's type and its bytes as they lie in the file. Its length is
    /// `expected` elements.
    pub(crate) fn raw(
        &self,
        name: &str,
        expected: usize,
    ) -> Result<(GgmlDType, &[u8]), EngineError> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| self.missing(name))?;
        let n_elements = info.shape.elem_count();
        if n_elements != expected {
            return Err(wrong_length(name, n_elements, expected));
        }
        let dtype = info.ggml_dtype;
        let start = (self.content.tensor_data_offset + info.offset) as usize;
        let len = n_elements / dtype.block_size() * dtype.type_size();
        // Opening the file has checked that every tensor lies inside it.
        Ok((dtype, &self.bytes[start..start + len]))
    }

    /// Size of the file.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// All keys and values, in no order.
    pub(crate) fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.content.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Names of all tensors, in the order of their data.
    pub(crate) fn names_in_order(&self) -> Vec<&str> {
        let mut infos: Vec<_> = self.content.tensor_infos.iter().collect();
        infos.sort_unstable_by_key(|(_, info)| info.offset);
        infos.into_iter().map(|(name, _)| name.as_str()).collect()
    }

    /// A tensor as the file has it.
    pub(crate) fn quantized(&self, name: &str) -> Result<QTensor, EngineError> {
        let mut reader = Cursor::new(&self.bytes);
        let read = self.content.tensor(&mut reader, name, &Device::Cpu);
        read.map_err(|error| self.bad_tensor(name, &error))
    }

    /// The error for a tensor that cannot be read or converted.
    pub(crate) fn bad_tensor(&self, name: &str, error: &candle_core::Error) -> EngineError {
        EngineError::NotGguf {
            path: self.path.clone(),
            reason: format!("tensor `{name}`: {error}"),
        }
    }

    /// A tensor as f32, row-major.
    pub(crate) fn dequantize(&self, name: &str) -> Result<Vec<f32>, EngineError> {
        if !self.has_tensor(name) {
            return Err(self.missing(name));
        }
        let read = || {
            let mut reader = Cursor::new(&self.bytes);
            let tensor = self.content.tensor(&mut reader, name, &Device::Cpu)?;
            tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()
        };
        read().map_err(|error: candle_core::Error| self.bad_tensor(name, &error))
    }

    /// A text value.
    pub(crate) fn str(&self, key: &str) -> Option<&str> {
        self.content.metadata.get(key)?.to_string().ok().map(String::as_str)
    }

    /// A whole number, whatever width it was written with.
    pub(crate) fn u32(&self, key: &str) -> Option<u32> {
        integer(self.content.metadata.get(key)?)
    }

    /// A number.
    pub(crate) fn f32(&self, key: &str) -> Option<f32> {
        let value = self.content.metadata.get(key)?;
        value.to_f32().ok().or_else(|| value.to_f64().ok().map(|value| value as f32))
    }

    /// A truth value.
    pub(crate) fn bool(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    /// A number that must be there.
    pub(crate) fn require_f32(&self, key: &str) -> Result<f32, EngineError> {
        self.f32(key).ok_or_else(|| self.missing(key))
    }

    /// A list of texts.
    pub(crate) fn strings(&self, key: &str) -> Option<Vec<&str>> {
        let values = self.content.metadata.get(key)?.to_vec().ok()?;
        values.iter().map(|value| value.to_string().ok().map(String::as_str)).collect()
    }

    /// A list of numbers.
    pub(crate) fn floats(&self, key: &str) -> Option<Vec<f32>> {
        let values = self.content.metadata.get(key)?.to_vec().ok()?;
        values.iter().map(|value| value.to_f32().ok()).collect()
    }

    /// A list of whole numbers.
    pub(crate) fn integers(&self, key: &str) -> Option<Vec<u32>> {
        self.content.metadata.get(key)?.to_vec().ok()?.iter().map(integer).collect()
    }

    /// The error for a key or tensor that is not there.
    pub(crate) fn missing(&self, name: &str) -> EngineError {
        EngineError::NotGguf { path: self.path.clone(), reason: format!("`{name}` is missing") }
    }
}

fn wrong_length(name: &str, found: usize, expected: usize) -> EngineError {
    EngineError::UnsupportedModel(format!(
        "tensor `{name}` has {found} elements, the metadata asks for {expected}"
    ))
}

/// What is wrong with a header that candle could not read.
fn header_fault(error: &candle_core::Error) -> String {
    match error {
        candle_core::Error::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the header is cut short".to_owned()
        }
        other => other.to_string(),
    }
}

fn integer(value: &Value) -> Option<u32> {
    match *value {
        Value::U8(n) => Some(n.into()),
        Value::I8(n) => n.try_into().ok(),
        Value::U16(n) => Some(n.into()),
        Value::I16(n) => n.try_into().ok(),
        Value::U32(n) => Some(n),
        Value::I32(n) => n.try_into().ok(),
        Value::U64(n) => n.try_into().ok(),
        Value::I64(n) => n.try_into().ok(),
        Value::F32(_) | Value::F64(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
    }
}
