//! What every store promises, run against each of them, and what a directory
//! promises beyond that.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

use skillgraft_kv::{BlockKey, BlockStore, Kept, KvDtype, Lookup, MissReason, Tier, VerifiedBlock};
use skillgraft_store::{Access, DirStore, Limits, MemoryStore, Reason};

mod samples;

use samples::{bits, block};

/// Unwraps a look-up that must find something.
fn hit(found: Lookup) -> (VerifiedBlock, Tier) {
    match found {
        Lookup::Hit(block, tier) => (block, tier),
        Lookup::Miss(reason) => panic!("missed: {}", reason.name()),
    }
}

fn miss(found: Lookup) -> MissReason {
    match found {
        Lookup::Hit(block, tier) => panic!("found {block:?} in {tier:?}"),
        Lookup::Miss(reason) => reason,
    }
}

fn gives_back_the_same_bits(store: &dyn BlockStore) {
    for (seed, dtype, n_tokens) in
        [(1, KvDtype::F16, 7), (2, KvDtype::F32, 13), (3, KvDtype::F16, 1)]
    {
        let compiled = block(seed, dtype, n_tokens);
        let stored = store.put(compiled.clone());
        let (found, tier) = hit(store.get(&compiled.header.key));
        assert_eq!(tier, Tier::Memory);
        for block in [&stored.block, &found] {
            assert_eq!(*block.header(), compiled.header);
            assert_eq!(bits(&**block.get()), bits(&compiled));
        }
        assert!(Arc::ptr_eq(stored.block.get(), found.get()), "one block is shared by all");
    }
}

fn counts_what_it_does(store: &dyn BlockStore) {
    let (here, absent) = (block(4, KvDtype::F16, 3), BlockKey([5; 32]));
    assert_eq!(miss(store.get(&here.header.key)), MissReason::Absent);
    store.put(here.clone());
    hit(store.get(&here.header.key));
    hit(store.get(&here.header.key));
    assert_eq!(miss(store.get(&absent)), MissReason::Absent);
    let stats = store.stats();
    assert_eq!(stats.hits, 2);
    assert_eq!(stats.misses.into_iter().collect::<Vec<_>>(), [(MissReason::Absent, 2)]);
    assert_eq!(stats.write_failures, 0);
}

fn takes_the_later_of_two(store: &dyn BlockStore) {
    let first = block(6, KvDtype::F16, 3);
    let mut second = block(7, KvDtype::F16, 3);
    second.header.key = first.header.key;
    let held = store.put(first.clone()).block;
    store.put(second.clone());
    assert_eq!(bits(&**hit(store.get(&first.header.key)).0.get()), bits(&second));
    assert_eq!(bits(&**held.get()), bits(&first), "a block in use does not change");
}

fn keeps_what_will_do_until_a_better_one_comes(store: &dyn BlockStore) {
    let (first, mut second) = (block(21, KvDtype::F16, 3), block(22, KvDtype::F16, 3));
    second.header.key = first.header.key;
    assert_eq!(bits(&**store.keep(first.clone()).get()), bits(&first));
    assert_eq!(bits(&**hit(store.get(&first.header.key)).0.get()), bits(&first));
    store.put(second.clone());
    assert_eq!(bits(&**hit(store.get(&first.header.key)).0.get()), bits(&second));
}

fn takes_one_key_from_many_threads(store: &dyn BlockStore) {
    let compiled = block(8, KvDtype::F32, 9);
    let (key, expected) = (compiled.header.key, bits(&compiled));
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..8 {
                    let stored = store.put(compiled.clone());
                    assert_eq!(bits(&**stored.block.get()), expected);
                }
            });
            scope.spawn(|| {
                start.wait();
                for _ in 0..64 {
                    match store.get(&key) {
                        Lookup::Hit(block, _) => assert_eq!(bits(&**block.get()), expected),
                        Lookup::Miss(reason) => assert_eq!(reason, MissReason::Absent),
                    }
                }
            });
        }
    });
    assert_eq!(bits(&**hit(store.get(&key)).0.get()), expected);
    assert_eq!(store.stats().write_failures, 0);
}

fn refuses_blocks_that_are_not_whole(store: &dyn BlockStore) {
    let whole = block(9, KvDtype::F16, 3);
    let key = whole.header.key;
    let mut no_tokens = block(9, KvDtype::F16, 0);
    no_tokens.header.tokens.clear();
    let mut layer_short = whole.clone();
    layer_short.v.pop();
    let mut token_long = whole.clone();
    token_long.header.tokens.push(skillgraft_kv::TokenId(1));
    let mut other_dtype = whole;
    other_dtype.k[1] = skillgraft_kv::KvBuffer::zeroed(KvDtype::F32, 30);
    for broken in [no_tokens, layer_short, token_long, other_dtype] {
        let put = std::panic::AssertUnwindSafe(|| store.put(broken));
        assert!(std::panic::catch_unwind(put).is_err());
        assert_eq!(miss(store.get(&key)), MissReason::Absent);
    }
}

const CONTRACT: [fn(&dyn BlockStore); 6] = [
    gives_back_the_same_bits,
    counts_what_it_does,
    takes_the_later_of_two,
    keeps_what_will_do_until_a_better_one_comes,
    takes_one_key_from_many_threads,
    refuses_blocks_that_are_not_whole,
];

#[test]
fn memory_store_keeps_the_contract() {
    for case in CONTRACT {
        case(&MemoryStore::new());
    }
}

#[test]
fn dir_store_keeps_the_contract() {
    for case in CONTRACT {
        let dir = tempfile::tempdir().unwrap();
        let store = DirStore::open(dir.path());
        assert_eq!(store.degraded(), None);
        case(&store);
        assert_only_blocks_in(dir.path());
    }
}

#[test]
fn dir_store_that_copies_keeps_the_contract() {
    for case in CONTRACT {
        let dir = tempfile::tempdir().unwrap();
        case(&DirStore::open(dir.path()).with_access(Access::Copy));
        assert_only_blocks_in(dir.path());
    }
}

/// Limits that nothing can keep to: every write evicts all others.
#[test]
fn dir_store_that_evicts_keeps_the_contract() {
    let limits = Limits { max_bytes: 0, ..Limits::default() };
    for case in CONTRACT {
        let dir = tempfile::tempdir().unwrap();
        case(&DirStore::open(dir.path()).with_limits(limits));
        assert_only_blocks_in(dir.path());
    }
}

/// A directory that cannot be written to changes where blocks live, not what
/// the store promises about them.
#[test]
fn degraded_dir_store_keeps_the_contract() {
    for case in [gives_back_the_same_bits, takes_the_later_of_two] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let store = DirStore::open(file.path().join("blocks"));
        assert!(store.degraded().is_some());
        case(&store);
    }
}

fn assert_only_blocks_in(dir: &Path) {
    for file in std::fs::read_dir(dir).expect("the root is there") {
        let path = file.expect("the root can be listed").path();
        assert!(path.extension().is_some_and(|e| e == "safetensors"), "left: {}", path.display());
    }
}

#[test]
fn memory_store_says_that_it_does_not_last() {
    let stored = MemoryStore::new().put(block(1, KvDtype::F16, 2));
    assert!(matches!(stored.kept, Kept::InMemory { reason } if reason.contains("memory only")));
}

#[test]
fn what_is_kept_for_this_process_is_not_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let compiled = block(23, KvDtype::F16, 3);
    DirStore::open(dir.path()).keep(compiled.clone());
    assert_eq!(miss(DirStore::open(dir.path()).get(&compiled.header.key)), MissReason::Absent);
}

#[test]
fn another_process_finds_the_block_on_disk_and_then_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("new").join("blocks");
    let compiled = block(10, KvDtype::F16, 7);
    assert_eq!(DirStore::open(&root).put(compiled.clone()).kept, Kept::OnDisk);

    let store = DirStore::open(&root);
    let (first, tier) = hit(store.get(&compiled.header.key));
    assert_eq!(tier, Tier::Disk);
    assert_eq!(*first.header(), compiled.header);
    assert_eq!(bits(&**first.get()), bits(&compiled));
    let (second, tier) = hit(store.get(&compiled.header.key));
    assert_eq!(tier, Tier::Memory);
    assert!(Arc::ptr_eq(first.get(), second.get()));
    assert_eq!(store.stats().hits, 2);
}

#[test]
fn two_stores_share_a_root() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (DirStore::open(dir.path()), DirStore::open(dir.path()));
    let old = block(11, KvDtype::F16, 7);
    let mut new = block(12, KvDtype::F16, 5);
    new.header.key = old.header.key;

    one.put(old.clone());
    let (held, tier) = hit(other.get(&old.header.key));
    assert_eq!(tier, Tier::Disk);
    one.put(new.clone());
    assert_eq!(bits(&**held.get()), bits(&old), "replacing a file leaves its maps alone");
    let (found, _) = hit(DirStore::open(dir.path()).get(&old.header.key));
    assert_eq!(bits(&**found.get()), bits(&new));

    assert_eq!(one.clear().unwrap(), 1);
    assert_eq!(other.clear().unwrap(), 0);
    assert_eq!(miss(other.get(&old.header.key)), MissReason::Absent);
    assert_eq!(bits(&**held.get()), bits(&old), "a block in use survives `clear`");
}

#[test]
fn two_stores_put_one_key_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let compiled = block(13, KvDtype::F32, 17);
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let store = DirStore::open(dir.path());
                start.wait();
                for _ in 0..16 {
                    assert_eq!(store.put(compiled.clone()).kept, Kept::OnDisk);
                    let (found, tier) = hit(DirStore::open(dir.path()).get(&compiled.header.key));
                    assert_eq!(tier, Tier::Disk);
                    assert_eq!(bits(&**found.get()), bits(&compiled));
                }
            });
        }
    });
    assert_only_blocks_in(dir.path());
}

#[test]
fn entries_are_listed_by_header() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirStore::open(dir.path());
    assert_eq!(store.entries().unwrap().len(), 0);
    let (small, large) = (block(14, KvDtype::F16, 2), block(15, KvDtype::F16, 9));
    store.put(large.clone());
    store.put(small.clone());
    std::fs::write(dir.path().join("notes.safetensors"), "not named like a block").unwrap();
    let junk = dir.path().join(format!("{}.safetensors", BlockKey([255; 32])));
    std::fs::write(&junk, "junk").unwrap();

    let entries = store.entries().unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(*entries[0].header.as_ref().unwrap(), small.header);
    assert_eq!(*entries[1].header.as_ref().unwrap(), large.header);
    assert_eq!(entries[1].file_bytes, std::fs::metadata(&entries[1].path).unwrap().len());
    assert_eq!(entries[2].path, junk);
    assert_eq!(entries[2].header.as_ref().unwrap_err().miss_reason(), MissReason::Damaged);
    assert_eq!(store.clear().unwrap(), 3);
    assert!(dir.path().join("notes.safetensors").exists(), "only blocks are removed");
}

fn set_age(path: &Path, days: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("it can be opened");
    let time = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    file.set_modified(time).expect("its time can be set");
}

fn path_of(dir: &Path, seed: u8) -> PathBuf {
    dir.join(format!("{}.safetensors", BlockKey([seed; 32])))
}

#[test]
fn a_collection_takes_the_unusable_the_old_and_the_least_recently_used() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirStore::open(dir.path());
    for (seed, days) in [(1, 100), (2, 3), (3, 2), (4, 1), (5, 1)] {
        store.put(block(seed, KvDtype::F16, 7));
        set_age(&path_of(dir.path(), seed), days);
    }
    let held = store.put(block(6, KvDtype::F16, 7)).block;
    // One bit of the data is another.
    let mut bytes = std::fs::read(path_of(dir.path(), 5)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(path_of(dir.path(), 5)).unwrap();
    std::fs::write(path_of(dir.path(), 5), &bytes).unwrap();
    // A look-up is a use.
    hit(DirStore::open(dir.path()).get(&BlockKey([2; 32])));

    let n_bytes = bytes.len() as u64;
    let limits =
        Limits { max_bytes: 2 * n_bytes + 1, max_age: Duration::from_secs(50 * 24 * 3600) };
    let collected = store.collect(&limits).unwrap();
    let removed: Vec<_> =
        collected.removed.iter().map(|gone| (gone.path.clone(), gone.bytes, gone.reason)).collect();
    let gone = |seed, reason| (path_of(dir.path(), seed), n_bytes, reason);
    assert_eq!(
        removed,
        [
            gone(5, Reason::Unusable),
            gone(1, Reason::Old),
            gone(3, Reason::Size),
            gone(4, Reason::Size)
        ]
    );
    assert_eq!((collected.kept, collected.kept_bytes), (2, 2 * n_bytes));
    assert_eq!(bits(&**held.get()), bits(&block(6, KvDtype::F16, 7)));
    // What is open stays usable when its file goes.
    assert_eq!(store.collect(&Limits { max_bytes: 0, ..limits }).unwrap().kept, 0);
    assert_eq!(bits(&**held.get()), bits(&block(6, KvDtype::F16, 7)));
    assert!(held.get().is_intact(), "its file has no name, and is there");
}

#[test]
fn writing_evicts_what_was_used_least_recently() {
    let dir = tempfile::tempdir().unwrap();
    DirStore::open(dir.path()).put(block(1, KvDtype::F16, 7));
    let n_bytes = std::fs::metadata(path_of(dir.path(), 1)).unwrap().len();
    set_age(&path_of(dir.path(), 1), 1);
    let limits = Limits { max_bytes: 3 * n_bytes, ..Limits::default() };
    let store = DirStore::open(dir.path()).with_limits(limits);
    for seed in 2..=9 {
        store.put(block(seed, KvDtype::F16, 7));
        set_age(&path_of(dir.path(), seed), 0);
        assert!(path_of(dir.path(), seed).exists(), "what was just written stays");
    }
    let n_files = store.entries().unwrap().len() as u64;
    assert!(n_files <= 3 && !path_of(dir.path(), 1).exists(), "{n_files} files");
}

#[test]
fn a_file_that_is_shortened_in_place_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let compiled = block(1, KvDtype::F16, 700);
    let key = compiled.header.key;
    let mapping = DirStore::open(dir.path());
    let copying = DirStore::open(dir.path()).with_access(Access::Copy);
    let mapped = mapping.put(compiled.clone()).block;
    let (copied, _) = hit(copying.get(&key));
    let file = std::fs::File::options().write(true).open(path_of(dir.path(), 1)).unwrap();
    file.set_len(100).unwrap();
    assert!(!mapped.get().is_intact());
    assert_eq!(miss(mapping.get(&key)), MissReason::Damaged);
    assert!(copied.get().is_intact());
    assert_eq!(bits(&**copied.get()), bits(&compiled));
    assert_eq!(mapping.put(compiled.clone()).kept, Kept::OnDisk);
    assert_eq!(bits(&**hit(mapping.get(&key)).0.get()), bits(&compiled));
}

/// Stores that read, write, collect and clear one directory at once hand out
/// nothing but what was compiled.
#[test]
fn many_stores_work_in_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let compiled: Vec<_> = (1..=5).map(|seed| block(seed, KvDtype::F16, 7)).collect();
    let expected: Vec<Vec<u32>> = compiled.iter().map(|block| bits(block)).collect();
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for worker in 0..4_usize {
            let (dir, compiled, expected, start) = (dir.path(), &compiled, &expected, &start);
            scope.spawn(move || {
                let limits = Limits { max_bytes: 2000, ..Limits::default() };
                start.wait();
                for round in 0..60 {
                    // A store for each round, as a process for each would have.
                    let store = DirStore::open(dir).with_limits(limits);
                    let at = (worker * 7 + round) % compiled.len();
                    match (worker + round) % 4 {
                        0 => drop(store.put(compiled[at].clone())),
                        1 => drop(store.collect(&limits).unwrap()),
                        2 if round % 8 == 0 => drop(store.clear().unwrap()),
                        _ => {}
                    }
                    match store.get(&compiled[at].header.key) {
                        Lookup::Hit(block, _) => assert_eq!(bits(&**block.get()), expected[at]),
                        Lookup::Miss(reason) => assert_eq!(reason, MissReason::Absent),
                    }
                }
            });
        }
    });
}

#[cfg(unix)]
#[test]
fn only_the_user_can_read_blocks() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("blocks");
    DirStore::open(&root).put(block(1, KvDtype::F16, 2));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&root), mode(&path_of(&root, 1))), (0o700, 0o600));
}

/// Any safetensors reader must agree with ours; this one is the reference.
#[test]
fn a_plain_safetensors_reader_reads_the_file() {
    for dtype in [KvDtype::F16, KvDtype::F32] {
        let dir = tempfile::tempdir().unwrap();
        let compiled = block(16, dtype, 7);
        DirStore::open(dir.path()).put(compiled.clone());
        let path = dir.path().join(format!("{}.safetensors", compiled.header.key));
        let file = std::fs::read(path).unwrap();

        let read = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.len(), 6);
        let mut found = Vec::new();
        for layer in 0..3 {
            for part in ["k", "v"] {
                let tensor = read.tensor(&format!("{part}.{layer}")).unwrap();
                assert_eq!(tensor.shape(), [2, 7, 5]);
                assert_eq!(tensor.dtype().to_string(), dtype.name().to_uppercase());
                found.extend(tensor.data().chunks_exact(dtype.size_bytes()).map(|bytes| {
                    bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte))
                }));
            }
        }
        assert_eq!(found, bits(&compiled));

        let (header_bytes, metadata) = safetensors::SafeTensors::read_metadata(&file).unwrap();
        assert_eq!((8 + header_bytes) % 64, 0);
        let fields = metadata.metadata().as_ref().unwrap();
        assert_eq!(fields["label"], compiled.header.label);
        assert_eq!(fields["blake3.v.2"].len(), 64);
        assert_eq!(fields.len(), compiled.header.to_fields().len() + 6 + 1);
    }
}

/// Equal blocks give equal files, so that copies can be compared byte by byte.
#[test]
fn files_are_deterministic() {
    let files: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let dir = tempfile::tempdir().unwrap();
            let store = DirStore::open(dir.path());
            store.put(block(17, KvDtype::F16, 3));
            std::fs::read(&store.entries().unwrap()[0].path).unwrap()
        })
        .collect();
    assert_eq!(files[0], files[1]);
}
