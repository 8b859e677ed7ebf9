//! The default model, loaded once for all tests of this binary.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use skillgraft::engine::{BackendOptions, Model, ModelOptions};
use skillgraft::kv::{KvDtype, TokenId};
use skillgraft::models::{DEFAULT_MODEL_ID, ModelStore};
use skillgraft::{Settings, StopFlag};

/// Where the model is kept: the user's own cache folder, or the build's where
/// there is none.
pub(crate) fn cache_dir() -> PathBuf {
    let own = Settings::from_env().map(|settings| settings.cache_dir);
    own.unwrap_or_else(|_| Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
}

/// The model's file.
pub(crate) fn file() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let store = ModelStore::open(cache_dir()).cancelled_by(StopFlag::default().shared());
        let pulled = store.pull(DEFAULT_MODEL_ID, &mut |_| {});
        pulled.expect("the default model can be fetched").path
    })
    .clone()
}

fn load(kv_dtype: KvDtype, strict_f32: bool) -> Arc<Model> {
    let backend = BackendOptions { strict_f32, ..BackendOptions::default() };
    let options = ModelOptions { kv_dtype, backend, ..ModelOptions::default() };
    Model::load(&file(), &options).expect("the default model loads")
}

/// In f32 throughout, the KV cache too: for comparing numbers.
pub(crate) fn with_f32_kv() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    Arc::clone(MODEL.get_or_init(|| load(KvDtype::F32, true)))
}

/// In f32, but for the KV cache.
pub(crate) fn with_f16_kv() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    Arc::clone(MODEL.get_or_init(|| load(KvDtype::F16, true)))
}

/// As users have it.
pub(crate) fn as_shipped() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    Arc::clone(MODEL.get_or_init(|| load(KvDtype::F16, false)))
}

/// A list of token ids from JSON.
pub(crate) fn token_ids(json: &serde_json::Value) -> Vec<TokenId> {
    let ids = json.as_array().expect("a list of ids");
    ids.iter().map(|id| TokenId(id.as_u64().expect("an id") as u32)).collect()
}
