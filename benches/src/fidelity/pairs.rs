//! Real edits: two versions of a skill's file, and how far a text that was edited in
//! its place is from a full prefill of the new one.
//!
//! A real edit has no question with a known answer. So the context goes on with a
//! question about the first line that has changed, and is compared along full
//! prefill's own answer to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skillgraft::Prompts;
use skillgraft::skills::parse;
use skillgraft_engine::{Hunk, Interrupt, Session, arg_max, hunks};
use skillgraft_kv::TokenId;

use super::case::force;
use super::edits::behind;
use super::evalset::EvalSet;
use super::layout::{Layout, SkillTokens};
use crate::divergence::divergence;
use crate::error::Error;
use crate::report::{PairMethod, PairsReport};
use crate::subject::Subject;
use crate::watch::Watch;

/// Files of pairs are `NAME.old.md` and `NAME.new.md`.
const OLD: &str = ".old.md";
const NEW: &str = ".new.md";
/// Texts above this are left out, and counted: a prefill for each of them takes long.
const N_TOKENS_MAX: usize = 1500;
/// Length of the answers along which contexts are compared.
const N_ANSWER: usize = 48;
/// Words of a changed line that the question names.
const N_WORDS: usize = 8;

/// The two versions of a skill.
struct Pair {
    old: SkillTokens,
    new: SkillTokens,
    hunks: Vec<Hunk>,
    question: Vec<TokenId>,
}

/// Measures pairs, given by their old files.
///
/// # Errors
/// [`Error::Io`] when a file cannot be read; when the watch ends it.
pub(super) fn pairs(
    subject: &Subject,
    set: &EvalSet,
    files: &[PathBuf],
    watch: &mut Watch<'_>,
) -> Result<PairsReport, Error> {
    let layout = Layout::new(subject.model.tokenizer(), set);
    let mut base = Session::new(Arc::clone(&subject.model));
    base.prefill(&layout.prefix()?, "prefix", &watch.interrupt())?;
    base.prefill(&layout.markup("<|im_start|>user\n")?, "opening", &watch.interrupt())?;
    let mut report = PairsReport { pairs: files.len(), ..PairsReport::default() };
    let mut shares = Vec::new();
    let (mut nothing, mut patch) = (PairMethod::default(), PairMethod::default());
    for (done, old) in files.iter().enumerate() {
        watch.step(&format!("pair {} of {}", done + 1, files.len()))?;
        let Some(pair) = read(&layout, subject, old)? else {
            report.body_is_equal += 1;
            continue;
        };
        let n_tokens = pair.new.block.len();
        if !Prompts::edits_in_place(&pair.hunks, n_tokens) {
            report.brought_in_again += 1;
            continue;
        }
        report.edited_in_place += 1;
        let n_computed: usize = pair.hunks.iter().map(|hunk| hunk.new.len()).sum();
        shares.push(n_computed as f64 / n_tokens as f64);
        if n_tokens.max(pair.old.block.len()) > N_TOKENS_MAX {
            report.too_long += 1;
            continue;
        }
        compare(&base, &pair, [&mut nothing, &mut patch], &watch.interrupt())?;
    }
    report.recomputed_share = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    report.nothing = nothing.mean();
    report.patch = patch.mean();
    Ok(report)
}

/// The old files of a folder that have a new one beside them, sorted; never none.
///
/// # Errors
/// [`Error::Io`] when the folder cannot be read, [`Error::NoPairs`].
pub(super) fn pair_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Io { action: "read", path: folder.to_owned(), source };
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        if path.to_string_lossy().ends_with(OLD) && new_of(&path).exists() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Error::NoPairs { folder: folder.to_owned() });
    }
    files.sort();
    Ok(files)
}

fn new_of(old: &Path) -> PathBuf {
    old.to_string_lossy().replace(OLD, NEW).into()
}

/// Both versions; `None` when only the front matter differs, or one is no skill.
fn read(layout: &Layout<'_>, subject: &Subject, old: &Path) -> Result<Option<Pair>, Error> {
    let body = |path: &Path| {
        let bytes = std::fs::read(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        Ok::<_, Error>(parse(&bytes, path).ok().map(|parsed| parsed.skill.body))
    };
    let (Some(before), Some(after)) = (body(old)?, body(&new_of(old))?) else { return Ok(None) };
    if before == after {
        return Ok(None);
    }
    let (old, new) = (layout.skill("skill", before)?, layout.skill("skill", after)?);
    let hunks = hunks(subject.model.tokenizer(), &old.block, &new.block)?;
    let lines = Prompts::new(&subject.model).changed_lines(&new.body, &hunks)?;
    let words: Vec<&str> =
        lines.first().map_or("", |line| line).split_whitespace().take(N_WORDS).collect();
    let asked = format!("\nWhat does the skill say about \"{}\"? Quote it.", words.join(" "));
    let mut question = layout.words(&asked)?;
    question.extend(layout.markup("<|im_end|>\n<|im_start|>assistant\n")?);
    Ok(Some(Pair { old, new, hunks, question }))
}

/// Adds a pair to what doing nothing and patching give.
fn compare(
    base: &Session,
    pair: &Pair,
    methods: [&mut PairMethod; 2],
    interrupt: Interrupt<'_>,
) -> Result<(), Error> {
    let Pair { old, new, hunks, question } = pair;
    let ask = |session: &mut Session, closing: &[TokenId]| {
        let rest = [closing, question].concat();
        let logits = session.prefill(&rest, "question", interrupt)?;
        Ok::<_, Error>(logits.expect("a question has tokens"))
    };
    let mut full = base.branch();
    full.prefill(&new.header, "header", interrupt)?;
    let mut grafted = full.branch();
    full.prefill(&new.block, "skill", interrupt)?;
    let first = ask(&mut full, &new.closing)?;
    let (mut answer, mut logits, mut session) = (Vec::new(), first.clone(), full.branch());
    while answer.len() < N_ANSWER {
        answer.push(arg_max(&logits));
        let last = &answer[answer.len() - 1..];
        logits = session.prefill(last, "answer", interrupt)?.expect("one token gives logits");
    }
    let expected = force(&full, &first, &answer)?;

    let start = grafted.end();
    grafted.graft(behind(&grafted, &old.block, interrupt)?, "skill")?;
    for (is_patched, method) in [false, true].into_iter().zip(methods) {
        let mut session = grafted.branch();
        if is_patched {
            session.patch(start, hunks, &new.block, interrupt)?;
        }
        let first = ask(&mut session, &new.closing)?;
        let found = force(&session, &first, &answer)?;
        for (expected, found) in expected.iter().zip(&found) {
            let position = divergence(expected, found);
            method.positions += 1;
            method.kl_mean += position.kl;
            method.top1 += f64::from(u8::from(position.same_top1));
        }
    }
    Ok(())
}
