//! What a case expects, key by key.

use std::fs;
use std::path::Path;

use serde_json::Value;
use skillgraft_skills::{
    Activation, Caller, CatalogFormat, Error, FileText, Given, Severity, Window,
};

use crate::world::World;
use crate::{Faults, one_file, steps};

/// What a case does after loading.
enum Done {
    Nothing,
    Activated(Box<Result<Given<Activation>, Error>>),
    Read(Box<Result<FileText, Error>>),
}

/// What is wrong with the outcome of a case.
pub(crate) fn compare(case: &Value, outcome: &Value, world: &mut World) -> Faults {
    let mut faults = Faults::new();
    let done = act(case, world);
    if let Some(steps) = case["steps"].as_array() {
        faults.extend(steps::run(steps, world));
    }
    let Some(keys) = outcome.as_object() else { return vec!["no outcome".to_owned()] };
    for (key, wanted) in keys {
        let is_known = one_file::compare(key, wanted, world, &mut faults)
            || in_catalog(key, wanted, world, &mut faults)
            || in_texts(key, wanted, keys, world, &mut faults)
            || after(key, wanted, &done, world, &mut faults);
        if !is_known {
            faults.push(format!("`{key}` is not understood"));
        }
    }
    faults
}

fn act(case: &Value, world: &mut World) -> Done {
    if let Some(name) = case["activate"]["name"].as_str() {
        return Done::Activated(Box::new(world.session.activate(name, Caller::User, 0)));
    }
    let (Some(skill), Some(path)) = (case["read"]["skill"].as_str(), case["read"]["path"].as_str())
    else {
        return Done::Nothing;
    };
    let number = |key: &str, otherwise: usize| {
        case["read"][key].as_u64().map_or(otherwise, |number| number as usize)
    };
    let window = Window { offset: number("offset", 1), limit: number("limit", usize::MAX) };
    let found = world.catalog.resolve(skill);
    Done::Read(Box::new(found.and_then(|at| world.catalog.get(at).read(path, window))))
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Keys about what was found.
fn in_catalog(key: &str, wanted: &Value, world: &World, faults: &mut Faults) -> bool {
    let mut listed: Vec<&str> = world.catalog.listed().map(|skill| skill.name.as_str()).collect();
    listed.sort_unstable();
    let findings = world.catalog.diagnostics();
    let has_code = |code: &str| findings.iter().any(|finding| finding.code.name() == code);
    let mut fault = |text: String| faults.push(text);
    match key {
        "catalog" if listed != strings(wanted) => fault(format!("the catalog is {listed:?}")),
        "catalog_order" => {
            let order: Vec<&str> = world.catalog.listed().map(|s| s.name.as_str()).collect();
            if order != strings(wanted) {
                fault(format!("the order is {order:?}"));
            }
        }
        "catalog_includes" => {
            for name in strings(wanted).into_iter().filter(|name| !listed.contains(name)) {
                fault(format!("`{name}` is not in the catalog {listed:?}"));
            }
        }
        "entries" if wanted.as_u64() != Some(listed.len() as u64) => {
            fault(format!("there are {} entries", listed.len()));
        }
        "warn" => {
            for code in strings(wanted).into_iter().filter(|code| !has_code(code)) {
                fault(format!("no finding `{code}` in {findings:?}"));
            }
        }
        "warn_not" => {
            for code in strings(wanted).into_iter().filter(|code| has_code(code)) {
                fault(format!("there is a finding `{code}`"));
            }
        }
        "descriptions" => {
            for (name, text) in wanted.as_object().into_iter().flatten() {
                let found = world.catalog.listed().find(|skill| skill.name == *name);
                if found.map(|skill| skill.description.as_str()) != text.as_str() {
                    fault(format!("the description of `{name}` is {found:?}"));
                }
            }
        }
        "errors" | "errors_or_warn" => {
            for (path, code) in wanted.as_object().into_iter().flatten() {
                let any = key == "errors_or_warn";
                let is_there = findings.iter().any(|finding| {
                    finding.path == world.at(path)
                        && Some(finding.code.name()) == code.as_str()
                        && (any || finding.severity == Severity::Error)
                });
                if !is_there {
                    fault(format!("no {code} for {path} in {findings:?}"));
                }
            }
        }
        "sub_skills" => {
            for (outer, inner) in wanted.as_object().into_iter().flatten() {
                let inside = world.catalog.skills().iter();
                let inside = inside.filter(|skill| skill.parent.as_ref() == Some(outer));
                let names: Vec<&str> = inside.map(|skill| skill.name.as_str()).collect();
                if names != strings(inner) {
                    fault(format!("inside `{outer}` are {names:?}"));
                }
            }
        }
        "catalog" | "entries" => {}
        _ => return false,
    }
    true
}

/// Keys about the catalog as a model sees it.
fn in_texts(
    key: &str,
    wanted: &Value,
    keys: &serde_json::Map<String, Value>,
    world: &World,
    faults: &mut Faults,
) -> bool {
    let formats = [CatalogFormat::Lines, CatalogFormat::Xml];
    let xml = world.catalog.render_as(CatalogFormat::Xml);
    let mut fault = |text: String| faults.push(text);
    match key {
        "catalog_contains" => {
            for part in strings(wanted).into_iter().filter(|part| !xml.contains(part)) {
                fault(format!("the catalog lacks {part:?}: {xml}"));
            }
        }
        "catalog_contains_not" | "list_contains_not" => {
            let texts = formats.map(|format| world.catalog.render_as(format));
            for part in strings(wanted).into_iter().filter(|part| texts.concat().contains(part)) {
                fault(format!("the catalog has {part:?}"));
            }
        }
        "catalog_count" => {
            for (part, n) in wanted.as_object().into_iter().flatten() {
                let found = xml.matches(part.as_str()).count();
                if n.as_u64() != Some(found as u64) {
                    fault(format!("the catalog has {part:?} {found} times"));
                }
            }
        }
        "catalog_text" => {
            for text in formats.map(|format| world.catalog.render_as(format)) {
                if Some(text.as_str()) != wanted.as_str() {
                    fault(format!("the catalog is {text:?}"));
                }
            }
        }
        "budget_chars" => {
            let budget = wanted.as_u64().unwrap_or(0) as usize;
            faults.extend(
                formats.iter().flat_map(|&format| budget_faults(budget, format, keys, world)),
            );
        }
        // Looked at together with the budget.
        "all_names_or_marker" | "deterministic" | "max_chars_respected" | "marker" => {
            return keys.contains_key("budget_chars");
        }
        _ => return false,
    }
    true
}

fn budget_faults(
    budget: usize,
    format: CatalogFormat,
    keys: &serde_json::Map<String, Value>,
    world: &World,
) -> Faults {
    let count = |text: &str| text.chars().count();
    let rendered = world.catalog.render_within(format, budget, &count);
    let mut faults = Faults::new();
    if count(&rendered.text) > budget {
        faults.push(format!("{} characters", count(&rendered.text)));
    }
    let mut names = world.catalog.listed().map(|skill| skill.name.as_str());
    let has_marker = rendered.text.contains("left out; search finds them");
    let is_told = has_marker && rendered.n_left_out > 0;
    if !(is_told || names.all(|name| rendered.text.contains(name))) {
        faults.push("a skill is left out without a word".to_owned());
    }
    if keys.get("marker").is_some_and(|marker| marker.as_bool() != Some(has_marker)) {
        faults.push(format!("marker: {has_marker}"));
    }
    let again = skillgraft_skills::scan(&world.roots).unwrap();
    if again.render_within(format, budget, &count) != rendered {
        faults.push("a second rendering differs".to_owned());
    }
    faults
}

/// What an activation or a reading gave.
struct Outcome<'a> {
    error: Option<&'a Error>,
    text: Option<String>,
    /// The text and the list of files behind it.
    whole: String,
}

impl<'a> Outcome<'a> {
    fn of(done: &'a Done) -> Self {
        let (error, text, listing) = match done {
            Done::Activated(outcome) => match &**outcome {
                Ok(Given::New { text, .. }) => (None, Some(text.body.clone()), text.listing()),
                Ok(Given::Already { .. }) => (None, None, String::new()),
                Err(error) => (Some(error), None, String::new()),
            },
            Done::Read(outcome) => match &**outcome {
                Ok(text) => (None, Some(text.text.clone()), String::new()),
                Err(error) => (Some(error), None, String::new()),
            },
            Done::Nothing => (None, None, String::new()),
        };
        let whole = format!("{}{listing}", text.as_deref().unwrap_or_default());
        Outcome { error, text, whole }
    }
}

/// Keys about what was done.
fn after(key: &str, wanted: &Value, done: &Done, world: &mut World, faults: &mut Faults) -> bool {
    let outcome = Outcome::of(done);
    about_text(key, wanted, &outcome, faults) || about_world(key, wanted, &outcome, world, faults)
}

/// Keys about the text that was given, or the error in its place.
fn about_text(key: &str, wanted: &Value, outcome: &Outcome<'_>, faults: &mut Faults) -> bool {
    let Outcome { error, text, whole } = outcome;
    let mut fault = |text: String| faults.push(text);
    match key {
        "error_mentions" => {
            let said = error.map(|error| format!("{error} {}", error.hint().unwrap_or_default()));
            for part in strings(wanted) {
                if said.as_ref().is_none_or(|said| !said.contains(part)) {
                    fault(format!("the error says {said:?}"));
                }
            }
        }
        "activated_body" | "content" => {
            let got = text.as_deref().map(|text| if key == "content" { text } else { text.trim() });
            if got != wanted.as_str() {
                fault(format!("{key} is {got:?}: {error:?}"));
            }
        }
        "activated_contains" | "content_contains" => {
            for part in strings(wanted).into_iter().filter(|part| !whole.contains(part)) {
                fault(format!("{key}: {part:?} is not in {whole:?}"));
            }
        }
        "activated_contains_not" | "content_contains_not" => {
            let is_read = text.is_some();
            for part in strings(wanted).into_iter().filter(|part| !is_read || whole.contains(part))
            {
                fault(format!("{key}: {part:?} in {whole:?}"));
            }
        }
        _ => return false,
    }
    true
}

/// Keys about the world afterwards.
fn about_world(
    key: &str,
    wanted: &Value,
    outcome: &Outcome<'_>,
    world: &mut World,
    faults: &mut Faults,
) -> bool {
    let mut fault = |text: String| faults.push(text);
    match key {
        "error" => {
            let scanned = world.catalog.omitted().map(|finding| finding.code.name());
            let codes: Vec<&str> = scanned.chain(outcome.error.map(Error::code)).collect();
            if wanted.as_str().is_none_or(|code| !codes.contains(&code)) {
                fault(format!("the errors are {codes:?}"));
            }
        }
        "install_error" => match &world.installed {
            Some(Err(error)) if Some(error.code()) == wanted.as_str() => {}
            other => fault(format!("the import gave {other:?}")),
        },
        "written" => {
            let found = written(&world.base.join("skills"));
            if found != strings(wanted) {
                fault(format!("written: {found:?}"));
            }
        }
        "file_absent" if wanted.as_str().is_none_or(|path| Path::new(path).exists()) => {
            fault(format!("{wanted} exists"));
        }
        "max_seconds" if wanted.as_f64().is_none_or(|max| world.took.as_secs_f64() > max) => {
            fault(format!("it took {:?}", world.took));
        }
        "max_mb" => match world.peak_bytes {
            Some(bytes) if wanted.as_u64().is_none_or(|max| bytes > max << 20) => {
                fault(format!("it took {bytes} bytes"));
            }
            Some(_) => {}
            None => eprintln!("SKIPPED: the peak of the memory cannot be read here"),
        },
        "prompt_count" => {
            let prompt = world.prompt();
            for (part, n) in wanted.as_object().into_iter().flatten() {
                let found = prompt.matches(part.as_str()).count();
                if n.as_u64() != Some(found as u64) {
                    fault(format!("the prompt has {part:?} {found} times"));
                }
            }
        }
        "activate" | "activate_by_user" | "activate_by_model" => {
            faults.extend(activations(key, wanted, world));
        }
        "file_absent" | "max_seconds" => {}
        // Each step and each prefix has been looked at while the steps were done.
        "all_steps_hold" | "prefix_preserved" | "mixed_versions_flagged" => {
            return wanted.as_bool() == Some(true);
        }
        _ => return false,
    }
    true
}

/// Names that can be activated: exactly these by a caller, or these at least.
fn activations(key: &str, wanted: &Value, world: &mut World) -> Faults {
    let caller = if key == "activate_by_model" { Caller::Model } else { Caller::User };
    let mut faults = Faults::new();
    let names: Vec<String> = match wanted {
        Value::Object(names) => names.keys().cloned().collect(),
        other => strings(other).into_iter().map(str::to_owned).collect(),
    };
    for name in &names {
        let listed = world.catalog.listed().find(|skill| skill.name == *name);
        let folder = listed.map(|skill| skill.folder.clone());
        match world.session.activate(name, caller, 0) {
            Ok(Given::New { text, .. }) if folder.as_ref().is_none_or(|f| *f == text.folder) => {}
            Ok(Given::Already { .. }) => {}
            other => faults.push(format!("activating `{name}` gave {other:?}")),
        }
    }
    if key != "activate" {
        let all: Vec<String> = world.catalog.skills().iter().map(|s| s.id.clone()).collect();
        for name in all.iter().filter(|name| !names.contains(name)) {
            if world.session.activate(name, caller, 0).is_ok() {
                faults.push(format!("`{name}` could be activated"));
            }
        }
    }
    faults
}

/// Everything below a folder, sorted.
fn written(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(written(&path).into_iter().map(|below| format!("{name}/{below}")));
        } else {
            found.push(name);
        }
    }
    found.sort();
    found
}
