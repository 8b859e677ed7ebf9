use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use skillgraft_kv::{KvDtype, TokenId};
use tempfile::{TempDir, TempPath};

use super::*;
use crate::samples::{bits, block};

/// What a [`FaultyDisk`] does when its moment comes.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Writes up to this byte of the file, then has no room.
    FullAt(u64),
    Sync,
    Rename,
    DirSync,
    /// The process ends without unwinding, as by a signal, at this byte.
    ExitAt(u64),
}

/// Exit code of a process that was told to die.
const DIED: i32 = 17;

#[derive(Debug)]
struct FaultyDisk {
    fault: Fault,
    n_bytes: AtomicU64,
}

impl FaultyDisk {
    fn store(root: &Path, fault: Fault) -> DirStore {
        let disk = FaultyDisk { fault, n_bytes: AtomicU64::new(0) };
        DirStore::open_on(root.to_owned(), Box::new(disk))
    }
}

impl Disk for FaultyDisk {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let before = self.n_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let (Fault::FullAt(limit) | Fault::ExitAt(limit)) = self.fault else {
            return RealDisk.write(file, bytes);
        };
        let room = limit.saturating_sub(before).min(bytes.len() as u64) as usize;
        RealDisk.write(file, &bytes[..room])?;
        if room == bytes.len() {
            return Ok(());
        }
        if matches!(self.fault, Fault::ExitAt(_)) {
            std::process::exit(DIED);
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let is_dir = file.metadata()?.is_dir();
        match self.fault {
            Fault::Sync if !is_dir => Err(io::Error::other("I/O error at fsync")),
            Fault::DirSync if is_dir => Err(io::ErrorKind::Unsupported.into()),
            _ => RealDisk.sync(file),
        }
    }

    fn rename(&self, temp: TempPath, to: &Path) -> io::Result<()> {
        match self.fault {
            Fault::Rename => Err(io::ErrorKind::PermissionDenied.into()),
            _ => RealDisk.rename(temp, to),
        }
    }
}

fn root() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn file_names(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn miss(store: &DirStore, key: &BlockKey) -> MissReason {
    match store.get(key) {
        Lookup::Hit(block, tier) => panic!("found {block:?} in {tier:?}"),
        Lookup::Miss(reason) => reason,
    }
}

/// The file of `compiled`, as a store writes it.
fn file_of(compiled: &CompiledBlock) -> Vec<u8> {
    let root = root();
    let store = DirStore::open(root.path());
    assert_eq!(store.put(compiled.clone()).kept, Kept::OnDisk);
    fs::read(store.path(&compiled.header.key)).unwrap()
}

/// Checks a write that must fail: the block is usable, the reason is told, no
/// file appears, and what had the name before is still there.
#[track_caller]
fn check_failed_write(fault: Fault, cause: &str) {
    for n_before in [0, 1] {
        let root = root();
        let mut old = block(1, KvDtype::F16, 3);
        let new = block(2, KvDtype::F32, 7);
        old.header.key = new.header.key;
        if n_before == 1 {
            DirStore::open(root.path()).put(old.clone());
        }
        let before = file_names(root.path());

        let store = FaultyDisk::store(root.path(), fault);
        let stored = store.put(new.clone());
        assert_eq!(bits(&**stored.block.get()), bits(&new));
        let Kept::InMemory { reason } = stored.kept else { panic!("nothing was refused") };
        assert!(reason.contains(cause), "{reason}");
        assert!(reason.contains(&new.header.key.to_hex()), "{reason}");
        assert_eq!(store.stats().write_failures, 1);
        assert!(matches!(store.get(&new.header.key), Lookup::Hit(_, Tier::Memory)));
        assert_eq!(file_names(root.path()), before);
        match DirStore::open(root.path()).get(&new.header.key) {
            Lookup::Hit(block, _) => assert_eq!(bits(&**block.get()), bits(&old)),
            Lookup::Miss(reason) => assert_eq!((reason, n_before), (MissReason::Absent, 0)),
        }
    }
}

#[test]
fn a_full_disk_leaves_no_file() {
    let len = file_of(&block(2, KvDtype::F32, 7)).len() as u64;
    for limit in [0, 5, 64, len / 2, len - 1] {
        check_failed_write(
            Fault::FullAt(limit),
            &io::Error::from(io::ErrorKind::StorageFull).to_string(),
        );
    }
}

#[test]
fn a_failed_fsync_leaves_no_file() {
    check_failed_write(Fault::Sync, "I/O error at fsync");
}

#[test]
fn a_failed_rename_leaves_no_file() {
    check_failed_write(Fault::Rename, "permission denied");
}

#[test]
#[cfg(unix)]
fn a_directory_that_cannot_be_fsynced_still_has_the_block() {
    let root = root();
    let compiled = block(3, KvDtype::F16, 3);
    let store = FaultyDisk::store(root.path(), Fault::DirSync);
    assert_eq!(store.put(compiled.clone()).kept, Kept::OnDisk);
    let found = DirStore::open(root.path()).get(&compiled.header.key);
    assert!(matches!(found, Lookup::Hit(_, Tier::Disk)));
}

/// Set for a child process: the directory it dies in.
const DIE_IN: &str = "SKILLGRAFT_TEST_DIE_IN";

/// The child of the next test. Run by itself it has nothing to do.
#[test]
fn child_dies_while_writing() {
    if let Some(root) = std::env::var_os(DIE_IN) {
        FaultyDisk::store(Path::new(&root), Fault::ExitAt(1000)).put(block(4, KvDtype::F16, 7));
        unreachable!("the disk ends the process");
    }
}

#[test]
fn a_process_that_dies_while_writing_leaves_no_block() {
    let root = root();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dir::tests::child_dies_while_writing"])
        .env(DIE_IN, root.path())
        .output()
        .unwrap();
    assert_eq!(child.status.code(), Some(DIED), "{child:?}");
    let left = file_names(root.path());
    assert_eq!(left.len(), 1, "the child left a half-written file");
    let left = root.path().join(&left[0]);
    assert_eq!(fs::metadata(&left).unwrap().len(), 1000);

    let compiled = block(4, KvDtype::F16, 7);
    let store = DirStore::open(root.path());
    assert_eq!(miss(&store, &compiled.header.key), MissReason::Absent);
    assert_eq!(store.entries().unwrap().len(), 0);
    assert!(left.exists(), "a young file may belong to a living process");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    File::options().append(true).open(&left).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(store.put(compiled.clone()).kept, Kept::OnDisk);
    drop(store);

    let store = DirStore::open(root.path());
    assert!(!left.exists(), "a stale file is removed");
    assert!(matches!(store.get(&compiled.header.key), Lookup::Hit(_, Tier::Disk)));
}

#[test]
fn a_root_that_cannot_be_made_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let root = file.path().join("blocks");
    let store = DirStore::open(&root);
    let degraded = store.degraded().unwrap();
    assert!(degraded.contains(root.to_str().unwrap()), "{degraded}");
    assert!(degraded.starts_with("cannot create directory"), "{degraded}");

    let compiled = block(5, KvDtype::F16, 3);
    assert_eq!(miss(&store, &compiled.header.key), MissReason::Absent);
    let stored = store.put(compiled.clone());
    assert_eq!(stored.kept, Kept::InMemory { reason: degraded.to_owned() });
    assert_eq!(store.stats().write_failures, 1);
    assert!(matches!(store.get(&compiled.header.key), Lookup::Hit(_, Tier::Memory)));
}

#[test]
#[cfg(unix)]
fn a_read_only_root_is_told_and_still_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = root();
    let (there, new) = (block(6, KvDtype::F16, 3), block(7, KvDtype::F16, 3));
    DirStore::open(root.path()).put(there.clone());
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let store = DirStore::open(root.path());
    let (found, kept) = (store.get(&there.header.key), store.put(new).kept);
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();

    assert!(matches!(found, Lookup::Hit(_, Tier::Disk)));
    let Some(degraded) = store.degraded() else {
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("SKIPPED: this user may write to read-only directories");
        }
        assert_eq!(kept, Kept::OnDisk);
        return;
    };
    assert!(degraded.contains(root.path().to_str().unwrap()), "{degraded}");
    assert_eq!(kept, Kept::InMemory { reason: degraded.to_owned() });
}

/// A directory in which no user can create a file, not even root.
#[test]
#[cfg(target_os = "linux")]
fn a_file_system_that_takes_no_files_is_told() {
    let store = DirStore::open("/proc");
    assert!(store.degraded().is_some_and(|reason| reason.contains("`/proc`")));
    let stored = store.put(block(8, KvDtype::F16, 3));
    assert!(matches!(stored.kept, Kept::InMemory { .. }));
}

#[test]
#[cfg(unix)]
fn blocks_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = root();
    let store = DirStore::open(dir.path().join("a").join("b"));
    let compiled = block(9, KvDtype::F16, 3);
    store.put(compiled.clone());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&store.path(&compiled.header.key)), 0o600);
    assert_eq!(mode(store.root()), 0o700);
    assert_eq!(mode(&dir.path().join("a")), 0o700);
}

/// A bad file is a miss of the right kind, and the next `put` replaces it.
#[track_caller]
fn check_bad_file(file: &[u8], key: &BlockKey, expected: MissReason) {
    let root = root();
    let store = DirStore::open(root.path());
    fs::write(store.path(key), file).unwrap();
    assert_eq!(miss(&store, key), expected);
    assert_eq!(store.stats().misses[&expected], 1);

    let mut compiled = block(10, KvDtype::F16, 5);
    compiled.header.key = *key;
    assert_eq!(store.put(compiled.clone()).kept, Kept::OnDisk);
    let Lookup::Hit(found, Tier::Disk) = DirStore::open(root.path()).get(key) else {
        panic!("the bad file was not replaced")
    };
    assert_eq!(bits(&**found.get()), bits(&compiled));
}

#[test]
fn bad_files_are_misses_by_reason() {
    let compiled = block(11, KvDtype::F32, 7);
    let (file, key) = (file_of(&compiled), compiled.header.key);
    for len in [0, 7, 8, 100, file.len() - 1] {
        check_bad_file(&file[..len], &key, MissReason::Damaged);
    }
    check_bad_file(&[&file[..], b"\0"].concat(), &key, MissReason::Damaged);
    check_bad_file(b"#!/bin/sh\necho not a block\n", &key, MissReason::Damaged);
    let zeros = vec![0; file.len()];
    check_bad_file(&zeros, &key, MissReason::Damaged);
    check_bad_file(&file_of(&block(12, KvDtype::F32, 7)), &key, MissReason::Foreign);

    let mut newer = file;
    let version = b"\"format\":\"1\"";
    let start = newer.windows(version.len()).position(|bytes| bytes == version).unwrap();
    newer[start + version.len() - 2] = b'2';
    check_bad_file(&newer, &key, MissReason::OtherVersion);
}

#[test]
fn a_directory_in_the_place_of_a_block_is_unreadable() {
    let root = root();
    let store = DirStore::open(root.path());
    let compiled = block(13, KvDtype::F16, 3);
    fs::create_dir(store.path(&compiled.header.key)).unwrap();
    assert_eq!(miss(&store, &compiled.header.key), MissReason::Unreadable);
    let stored = store.put(compiled.clone());
    let Kept::InMemory { reason } = stored.kept else { panic!("a directory was replaced") };
    assert!(reason.contains(".safetensors"), "{reason}");
    assert!(store.entries().unwrap()[0].header.is_err());
}

/// What can happen to a file at rest.
#[derive(Debug, Clone)]
enum Damage {
    Flip { at: usize, bit: u8 },
    Truncate { at: usize },
    Overwrite { at: usize, bytes: Vec<u8> },
    Insert { at: usize, bytes: Vec<u8> },
    Remove { at: usize, len: usize },
}

impl Damage {
    fn apply(&self, file: &mut Vec<u8>) {
        let place = |at: &usize| at % file.len();
        match self {
            Damage::Flip { at, bit } => {
                let at = place(at);
                file[at] ^= 1 << bit;
            }
            Damage::Truncate { at } => file.truncate(place(at)),
            Damage::Overwrite { at, bytes } => {
                let at = place(at);
                for (old, new) in file[at..].iter_mut().zip(bytes) {
                    *old = *new;
                }
            }
            Damage::Insert { at, bytes } => {
                let at = place(at);
                file.splice(at..at, bytes.iter().copied());
            }
            Damage::Remove { at, len } => {
                let at = place(at);
                let end = (at + len).min(file.len());
                file.drain(at..end);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    // The header's length and the JSON come first and deserve as many cases as
    // the tensors.
    let at = || prop_oneof![0usize..8, 0usize..2000, any::<usize>()];
    let bytes = || prop::collection::vec(any::<u8>(), 1..90);
    prop_oneof![
        3 => (at(), 0u8..8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        1 => at().prop_map(|at| Damage::Truncate { at }),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Damage::Overwrite { at, bytes }),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Damage::Insert { at, bytes }),
        1 => (at(), 1usize..90).prop_map(|(at, len)| Damage::Remove { at, len }),
    ]
}

proptest! {
    /// Whatever happens to a file, it is never used as another block.
    #[test]
    fn damage_never_reaches_the_caller(
        damage in damage(),
        n_tokens in 1usize..9,
        is_f32 in any::<bool>(),
    ) {
        let dtype = if is_f32 { KvDtype::F32 } else { KvDtype::F16 };
        let compiled = block(14, dtype, n_tokens);
        let mut file = file_of(&compiled);
        damage.apply(&mut file);
        let root = root();
        let store = DirStore::open(root.path());
        fs::write(store.path(&compiled.header.key), &file).unwrap();
        match store.get(&compiled.header.key) {
            Lookup::Miss(reason) => prop_assert!(reason != MissReason::Absent),
            Lookup::Hit(found, _) => {
                prop_assert_eq!(found.header(), &compiled.header);
                prop_assert_eq!(bits(&**found.get()), bits(&compiled));
            }
        }
    }
}

#[test]
fn a_long_header_is_read() {
    let mut compiled = block(15, KvDtype::F16, 2000);
    for token in &mut compiled.header.tokens {
        *token = TokenId(u32::MAX - token.0);
    }
    let root = root();
    assert_eq!(DirStore::open(root.path()).put(compiled.clone()).kept, Kept::OnDisk);
    let Lookup::Hit(found, Tier::Disk) = DirStore::open(root.path()).get(&compiled.header.key)
    else {
        panic!("not found")
    };
    assert_eq!(*found.header(), compiled.header);
}
