use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;
use crate::models::fetch::ModelStore;
use crate::models::testing::{FILE_NAME, Fake, content, files, leak, pull, refusals, store};

const HUB: HubSource = HubSource { repo: "owner/name", revision: "c0ffee", file: "weights.gguf" };
const PATH: &str = "/owner/name/resolve/c0ffee/weights.gguf";

/// What the server was asked: path and lower-case header names.
#[derive(Debug, Clone)]
struct Asked {
    path: String,
    headers: BTreeMap<String, String>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What it answers. With `cut`, it closes the connection after so many bytes
/// of the body.
#[derive(Debug, Clone)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    cut: Option<usize>,
}

fn answer(status: u16, body: &[u8]) -> Answer {
    Answer { status, headers: Vec::new(), body: body.to_vec(), cut: None }
}

impl Answer {
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn cut_after(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }
}

/// A server on the loopback interface that gives these answers in order, one a
/// connection, and then refuses connections.
struct Server {
    endpoint: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                serve(stream, &answer, &log);
            }
        });
        Server { endpoint, asked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answer: &Answer, log: &Mutex<Vec<Asked>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        })
        .collect();
    log.lock().unwrap().push(Asked { path, headers });
    let mut head = format!(
        "HTTP/1.1 {} Because\r\nconnection: close\r\ncontent-length: {}\r\n",
        answer.status,
        answer.body.len()
    );
    let more = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    head.extend(more);
    head.push_str("\r\n");
    let sent = answer.cut.unwrap_or(answer.body.len());
    // The client may have hung up already: a refusal by length does.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&answer.body[..sent]);
}

/// A hub source that takes nothing from the environment.
struct Local(HubAccess);

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.endpoint)
    }
}

impl ModelSource for Local {
    fn label(&self) -> String {
        HUB.label()
    }

    fn fetch(&self, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        HUB.fetch_with(&self.0, draft)
    }
}

fn local(endpoint: &str) -> &'static Local {
    leak(Local(HubAccess {
        endpoint: endpoint.to_owned(),
        token: None,
        offline: false,
        proxy: None,
    }))
}

fn store_of(cache: &Path, bytes: &[u8], endpoint: &str) -> ModelStore {
    store(cache, bytes, vec![local(endpoint)])
}

/// Pulls once from a server with these answers and returns why it was refused.
fn refusal(bytes: &[u8], answers: Vec<Answer>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(answers);
    let store = store_of(dir.path(), bytes, &server.endpoint);
    let (result, events) = pull(&store);
    assert!(result.is_err());
    assert_eq!(files(&store), Vec::<String>::new());
    refusals(&events)[0].replace(&server.endpoint, "ENDPOINT")
}

#[test]
fn a_file_is_fetched_from_the_pinned_revision() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(500_009);
    let server = Server::start(vec![answer(200, &bytes)]);
    let store = store_of(dir.path(), &bytes, &server.endpoint);
    let path = pull(&store).0.unwrap().path;
    assert_eq!(std::fs::read(path).unwrap(), bytes);
    let asked = server.asked();
    assert_eq!(asked[0].path, PATH);
    assert_eq!(asked[0].header("accept-encoding"), Some("identity"));
    assert_eq!((asked[0].header("range"), asked[0].header("authorization")), (None, None));
}

/// An answer with the bytes from `from` on.
fn rest(bytes: &[u8], from: usize) -> Answer {
    let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
    answer(206, &bytes[from..]).with("content-range", range).with("etag", "\"v1\"")
}

#[test]
fn a_broken_transfer_is_continued_in_the_same_pull() {
    let bytes = content(300_017);
    for cut in [1, 131_071, 131_072, 150_000, 300_016] {
        let dir = tempfile::tempdir().unwrap();
        let first = answer(200, &bytes).with("etag", "\"v1\"").cut_after(cut);
        let server = Server::start(vec![first, rest(&bytes, cut)]);
        let store = store_of(dir.path(), &bytes, &server.endpoint);
        let path = pull(&store).0.unwrap().path;
        assert_eq!(std::fs::read(path).unwrap(), bytes);
        assert_eq!(files(&store), [FILE_NAME]);
        let second = &server.asked()[1];
        assert_eq!(second.header("range"), Some(format!("bytes={cut}-").as_str()));
        assert_eq!(second.header("if-range"), Some("\"v1\""));
    }
}

#[test]
fn a_later_pull_continues_what_an_earlier_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(200_003);
    let first = answer(200, &bytes).with("etag", "\"v1\"").cut_after(120_000);
    let server = Server::start(vec![first, answer(503, b""), rest(&bytes, 120_000)]);
    let store = store_of(dir.path(), &bytes, &server.endpoint);
    let (result, events) = pull(&store);
    assert!(result.is_err());
    assert!(refusals(&events)[0].ends_with("answered 503"), "{events:?}");
    assert_eq!(files(&store).len(), 2, "the part and its note stay: {:?}", files(&store));

    assert_eq!(std::fs::read(pull(&store).0.unwrap().path).unwrap(), bytes);
    assert_eq!(server.asked()[2].header("range"), Some("bytes=120000-"));
    assert_eq!(files(&store), [FILE_NAME]);
}

#[test]
fn what_cannot_be_continued_is_fetched_from_the_beginning() {
    let bytes = content(100_003);
    let cut = |etag: &str| answer(200, &bytes).with("etag", etag).cut_after(777);
    let whole = || answer(200, &bytes);
    let shifted = answer(206, &bytes[778..]).with("content-range", "bytes 778-100002/100003");
    for answers in [
        // No promise that the bytes are the same.
        vec![cut("W/\"v1\""), whole()],
        // Another file by now: the whole of it comes.
        vec![cut("\"v1\""), whole()],
        // Another range than was asked for, or none.
        vec![cut("\"v1\""), shifted, whole()],
        vec![cut("\"v1\""), answer(416, b""), whole()],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let n = answers.len();
        let server = Server::start(answers);
        let store = store_of(dir.path(), &bytes, &server.endpoint);
        assert_eq!(std::fs::read(pull(&store).0.unwrap().path).unwrap(), bytes);
        assert_eq!((server.asked().len(), files(&store).len()), (n, 1));
    }
}

#[test]
fn bad_bytes_of_an_earlier_pull_are_dropped_not_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(50_021);
    let first = answer(200, &bytes).with("etag", "\"v1\"").cut_after(30_000);
    let answers = vec![first, answer(500, b""), rest(&bytes, 30_000), answer(200, &bytes)];
    let server = Server::start(answers);
    let store = store_of(dir.path(), &bytes, &server.endpoint);
    assert!(pull(&store).0.is_err());
    let part = store.dir().join(format!(".{FILE_NAME}.part"));
    let mut left = std::fs::read(&part).unwrap();
    left[29_999] ^= 1;
    std::fs::write(&part, left).unwrap();
    let (pulled, events) = pull(&store);
    assert_eq!(std::fs::read(pulled.unwrap().path).unwrap(), bytes);
    assert!(refusals(&events).is_empty(), "{events:?}");
    assert_eq!(server.asked().len(), 4);
}

#[test]
fn refusals_are_named() {
    let bytes = content(1013);
    let url = format!("`ENDPOINT{PATH}` answered ");
    for (status, expected) in [
        (404, "404: no such file"),
        (401, "401: access denied; `HF_TOKEN` may help"),
        (429, "429: too many requests"),
        (500, "500"),
    ] {
        assert_eq!(refusal(&bytes, vec![answer(status, b"no")]), format!("{url}{expected}"));
    }
    assert_eq!(
        refusal(&bytes, vec![answer(200, &bytes[..1012])]),
        "offers a file of 1012 bytes instead of 1013"
    );
    let wrong = refusal(&bytes, vec![answer(200, &[7; 1013])]);
    assert!(wrong.starts_with("delivered a file with SHA-256 "), "{wrong}");
    let nothing = refusal(&bytes, vec![answer(200, &bytes).cut_after(0)]);
    assert!(nothing.starts_with("transfer broken after 0 of 1013 bytes: "), "{nothing}");
}

#[test]
fn a_transfer_that_keeps_breaking_ends() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(1013);
    let mut answers = vec![answer(200, &bytes).with("etag", "\"v1\"").cut_after(1)];
    answers.extend((1..10).map(|from| rest(&bytes, from).cut_after(1)));
    let server = Server::start(answers);
    let (_, events) = pull(&store_of(dir.path(), &bytes, &server.endpoint));
    assert_eq!(server.asked().len(), CONTINUATIONS_MAX + 1);
    assert!(refusals(&events)[0].ends_with("at last after 6 of 1013 bytes"), "{events:?}");
}

#[test]
fn the_next_source_is_asked_when_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(17);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let next = Fake::new("next", Ok(bytes.clone()));
    let store = store(dir.path(), &bytes, vec![local(&endpoint), next]);
    let (pulled, events) = pull(&store);
    assert!(pulled.is_ok());
    let reasons = refusals(&events);
    assert!(reasons[0].starts_with(&format!("`{endpoint}` cannot be reached: ")), "{reasons:?}");
}

#[test]
fn offline_asks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(vec![]);
    let access =
        HubAccess { endpoint: server.endpoint.clone(), token: None, offline: true, proxy: None };
    let (_, events) = pull(&store(dir.path(), b"GGUF", vec![leak(Local(access))]));
    assert_eq!(refusals(&events), ["`HF_HUB_OFFLINE` is set"]);
    assert!(server.asked().is_empty());
    assert!(["1", "True", " yes ", "on"].into_iter().all(is_true));
    assert!(!["0", "false", "no", ""].into_iter().any(is_true));
}

#[test]
fn a_redirect_keeps_the_range_and_loses_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = content(9001);
    // The same interface under another name is another host.
    let blobs = Server::start(vec![
        answer(200, &bytes).with("etag", "\"v1\"").cut_after(4000),
        rest(&bytes, 4000),
    ]);
    let elsewhere = blobs.endpoint.replace("127.0.0.1", "localhost");
    let found = || answer(302, b"").with("location", format!("{elsewhere}/blob"));
    let hub = Server::start(vec![found(), found()]);
    let token = Some("hf_secret".to_owned());
    let access = HubAccess { endpoint: hub.endpoint.clone(), token, offline: false, proxy: None };
    let store = store(dir.path(), &bytes, vec![leak(Local(access))]);
    assert_eq!(std::fs::read(pull(&store).0.unwrap().path).unwrap(), bytes);
    for asked in hub.asked() {
        assert_eq!(asked.header("authorization"), Some("Bearer hf_secret"));
    }
    let asked = blobs.asked();
    assert_eq!((asked[0].path.as_str(), asked.len()), ("/blob", 2));
    assert!(asked.iter().all(|asked| asked.header("authorization").is_none()), "{asked:?}");
    assert_eq!(asked[1].header("range"), Some("bytes=4000-"));
}
