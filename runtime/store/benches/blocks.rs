//! What a block costs on SmolLM2-135M's geometry: writing it, opening and
//! checking it, and finding it again. Run with `cargo bench -p skillgraft-store`;
//! `SKILLGRAFT_BENCH_DIR` chooses the disk. Prints the median of each.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::path::Path;
use std::time::Instant;

use skillgraft_kv::{
    AnchorKind, BlockHeader, BlockKey, BlockStore, CompiledBlock, Kept, KvBuffer, KvDtype,
    KvGeometry, Lookup, Position, Tier, TokenId,
};
use skillgraft_store::DirStore;

const ROUNDS: usize = 11;

fn block(n_tokens: usize, round: usize) -> CompiledBlock {
    let geometry = KvGeometry { n_layers: 30, n_kv_heads: 3, head_dim: 64, dtype: KvDtype::F16 };
    let len = geometry.tensor_len(n_tokens);
    let tensor = |salt: usize| {
        KvBuffer::F16((0..len).map(|i| (i * 40503 + salt * 7919 + round) as u16).collect())
    };
    let mut key = [round as u8; 32];
    key[..8].copy_from_slice(&(n_tokens as u64).to_le_bytes());
    let header = BlockHeader {
        key: BlockKey(key),
        geometry,
        tokens: (0..n_tokens).map(|i| TokenId(i as u32 % 49152)).collect(),
        compiled_at: Position(40),
        anchor: AnchorKind::Neutral,
        label: "bench".to_owned(),
        compile_ms: 1.0,
    };
    CompiledBlock {
        header,
        k: (0..30).map(|layer| tensor(2 * layer)).collect(),
        v: (0..30).map(|layer| tensor(2 * layer + 1)).collect(),
    }
}

fn median(mut times_us: Vec<f64>) -> f64 {
    times_us.sort_by(f64::total_cmp);
    times_us[times_us.len() / 2]
}

fn elapsed_us(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn measure(root: &Path, n_tokens: usize) {
    let (mut put, mut open, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let compiled = block(n_tokens, round);
        let key = compiled.header.key;
        let store = DirStore::open(root);
        let start = Instant::now();
        let stored = store.put(compiled);
        put.push(elapsed_us(start));
        assert_eq!(stored.kept, Kept::OnDisk);
        drop((store, stored));

        let store = DirStore::open(root);
        let start = Instant::now();
        let found = store.get(&key);
        open.push(elapsed_us(start));
        assert!(matches!(found, Lookup::Hit(_, Tier::Disk)));
        let start = Instant::now();
        let found = store.get(&key);
        again.push(elapsed_us(start));
        assert!(matches!(found, Lookup::Hit(_, Tier::Memory)));
    }
    let mebibytes = block(1, 0).header.geometry.bytes(n_tokens) as f64 / f64::from(1 << 20);
    println!(
        "{n_tokens:>6} {mebibytes:>9.1} {:>9.2} {:>14.2} {:>11.2}",
        median(put) / 1e3,
        median(open) / 1e3,
        median(again)
    );
}

fn main() {
    let dir =
        std::env::var_os("SKILLGRAFT_BENCH_DIR").unwrap_or_else(|| std::env::temp_dir().into());
    let root = tempfile::tempdir_in(dir).expect("the benchmark's directory can be written to");
    // `cargo test` runs this once to see that it works; `cargo bench` says so.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    println!("tokens       MiB    put ms  open+check ms  get again us");
    for &n_tokens in if is_bench { &[128, 1024, 4096][..] } else { &[3] } {
        measure(root.path(), n_tokens);
    }
}
