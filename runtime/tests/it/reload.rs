//! Skills that change while a conversation is open.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use skillgraft::kv::AnchorKind;
use skillgraft::skills::{CatalogChange, ChangeKind, Root, WatchOptions, scan};
use skillgraft::store::MemoryStore;
use skillgraft::{Conversation, Runtime, SkillEvent, SkillWatch, TurnOptions, TurnReport, Warmed};
use tempfile::TempDir;

use crate::model;

/// Far longer than any of it takes: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

struct Setting {
    folder: TempDir,
    runtime: Arc<Runtime>,
    events: Receiver<SkillEvent>,
    _watch: SkillWatch,
}

impl Setting {
    /// A runtime that watches a folder with skills for tea and coffee.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write(folder.path(), "tea", "Brew tea.", "Steep sencha for 90 seconds.");
        write(folder.path(), "coffee", "Brew coffee.", "Grind 18 grams of beans.");
        let catalog = scan(&[folder.path().to_owned()]).expect("it can be scanned");
        let store = Arc::new(MemoryStore::new());
        let runtime = Runtime::with_parts(model::as_shipped(), "default", store, catalog, None);
        let runtime = Arc::new(runtime.with_roots(vec![Root::given(folder.path())]));
        let (tell, events) = channel();
        let options = WatchOptions { quiet: Duration::from_millis(20), ..WatchOptions::default() };
        let watch = runtime.watch(options, move |event| {
            let _ = tell.send(event);
        });
        Setting { folder, runtime, events, _watch: watch.expect("there are folders to watch") }
    }

    fn next(&self) -> SkillEvent {
        self.events.recv_timeout(PATIENCE).expect("a change is noticed")
    }

    /// Waits for a block that is compiled in the background.
    fn warmed(&self) -> Warmed {
        match self.next() {
            SkillEvent::Warmed(warmed) => warmed,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for changes of these skills, which may come in several steps.
    fn changes(&self, ids: &[&str]) -> Vec<CatalogChange> {
        let mut all = Vec::new();
        while !ids.iter().all(|id| all.iter().any(|change: &CatalogChange| change.id == *id)) {
            if let SkillEvent::Changed(changes) = self.next() {
                all.extend(changes);
            }
        }
        all
    }
}

fn write(folder: &Path, name: &str, description: &str, body: &str) {
    let text = format!("---\nname: {name}\ndescription: {description}\n---\n{body}\n");
    std::fs::create_dir_all(folder.join(name)).expect("a folder can be made");
    // As editors save: a new file takes the place of the old one.
    let draft = folder.join(name).join(".draft");
    std::fs::write(&draft, text).expect("a file can be written");
    std::fs::rename(draft, folder.join(name).join("SKILL.md")).expect("it can be renamed");
}

fn ask(conversation: &mut Conversation, prompt: &str) -> TurnReport {
    let options = TurnOptions { max_tokens: 4, ..TurnOptions::default() };
    let report = conversation.run_turn(prompt, &options, &mut |_| ControlFlow::Continue(()));
    report.expect("the turn works")
}

fn text(conversation: &Conversation) -> String {
    let session = conversation.session();
    session.model().tokenizer().decode(session.tokens()).expect("it decodes")
}

#[test]
fn an_edited_skill_is_edited_in_place_and_told_at_the_tail() {
    let setting = Setting::new();
    let mut conversation = setting.runtime.conversation().expect("it opens");
    let first = ask(&mut conversation, "How long do I steep sencha?");
    assert_eq!((first.activations[0].name.as_str(), &first.update), ("tea", &None));
    let before = conversation.session().tokens().to_vec();
    let prefix = conversation.ledger().segments()[0].clone();
    // The first use has kept its block; the one for other contexts follows.
    let warmed = setting.warmed();
    assert_eq!((warmed.name.as_str(), warmed.anchor), ("tea", AnchorKind::Neutral));

    write(setting.folder.path(), "tea", "Brew tea.", "Steep sencha for 75 seconds.");
    let changes = setting.changes(&["tea"]);
    assert_eq!(changes[0].kind, ChangeKind::Changed { front_matter_only: false });
    let warmed = setting.warmed();
    assert_eq!((warmed.name.as_str(), warmed.was_there), ("tea", false));
    // One that will do was made from the earlier one, before the whole was compiled.
    assert!(warmed.edited_ms.is_some_and(|after| after < warmed.ms), "{warmed:?}");

    // The request is not about tea: the text that has changed is edited all the
    // same, since the old one would be believed.
    let second = ask(&mut conversation, "Thank you!");
    let update = second.update.as_deref().expect("the model is told");
    assert_eq!(update, "[SKILL UPDATE] tea: Steep sencha for 75 seconds.\n");
    assert_eq!(second.activations.len(), 0);
    let [patch] = &second.patched[..] else { panic!("{:?}", second.patched) };
    assert_eq!((patch.name.as_str(), patch.hunks, patch.told), ("tea", 1, true));
    assert!(patch.recomputed_tokens < patch.tokens, "{patch:?}");
    assert_eq!(conversation.ledger().segments()[0], prefix, "the prefix is what it was");
    let text = text(&conversation);
    assert!(!text.contains("90 seconds") && text.matches("75 seconds").count() >= 2, "{text}");
    assert!(conversation.session().tokens().len() > before.len());

    let third = ask(&mut conversation, "How long do I steep $tea?");
    assert_eq!((third.update, third.activations.len()), (None, 0));
    assert_eq!(third.already[0].name, "tea");
}

#[test]
fn a_skill_that_is_written_anew_is_brought_in_again() {
    let setting = Setting::new();
    let long = |what: &str| {
        let line = |n| format!("{what} number {n} is to be done with care and patience.");
        (1..9).map(line).collect::<Vec<_>>().join("\n")
    };
    write(setting.folder.path(), "tea", "Brew tea.", &long("Step"));
    setting.changes(&["tea"]);
    let mut conversation = setting.runtime.conversation().expect("it opens");
    ask(&mut conversation, "What is in $tea?");
    let before = conversation.session().tokens().to_vec();

    write(setting.folder.path(), "tea", "Brew tea.", &long("Another rule of the house"));
    setting.changes(&["tea"]);
    let second = ask(&mut conversation, "Thank you!");
    assert_eq!(second.update.as_deref(), Some("[SKILLS UPDATE]\n- Changed: tea: Brew tea.\n"));
    assert_eq!((second.activations.len(), second.patched.len()), (1, 0));
    assert_eq!(conversation.session().tokens()[..before.len()], before[..], "nothing is redone");
}

#[test]
fn a_turn_that_fails_leaves_an_edited_skill_as_it_was() {
    let setting = Setting::new();
    let mut conversation = setting.runtime.conversation().expect("it opens");
    ask(&mut conversation, "How long do I steep sencha?");
    write(setting.folder.path(), "tea", "Brew tea.", "Steep sencha for 75 seconds.");
    setting.changes(&["tea"]);
    let (tokens, ledger) =
        (conversation.session().tokens().to_vec(), conversation.ledger().clone());
    let options = TurnOptions::default();
    options.stop.stop();
    let failed = conversation.run_turn("Thank you!", &options, &mut |_| ControlFlow::Continue(()));
    assert!(failed.is_err());
    assert_eq!((conversation.session().tokens(), conversation.ledger()), (&tokens[..], &ledger));
    assert_eq!(ask(&mut conversation, "Thank you!").patched.len(), 1);
}

#[test]
fn added_renamed_and_deleted_skills_are_told_and_the_catalog_stays() {
    let setting = Setting::new();
    let folder = setting.folder.path();
    let mut conversation = setting.runtime.conversation().expect("it opens");
    let catalog = conversation.skills().catalog_text().to_owned();
    let before = conversation.session().tokens().to_vec();

    write(folder, "soup", "Cook soup.", "Simmer leeks for 25 minutes.");
    std::fs::rename(folder.join("coffee"), folder.join("mocha")).expect("it can be renamed");
    write(folder, "mocha", "Brew mocha.", "Grind 18 grams of beans.");
    std::fs::remove_dir_all(folder.join("tea")).expect("it can be removed");
    setting.changes(&["coffee", "mocha", "soup", "tea"]);

    let report = ask(&mut conversation, "How long do leeks simmer?");
    assert_eq!(report.activations[0].name, "soup");
    assert_eq!(
        report.update.as_deref(),
        Some(
            "[SKILLS UPDATE]\n- Removed: coffee\n- Added: mocha: Brew mocha.\n\
             - Added: soup: Cook soup.\n- Removed: tea\n"
        )
    );
    assert_eq!(conversation.skills().catalog_text(), catalog);
    assert_eq!(conversation.session().tokens()[..before.len()], before[..]);
    // The next conversation starts with the new catalog.
    let next = setting.runtime.conversation().expect("it opens");
    assert_eq!(next.skills().catalog_text(), "- mocha: Brew mocha.\n- soup: Cook soup.\n");
}

#[test]
fn front_matter_alone_leaves_the_block_valid() {
    let setting = Setting::new();
    let mut conversation = setting.runtime.conversation().expect("it opens");
    ask(&mut conversation, "How long do I steep sencha?");
    assert_eq!(setting.warmed().anchor, AnchorKind::Neutral);
    write(setting.folder.path(), "tea", "Brew green tea.", "Steep sencha for 90 seconds.");
    let changes = setting.changes(&["tea"]);
    assert_eq!(changes[0].kind, ChangeKind::Changed { front_matter_only: true });
    let report = ask(&mut conversation, "How long do I steep $tea?");
    assert!(report.update.is_some_and(|update| update.contains("- Changed: tea: Brew green tea.")));
    assert_eq!((report.activations.len(), report.already.len()), (0, 1));
    // Another conversation uses the block that was compiled for the old file.
    let mut other = setting.runtime.conversation().expect("it opens");
    let report = ask(&mut other, "How long do I steep sencha?");
    assert_eq!((report.activations[0].block, report.activations[0].anchor), ("memory", "neutral"));
}
