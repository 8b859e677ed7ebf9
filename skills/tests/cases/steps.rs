//! Steps in plain words.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use skillgraft_skills::{Caller, Error, Given, Severity, SkillSession, Window};

use crate::Faults;
use crate::world::World;

/// Says what a skill's body is once it has been edited.
const NEW_BODY: &str = "NEW";

/// Does the steps of a case; every one must hold.
pub(crate) fn run(steps: &[Value], world: &mut World) -> Faults {
    let words: Vec<&str> = steps.iter().filter_map(Value::as_str).collect();
    // Where no step says when the skills are looked at again, every change is noticed.
    let is_watched = !words.iter().any(|step| step.starts_with("refresh"));
    let mut run = Run {
        world,
        values: HashMap::new(),
        last_file: None,
        seen: String::new(),
        n_steps: 0,
        is_watched,
        may_shrink: false,
        faults: Faults::new(),
    };
    run.seen = run.world.prompt();
    for step in words {
        run.n_steps += 1;
        if let Err(fault) = run.step(step) {
            run.faults.push(format!("`{step}`: {fault}"));
        }
        run.look(step);
    }
    run.faults
}

struct Run<'w> {
    world: &'w mut World,
    values: HashMap<String, String>,
    last_file: Option<PathBuf>,
    /// The prompt after the step before.
    seen: String,
    n_steps: u64,
    is_watched: bool,
    /// Whether this step takes text out of the prompt.
    may_shrink: bool,
    faults: Faults,
}

type Outcome = Result<(), String>;

impl Run<'_> {
    fn step(&mut self, step: &str) -> Outcome {
        self.may_shrink = false;
        if let Some(rest) = step.strip_prefix("new session: ") {
            self.may_shrink = true;
            self.refresh_catalog()?;
            let catalog = self.world.catalog.clone();
            self.world.session = SkillSession::new(catalog.clone(), catalog.render());
            self.world.tail.clear();
            return self.act(rest);
        }
        self.act(step)
    }

    fn act(&mut self, step: &str) -> Outcome {
        let (action, wanted) = match step.split_once("->") {
            Some((action, wanted)) => (action.trim(), Some(wanted.trim())),
            None => (step.trim(), None),
        };
        if let Some((name, what)) = action.split_once(" = ") {
            let value = self.value(what)?;
            self.values.insert(name.to_owned(), value);
            return Ok(());
        }
        if let Some((left, right)) = action.split_once(" == ") {
            return self.equal(left, right);
        }
        if let Some((later, earlier)) = action.split_once(" starts with ") {
            let first = |text: &str| text.split_whitespace().next().unwrap_or("").to_owned();
            let (later, earlier) = (self.value(&first(later))?, self.value(&first(earlier))?);
            return holds(later.starts_with(&earlier), "it does not");
        }
        let words: Vec<&str> = action.split_whitespace().collect();
        match words[..] {
            ["activate", name, ..] | ["load", "skill", name] | ["load", name] => {
                self.activate(name, wanted)
            }
            ["evict", name] => {
                self.may_shrink = true;
                self.world.tail.retain(|(address, _)| address != name);
                holds(self.world.session.evict(name), "it was not loaded")
            }
            ["read", skill, path] => self.read(&format!("{skill}/{path}"), wanted),
            ["read", address] => self.read(address, wanted),
            ["refresh", ..] => self.refresh(wanted),
            // It is looked at after every step.
            ["each", "time", ..] => Ok(()),
            _ => self.change(action, &words),
        }
    }

    /// Changes files.
    fn change(&mut self, action: &str, words: &[&str]) -> Outcome {
        match *words {
            ["write", "the", "full", "new", "text"] => {
                let file = self.last_file.clone().ok_or("no file was written before")?;
                self.write_skill(file, NEW_BODY, false)?;
            }
            ["write", path, ..] => {
                let body = action.rsplit_once("body ").map_or(NEW_BODY, |(_, body)| body);
                let same = action.contains("same length and the same mtime");
                self.write_skill(self.world.at(path), body, same)?;
            }
            ["rewrite", ..] => {
                for path in words.iter().filter(|word| word.contains('/')) {
                    let file = self.world.at(path);
                    if path.ends_with("SKILL.md") {
                        self.write_skill(file, NEW_BODY, false)?;
                    } else {
                        fs::write(file, "REWRITTEN\n").map_err(|error| error.to_string())?;
                    }
                }
            }
            ["truncate", path, "to", n, "bytes"] => {
                let file = self.world.at(path);
                let handle = fs::File::options().write(true).open(&file);
                let n = n.parse().map_err(|_| "no number")?;
                handle.and_then(|handle| handle.set_len(n)).map_err(|error| error.to_string())?;
                self.last_file = Some(file);
            }
            ["edit", "only", "the", "body", "of", name]
            | ["edit", "skill", name]
            | ["edit", name] => {
                self.write_skill(self.world.at(&format!("{name}/SKILL.md")), NEW_BODY, false)?;
            }
            ["add" | "create", "skill", name] => {
                self.write_skill(self.world.at(&format!("{name}/SKILL.md")), "Body.", false)?;
            }
            ["delete" | "remove", name] | ["delete" | "remove", "skill", name] => {
                fs::remove_dir_all(self.world.at(name)).map_err(|error| error.to_string())?;
            }
            ["rename", old, "to", new] => {
                let (old, new) = (self.world.at(old), self.world.at(new));
                fs::rename(old, new).map_err(|error| error.to_string())?;
            }
            _ => return Err("is not understood".to_owned()),
        }
        if self.is_watched { self.refresh(None) } else { Ok(()) }
    }

    fn write_skill(&mut self, file: PathBuf, body: &str, same_stamp: bool) -> Outcome {
        let failed = |error: std::io::Error| error.to_string();
        let folder = file.parent().expect("a file has a folder");
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::create_dir_all(folder).map_err(failed)?;
        let before = fs::metadata(&file).ok();
        let front = fs::read_to_string(&file)
            .ok()
            .and_then(|text| text.find("\n---\n").map(|end| text[..end + 5].to_owned()));
        let front = front.unwrap_or_else(|| {
            format!(
                "---\nname: {name}\ndescription: Does a demo. Use when a demo is asked for.\n---\n"
            )
        });
        fs::write(&file, format!("{front}{body}\n")).map_err(failed)?;
        if same_stamp {
            let before = before.ok_or("the file was not there")?;
            let handle = fs::File::options().write(true).open(&file).map_err(failed)?;
            handle.set_modified(before.modified().map_err(failed)?).map_err(failed)?;
            let now = fs::metadata(&file).map_err(failed)?;
            holds(now.len() == before.len(), "its length differs")?;
        }
        self.last_file = Some(file);
        Ok(())
    }

    fn activate(&mut self, name: &str, wanted: Option<&str>) -> Outcome {
        let outcome = self.world.session.activate(name, Caller::Model, self.n_steps);
        if let Some(code) = wanted.and_then(|wanted| wanted.strip_prefix("error")) {
            return match outcome {
                Err(error) if code.trim().is_empty() || error.code() == code.trim() => Ok(()),
                other => Err(format!("it gave {other:?}")),
            };
        }
        let body = match outcome.map_err(|error: Error| error.to_string())? {
            Given::New { text, .. } => {
                self.world.tail.push((name.to_owned(), text.body.clone()));
                text.body
            }
            Given::Already { .. } => {
                let there = self.world.tail.iter().rfind(|(address, _)| address == name);
                there.map(|(_, text)| text.clone()).ok_or("it is said to be there, and is not")?
            }
        };
        match wanted {
            Some(wanted) => holds(body.contains(wanted), &format!("it gave {body:?}")),
            None => Ok(()),
        }
    }

    fn read(&mut self, address: &str, wanted: Option<&str>) -> Outcome {
        let given = self.world.session.read(address, Window::default(), self.n_steps);
        let Given::New { text, note } = given.map_err(|error| error.to_string())? else {
            return Err("it is already there".to_owned());
        };
        self.world.tail.push((address.to_owned(), text.text));
        let asks_for_note = wanted.is_some_and(|wanted| wanted.contains("note"));
        holds(!asks_for_note || note.is_some(), "nothing is said of the change")
    }

    fn refresh_catalog(&mut self) -> Outcome {
        self.world.catalog = self.world.scanner.scan().map_err(|error| error.to_string())?;
        Ok(())
    }

    fn refresh(&mut self, wanted: Option<&str>) -> Outcome {
        self.refresh_catalog()?;
        let (_, told) = self.world.session.refresh(self.world.catalog.clone());
        self.world.tail.extend(told.map(|told| ("update".to_owned(), told)));
        let Some(rest) = wanted.and_then(|wanted| wanted.strip_prefix("error for ")) else {
            return holds(wanted.is_none(), "what is wanted is not understood");
        };
        let name = rest.split([',', ' ']).next().unwrap_or("");
        let folder = self.world.at(name);
        let is_told = self.world.catalog.diagnostics().iter().any(|finding| {
            finding.severity == Severity::Error && finding.path.starts_with(&folder)
        });
        holds(is_told, "nothing is reported")
    }

    fn value(&self, what: &str) -> Result<String, String> {
        match what.trim() {
            "prompt bytes" => Ok(self.world.prompt()),
            // What a new session would be shown: that of a session never changes.
            "catalog bytes" => Ok(self.world.catalog.render()),
            name => self.values.get(name).cloned().ok_or(format!("no value `{name}`")),
        }
    }

    fn equal(&self, left: &str, right: &str) -> Outcome {
        if left.trim() == "catalog" {
            let mut names: Vec<&str> =
                self.world.catalog.listed().map(|s| s.name.as_str()).collect();
            names.sort_unstable();
            let wanted = right.trim().trim_start_matches('[').trim_end_matches(']');
            let wanted: Vec<&str> =
                wanted.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            return holds(names == wanted, &format!("it is {names:?}"));
        }
        holds(self.value(left)? == self.value(right)?, "they differ")
    }

    /// Whatever is done, what the model has read stays as it was.
    fn look(&mut self, step: &str) {
        let now = self.world.prompt();
        if !self.may_shrink && !now.starts_with(&self.seen) {
            self.faults.push(format!("`{step}`: the prompt before is no prefix of the one after"));
        }
        self.seen = now;
    }
}

fn holds(condition: bool, fault: &str) -> Outcome {
    if condition { Ok(()) } else { Err(fault.to_owned()) }
}
