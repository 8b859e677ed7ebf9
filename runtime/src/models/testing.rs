//! Models and sources for tests: small files with right checksums, and sources
//! that do as they are told.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::draft::{Copied, Draft, Report};
use super::error::ModelError;
use super::fetch::{ModelStore, PulledModel};
use super::manifest::{KnownModel, Support};
use super::progress::Progress;
use super::source::{ModelSource, SourceError};
use super::stamp::hex;

/// The id of the model in every test store.
pub(super) const ID: &str = "test-model-q4_1";
/// Its file name.
pub(super) const FILE_NAME: &str = "Test-Model.Q4_1.gguf";

/// Bytes that differ from place to place, so that a gap or a swap shows.
pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 253) as u8).collect()
}

/// A store in `cache_dir` that knows one model, whose file is `content`.
pub(super) fn store(
    cache_dir: &Path,
    content: &[u8],
    sources: Vec<&'static dyn ModelSource>,
) -> ModelStore {
    ModelStore::with_models(cache_dir, models(content, sources, Support::Supported))
}

/// The list behind [`store`]. It is leaked, as a manifest is static.
pub(super) fn models(
    content: &[u8],
    sources: Vec<&'static dyn ModelSource>,
    support: Support,
) -> &'static [KnownModel] {
    let model = KnownModel {
        id: ID,
        title: "Test Model",
        license: "MIT",
        family: "llama",
        file_name: FILE_NAME,
        bytes: content.len() as u64,
        sha256: String::leak(hex(&Sha256::digest(content))),
        support,
        sources: Vec::leak(sources),
    };
    Vec::leak(vec![model])
}

/// A source kept for the rest of the test process.
pub(super) fn leak<S: ModelSource + 'static>(source: S) -> &'static S {
    Box::leak(Box::new(source))
}

/// Pulls the test model and returns what was told on the way.
pub(super) fn pull(store: &ModelStore) -> (Result<PulledModel, ModelError>, Vec<Progress>) {
    let mut events = Vec::new();
    let result = store.pull(ID, &mut |event| events.push(event));
    (result, events)
}

/// The reasons of the sources that refused, in order.
pub(super) fn refusals(events: &[Progress]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match event {
            Progress::SourceRefused { reason, .. } => Some(reason.as_str()),
            _ => None,
        })
        .collect()
}

/// Names in the store's folder, sorted, without the lock and the stamp.
pub(super) fn files(store: &ModelStore) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(store.dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            let extension = Path::new(name).extension().and_then(|text| text.to_str());
            !matches!(extension, Some("lock" | "stamp"))
        })
        .collect();
    names.sort();
    names
}

/// Tells why a test does nothing here.
#[expect(clippy::print_stderr, reason = "a skipped test is to be seen")]
pub(super) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// A source that delivers `Ok` bytes or refuses with an `Err` reason.
#[derive(Debug)]
pub(super) struct Fake {
    pub(super) name: &'static str,
    pub(super) gives: Result<Vec<u8>, &'static str>,
    pub(super) calls: AtomicUsize,
}

impl Fake {
    pub(super) fn new(name: &'static str, gives: Result<Vec<u8>, &'static str>) -> &'static Self {
        leak(Fake { name, gives, calls: AtomicUsize::new(0) })
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl ModelSource for Fake {
    fn label(&self) -> String {
        self.name.to_owned()
    }

    fn fetch(&self, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let bytes = self.gives.as_ref().map_err(|reason| SourceError::refused(*reason))?;
        draft.begin(self.name, None)?;
        match draft.copy_from(&mut bytes.as_slice(), Report::Bytes)? {
            Copied::ToEnd => Ok(()),
            Copied::Broken(error) => Err(SourceError::refused(error.to_string())),
        }
    }
}
