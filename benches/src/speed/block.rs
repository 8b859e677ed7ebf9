//! Blocks: compiling, keeping, opening, grafting, and what sharing one costs.

use std::time::Instant;

use skillgraft::store::DirStore;
use skillgraft_engine::{BlockSource, PAGE_TOKENS, Session, compile};
use skillgraft_kv::{BlockKey, BlockStore, Kept, Lookup, Tier, VerifiedBlock};

use super::{Lab, ms_since};
use crate::error::Error;
use crate::machine;
use crate::report::GraftTiming;
use crate::stats::{median, percentile};
use crate::watch::Watch;

/// Sessions over which the memory of one is averaged.
const N_SESSIONS: usize = 4;

/// A folder with one block in it, gone when dropped.
pub(super) struct BlockFolder {
    folder: tempfile::TempDir,
    key: BlockKey,
    write_ms: f64,
    compile_ms: f64,
}

impl BlockFolder {
    /// Compiles a block and writes it to a folder of its own.
    pub(super) fn create(
        lab: &Lab<'_>,
        source: &BlockSource<'_>,
        watch: &Watch<'_>,
    ) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(|source| Error::Io {
            action: "make a temporary folder in",
            path: std::env::temp_dir(),
            source,
        })?;
        let block = compile(lab.prefix.model(), source, &watch.interrupt())?;
        let (key, compile_ms) = (block.header.key, block.header.compile_ms);
        let store = DirStore::open(folder.path());
        let started = Instant::now();
        let stored = store.put(block);
        let write_ms = ms_since(started);
        match stored.kept {
            Kept::OnDisk => Ok(BlockFolder { folder, key, write_ms, compile_ms }),
            Kept::InMemory { reason } => Err(Error::NotGrafted { reason }),
        }
    }

    /// The folder as a process finds it that has just begun: nothing is open.
    pub(super) fn fresh_store(&self) -> DirStore {
        DirStore::open(self.folder.path())
    }

    /// Opens and checks the block; what that took, in milliseconds.
    fn open(&self) -> Result<(VerifiedBlock, f64), Error> {
        let store = self.fresh_store();
        let started = Instant::now();
        let lookup = store.get(&self.key);
        let open_ms = ms_since(started);
        match lookup {
            Lookup::Hit(block, Tier::Disk) => Ok((block, open_ms)),
            Lookup::Hit(_, Tier::Memory) => {
                Err(Error::NotGrafted { reason: "a new store had the block open".to_owned() })
            }
            Lookup::Miss(miss) => Err(Error::NotGrafted {
                reason: format!("the block that was just written is {}", miss.name()),
            }),
        }
    }
}

/// Measures a block of `n_tokens`.
pub(super) fn measure(
    lab: &Lab<'_>,
    n_tokens: usize,
    watch: &mut Watch<'_>,
) -> Result<GraftTiming, Error> {
    watch.step(&format!("compiling and grafting a block of {n_tokens} tokens"))?;
    let tokens = lab.texts.block(n_tokens);
    let folder = BlockFolder::create(lab, &lab.texts.source(&tokens), watch)?;
    let mut open_ms = Vec::new();
    for _ in 0..lab.plan.repeat {
        open_ms.push(folder.open()?.1);
    }
    let (block, _) = folder.open()?;
    let graft_ms = time_grafts(lab, &block)?;
    let geometry = lab.prefix.model().kv_geometry();
    Ok(GraftTiming {
        tokens: n_tokens,
        block_bytes: geometry.bytes(n_tokens),
        compile_ms: folder.compile_ms,
        write_ms: folder.write_ms,
        open_ms: median(&open_ms),
        graft_ms: median(&graft_ms),
        graft_min_ms: percentile(&graft_ms, 0.0),
        graft_p95_ms: percentile(&graft_ms, 0.95),
        n: graft_ms.len(),
        session_rss_bytes: session_rss(lab, &block, watch)?,
        page_bytes: geometry.bytes(PAGE_TOKENS),
    })
}

fn time_grafts(lab: &Lab<'_>, block: &VerifiedBlock) -> Result<Vec<f64>, Error> {
    let mut session = lab.prefix.branch();
    let end = session.end();
    let mut graft_ms = Vec::with_capacity(lab.plan.n_grafts);
    for _ in 0..lab.plan.n_grafts {
        let block = block.clone();
        let started = Instant::now();
        session.graft(block, "skill")?;
        graft_ms.push(ms_since(started));
        session.roll_back(end)?;
    }
    Ok(graft_ms)
}

/// Resident memory that one more session adds. The first session has read the
/// whole block, so that its pages are counted already; later ones use them too.
fn session_rss(
    lab: &Lab<'_>,
    block: &VerifiedBlock,
    watch: &Watch<'_>,
) -> Result<Option<i64>, Error> {
    let first = session_with(lab, block, watch)?;
    // A page is one K and one V tensor a layer, and each is an allocation.
    let geometry = lab.prefix.model().kv_geometry();
    let soaked = machine::soak(geometry.bytes(PAGE_TOKENS) / (2 * geometry.n_layers));
    let Some(before) = machine::resident_bytes() else { return Ok(None) };
    let mut sessions = vec![first];
    for _ in 0..N_SESSIONS {
        sessions.push(session_with(lab, block, watch)?);
    }
    let after = machine::resident_bytes();
    drop(soaked);
    Ok(after.map(|after| (after as i64 - before as i64) / N_SESSIONS as i64))
}

/// A session that has grafted the block and read all of it, for a question.
fn session_with(lab: &Lab<'_>, block: &VerifiedBlock, watch: &Watch<'_>) -> Result<Session, Error> {
    let mut session = lab.prefix.branch();
    session.graft(block.clone(), "skill")?;
    session.prefill(&lab.texts.message, "message", &watch.interrupt())?;
    Ok(session)
}
