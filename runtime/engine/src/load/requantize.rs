//! Writing a model file anew with its weights in another format.

use std::io::BufWriter;
use std::path::Path;

use candle_core::Device;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};

use super::gguf::GgufFile;
use crate::error::EngineError;

/// A weight format that [`requantize`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// Blocks of 32 weights of 4 bits and one scale, GGUF's `Q4_0`.
    Q4_0,
}

impl WeightFormat {
    const fn dtype(self) -> GgmlDType {
        match self {
            WeightFormat::Q4_0 => GgmlDType::Q4_0,
        }
    }

    /// `general.file_type` of such a file: llama.cpp's `LLAMA_FTYPE_MOSTLY_Q4_0`.
    const fn file_type(self) -> u32 {
        match self {
            WeightFormat::Q4_0 => 2,
        }
    }
}

/// What [`requantize`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requantized {
    /// Tensors in the format that was asked for.
    pub converted: usize,
    /// The output head's tensors, in `Q8_0`.
    pub head: usize,
    /// Tensors that are as they were: vectors, rows that are no whole blocks, and
    /// what had the format already.
    pub kept: usize,
    /// Size of the file that was read.
    pub bytes_before: u64,
    /// Size of the file that was written.
    pub bytes_after: u64,
}

/// What becomes of a tensor.
enum Fate {
    Kept,
    Head,
    Converted,
}

/// Writes a model file anew. All metadata stay, but `general.file_type` and
/// `general.alignment` say what was written. As `llama-quantize` does where a row
/// is no multiple of 256, the output head (`output.weight`, or `token_embd.weight`
/// where the two are one) becomes `Q8_0`, and vectors stay. Weights that have been
/// quantised before are rounded a second time.
///
/// The file gets another name until it is complete.
///
/// # Errors
/// [`EngineError::FileExists`] when `target` is there, [`EngineError::Write`], and
/// those of reading a model file.
pub fn requantize(
    source: &Path,
    target: &Path,
    to: WeightFormat,
) -> Result<Requantized, EngineError> {
    if target.exists() {
        return Err(EngineError::FileExists { path: target.to_owned() });
    }
    let file = GgufFile::read(source)?;
    let mut done = Requantized {
        converted: 0,
        head: 0,
        kept: 0,
        bytes_before: file.n_bytes(),
        bytes_after: 0,
    };
    let head = if file.has_tensor("output.weight") { "output.weight" } else { "token_embd.weight" };
    let mut tensors = Vec::new();
    for name in file.names_in_order() {
        let tensor = file.quantized(name)?;
        let tensor = match fate(&tensor, name == head, to) {
            Fate::Kept => {
                done.kept += 1;
                tensor
            }
            Fate::Head => {
                done.head += 1;
                convert(&tensor, GgmlDType::Q8_0).map_err(|error| file.bad_tensor(name, &error))?
            }
            Fate::Converted => {
                done.converted += 1;
                convert(&tensor, to.dtype()).map_err(|error| file.bad_tensor(name, &error))?
            }
        };
        tensors.push((name, tensor));
    }
    done.bytes_after = write(&file, &tensors, target, to)
        .map_err(|source| EngineError::Write { path: target.to_owned(), source })?;
    Ok(done)
}

fn fate(tensor: &QTensor, is_head: bool, to: WeightFormat) -> Fate {
    let dims = tensor.shape().dims();
    let format = if is_head { GgmlDType::Q8_0 } else { to.dtype() };
    let has_whole_blocks = dims.last().is_some_and(|n| n % format.block_size() == 0);
    // What has the format already must not be rounded again.
    let changes = dims.len() >= 2 && has_whole_blocks && tensor.dtype() != format;
    match (changes, is_head) {
        (false, _) => Fate::Kept,
        (true, true) => Fate::Head,
        (true, false) => Fate::Converted,
    }
}

fn convert(tensor: &QTensor, to: GgmlDType) -> candle_core::Result<QTensor> {
    let values = tensor.dequantize(&Device::Cpu)?;
    QTensor::quantize(&values, to)
}

/// Writes the file, and returns its size.
fn write(
    file: &GgufFile,
    tensors: &[(&str, QTensor)],
    target: &Path,
    to: WeightFormat,
) -> Result<u64, std::io::Error> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // As for any other file: what the umask leaves.
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let partial =
        builder.prefix(".requantize-").tempfile_in(folder.unwrap_or_else(|| Path::new(".")))?;
    // The writer aligns to 32, whatever the file that was read did.
    let changed =
        [("general.file_type", Value::U32(to.file_type())), ("general.alignment", Value::U32(32))];
    let mut metadata: Vec<(&str, &Value)> = file
        .metadata()
        .filter(|(key, _)| changed.iter().all(|(name, _)| name != key))
        .chain(changed.iter().map(|(key, value)| (*key, value)))
        .collect();
    metadata.sort_unstable_by_key(|(key, _)| *key);
    let tensors: Vec<(&str, &QTensor)> =
        tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let mut out = BufWriter::new(partial.as_file());
    gguf_file::write(&mut out, &metadata, &tensors).map_err(std::io::Error::other)?;
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    let n_bytes = partial.as_file().metadata()?.len();
    partial.persist_noclobber(target).map_err(|error| error.error)?;
    Ok(n_bytes)
}

#[cfg(test)]
mod tests {
    use candle_core::Tensor;

    use super::*;

    fn sample(folder: &Path) -> std::path::PathBuf {
        let values: Vec<f32> = (0..64 * 4).map(|i| (i as f32 * 0.37).sin()).collect();
        let matrix = Tensor::from_vec(values, (4, 64), &Device::Cpu).unwrap();
        let vector = Tensor::from_vec(vec![1.5_f32; 64], 64, &Device::Cpu).unwrap();
        let matrix = QTensor::quantize(&matrix, GgmlDType::F32).unwrap();
        let vector = QTensor::quantize(&vector, GgmlDType::F32).unwrap();
        let path = folder.join("in.gguf");
        let mut out = std::fs::File::create(&path).unwrap();
        let name = Value::String("tiny".to_owned());
        let metadata = [("general.name", &name), ("general.file_type", &Value::U32(0))];
        let tensors =
            [("token_embd.weight", &matrix), ("blk.0.ffn_up.weight", &matrix), ("norm", &vector)];
        gguf_file::write(&mut out, &metadata, &tensors).unwrap();
        path
    }

    #[test]
    fn weights_become_smaller_and_everything_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let source = sample(folder.path());
        let target = folder.path().join("out.gguf");
        let done = requantize(&source, &target, WeightFormat::Q4_0).unwrap();
        assert_eq!((done.converted, done.head, done.kept), (1, 1, 1));
        assert_eq!(done.bytes_after, std::fs::metadata(&target).unwrap().len());

        let (before, after) = (GgufFile::read(&source).unwrap(), GgufFile::read(&target).unwrap());
        assert_eq!(after.str("general.name"), Some("tiny"));
        assert_eq!(after.u32("general.file_type"), Some(2));
        assert_eq!(after.raw("blk.0.ffn_up.weight", 256).unwrap().0, GgmlDType::Q4_0);
        assert_eq!(after.raw("token_embd.weight", 256).unwrap().0, GgmlDType::Q8_0);
        assert_eq!(after.raw("norm", 64).unwrap(), before.raw("norm", 64).unwrap());
        let exact = before.dequantize("blk.0.ffn_up.weight").unwrap();
        let rounded = after.dequantize("blk.0.ffn_up.weight").unwrap();
        // Half a step of a block whose largest value is about 1, and the other
        // end of the range, which has a step less.
        assert!(exact.iter().zip(&rounded).all(|(a, b)| (a - b).abs() <= 0.13));
    }

    #[test]
    fn a_file_that_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let source = sample(folder.path());
        let failed = requantize(&source, &source, WeightFormat::Q4_0).unwrap_err();
        assert!(matches!(failed, EngineError::FileExists { .. }), "{failed}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    }
}
