//! Two processes that pull the same model at once fetch it once.
//!
//! The test starts itself twice as a child process. The server on the loopback
//! interface holds the second half of the file back until one child has said
//! that it waits for the other, so the two are known to overlap.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use skillgraft::models::{HubSource, KnownModel, ModelStore, Origin, Progress, Support};

/// Set for a child process to the cache folder that it shall pull into.
const CHILD_DIR: &str = "SKILLGRAFT_TEST_MODELS_CHILD_DIR";

/// Far more than any step takes; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

const CONTENT: &[u8] = b"GGUF, a very small model";

static MODELS: &[KnownModel] = &[KnownModel {
    id: "small",
    title: "Small",
    license: "MIT",
    family: "llama",
    file_name: "Small.gguf",
    bytes: CONTENT.len() as u64,
    sha256: "dca13becda724d1524ea31a534e38825ef5cb60ef916b29dfa1850c75c4eee71",
    support: Support::Supported,
    sources: &[&HubSource { repo: "owner/name", revision: "c0ffee", file: "small.gguf" }],
}];

/// Does nothing as a test; in a child process it pulls and tells how it goes.
#[test]
fn child_process() {
    let Ok(dir) = env::var(CHILD_DIR) else { return };
    // Not `println!`, which the test harness would keep to itself.
    let mut out = std::io::stdout();
    let pulled = ModelStore::with_models(&dir, MODELS).pull("small", &mut |event| {
        if let Progress::WaitingForLock { .. } = event {
            writeln!(out, "\nwaiting").unwrap();
        }
    });
    let word = match pulled.unwrap().origin {
        Origin::Cache => "found",
        Origin::Source(_) => "fetched",
    };
    writeln!(std::io::stdout(), "\n{word}").unwrap();
}

fn start_child(dir: &Path, endpoint: &str, lines: mpsc::Sender<String>) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child_process", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env("HF_ENDPOINT", endpoint)
        // Nothing stands between this machine and itself.
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .env_remove("HF_HUB_OFFLINE")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    child
}

/// Sends half of the file, and the rest once `go` says so. Every request is
/// reported to `requests`.
fn serve(listener: &TcpListener, requests: &mpsc::Sender<String>, go: &mpsc::Receiver<()>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut head = [0; 4096];
        let n = stream.read(&mut head).unwrap();
        let line = String::from_utf8_lossy(&head[..n]).lines().next().unwrap().to_owned();
        requests.send(line).unwrap();
        let head = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            CONTENT.len()
        );
        let (first, second) = CONTENT.split_at(CONTENT.len() / 2);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(first).unwrap();
        if go.recv_timeout(PATIENCE).is_err() {
            return;
        }
        stream.write_all(second).unwrap();
    }
}

#[test]
fn the_second_process_waits_and_finds_what_the_first_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (request_sender, requests) = mpsc::channel();
    let (go, go_receiver) = mpsc::channel();
    thread::spawn(move || serve(&listener, &request_sender, &go_receiver));

    let (line_sender, lines) = mpsc::channel();
    let mut children = [(); 2].map(|()| start_child(dir.path(), &endpoint, line_sender.clone()));
    drop(line_sender);
    let request = requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(request, "GET /owner/name/resolve/c0ffee/small.gguf HTTP/1.1");
    let mut words = Vec::new();
    loop {
        let line = lines.recv_timeout(PATIENCE).expect("a child waits, then both end");
        match line.as_str() {
            "waiting" => go.send(()).unwrap(),
            "fetched" | "found" => words.push(line),
            _ => {}
        }
        if words.len() == 2 {
            break;
        }
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    words.sort();
    assert_eq!(words, ["fetched", "found"]);
    assert!(requests.try_recv().is_err(), "a second request was made");
    let file = std::fs::read(dir.path().join("models/Small.gguf")).unwrap();
    assert_eq!(file, CONTENT);
}
