//! Tests of watching: real folders, bounded waits on a channel.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, RemoveKind};

use super::{Signal, SkillWatcher, WatchEvent, WatchOptions, signal_of};
use crate::{
    Caller, Catalog, CatalogChange, ChangeKind, Origin, Root, ScanOptions, Scanner, SkillSession,
};

/// Longest wait for an event: a busy machine may take its time.
const WAIT: Duration = Duration::from_secs(30);

fn write(root: &Path, name: &str, body: &str) {
    let folder = root.join(name);
    fs::create_dir_all(&folder).unwrap();
    let text = format!("---\nname: {name}\ndescription: Does {name}.\n---\n{body}\n");
    // As editors do: another file takes the place of the old one.
    let other = folder.join(".SKILL.md.swp");
    fs::write(&other, text).unwrap();
    fs::rename(other, folder.join("SKILL.md")).unwrap();
}

fn watch(root: Root, options: WatchOptions) -> (SkillWatcher, Catalog, Receiver<WatchEvent>) {
    let mut scanner = Scanner::new(vec![root], ScanOptions::default());
    let known = scanner.scan().unwrap();
    let (send, events) = channel();
    let watcher = SkillWatcher::start(scanner, known.clone(), options, move |event| {
        let _ = send.send(event);
    });
    (watcher, known, events)
}

fn quick(always_poll: bool) -> WatchOptions {
    WatchOptions {
        quiet: Duration::from_millis(20),
        poll: Duration::from_millis(20),
        always_poll,
        ..WatchOptions::default()
    }
}

/// Takes events until all of `expected` have come, in this order.
fn expect(events: &Receiver<WatchEvent>, expected: &[(&str, ChangeKind)]) -> Catalog {
    let until = Instant::now() + WAIT;
    let mut got: Vec<(String, ChangeKind)> = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let event = events.recv_timeout(left).unwrap_or_else(|_| panic!("only {got:?}"));
        let WatchEvent::Reload { catalog, changes } = event else { continue };
        got.extend(changes.into_iter().map(|CatalogChange { id, kind, .. }| (id, kind)));
        if got.len() >= expected.len() {
            let got: Vec<_> = got.iter().map(|(id, kind)| (id.as_str(), *kind)).collect();
            assert_eq!(got, expected);
            return catalog;
        }
    }
}

fn edits_are_noticed(always_poll: bool) {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a", "OLD");
    write(root.path(), "z", "Body.");
    let (_watcher, known, events) = watch(Root::given(root.path()), quick(always_poll));
    let mut session = SkillSession::new(known.clone(), known.render());
    session.activate("a", Caller::Model, 1).unwrap();
    let before = session.catalog_text().to_owned();

    let body = ChangeKind::Changed { front_matter_only: false };
    write(root.path(), "a", "NEW");
    let catalog = expect(&events, &[("a", body)]);
    let (_, told) = session.refresh(catalog);
    assert!(told.unwrap().contains("- Changed: a"));
    let again = session.activate("a", Caller::Model, 2).unwrap().text().unwrap();
    assert_eq!(again.body, "NEW\n");

    let text = "---\nname: a\ndescription: Does more.\n---\nNEW\n";
    fs::write(root.path().join("a/SKILL.md"), text).unwrap();
    expect(&events, &[("a", ChangeKind::Changed { front_matter_only: true })]);
    write(root.path(), "b", "Body.");
    expect(&events, &[("b", ChangeKind::Added)]);
    write(root.path(), "b", "Other.");
    expect(&events, &[("b", body)]);
    fs::remove_dir_all(root.path().join("z")).unwrap();
    let catalog = expect(&events, &[("z", ChangeKind::Removed)]);
    session.refresh(catalog);
    assert!(session.activate("z", Caller::Model, 3).is_err());
    assert_eq!(session.catalog_text(), before, "the prefix stays");
}

#[test]
fn edits_are_noticed_by_watching() {
    edits_are_noticed(false);
}

#[test]
fn edits_are_noticed_by_polling() {
    edits_are_noticed(true);
}

#[test]
fn a_folder_that_is_replaced_is_still_watched() {
    let root = tempfile::tempdir().unwrap();
    let apart = tempfile::tempdir_in(root.path().parent().unwrap()).unwrap();
    write(root.path(), "a", "1");
    let (_watcher, _, events) = watch(Root::given(root.path()), quick(false));
    write(apart.path(), "a", "2");
    fs::rename(root.path().join("a"), apart.path().join("old")).unwrap();
    fs::rename(apart.path().join("a"), root.path().join("a")).unwrap();
    let body = ChangeKind::Changed { front_matter_only: false };
    // The moment between the two renames may be seen or not.
    let until = Instant::now() + WAIT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if let WatchEvent::Reload { catalog, .. } = events.recv_timeout(left).unwrap()
            && catalog.skills().first().is_some_and(|skill| skill.body == "2\n")
        {
            break;
        }
    }
    write(root.path(), "a", "3");
    expect(&events, &[("a", body)]);
}

#[test]
fn a_root_that_comes_later_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".agents/skills");
    let (_watcher, known, events) =
        watch(Root { path: path.clone(), origin: Origin::User }, quick(false));
    assert!(known.is_empty());
    write(&path, "a", "Body.");
    let catalog = expect(&events, &[("a", ChangeKind::Added)]);
    assert_eq!(catalog.len(), 1);
}

#[test]
fn a_half_written_file_is_told_and_recovers() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a", "OLD");
    let (_watcher, _, events) = watch(Root::given(root.path()), quick(false));
    fs::write(root.path().join("a/SKILL.md"), "---\nname: a").unwrap();
    let catalog = expect(&events, &[("a", ChangeKind::Removed)]);
    assert_eq!(catalog.omitted().count(), 1);
    write(root.path(), "a", "NEW");
    expect(&events, &[("a", ChangeKind::Added)]);
}

#[test]
fn only_what_may_change_something_counts() {
    let event = |kind| signal_of(Ok(notify::Event::new(kind).add_path("x".into())));
    assert!(event(EventKind::Access(AccessKind::Open(AccessMode::Read))).is_none());
    let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
    assert!(matches!(event(closed), Some(Signal::Changed)));
    assert!(matches!(event(EventKind::Create(CreateKind::File)), Some(Signal::Changed)));
    let removed = event(EventKind::Remove(RemoveKind::Folder));
    assert!(matches!(removed, Some(Signal::Moved(paths)) if paths == [Path::new("x")]));
    let lost = notify::Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
    assert!(matches!(signal_of(Ok(lost)), Some(Signal::Changed)));
}
