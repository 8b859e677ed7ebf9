//! What a case expects of one skill.

use serde_json::Value;
use skillgraft_skills::{Level, Root, ScanOptions, Scanner, Severity, Skill};

use crate::Faults;
use crate::world::World;

/// Compares one key that is about the single file of a case; `false` when the
/// key is about something else.
pub(crate) fn compare(key: &str, wanted: &Value, world: &World, faults: &mut Faults) -> bool {
    let skills = world.catalog.skills();
    let skill = skills.first().map(|skill| &**skill);
    match key {
        "ok" => {
            let is_ok = skill.is_some();
            if wanted.as_bool() != Some(is_ok) {
                let found: Vec<String> =
                    world.catalog.diagnostics().iter().map(ToString::to_string).collect();
                faults.push(format!("ok is {is_ok}: {found:?}"));
            }
        }
        "strict_ok" => {
            let is_ok = is_strict_ok(world);
            if wanted.as_bool() != Some(is_ok) {
                faults.push(format!("strict_ok is {is_ok}"));
            }
        }
        _ => {
            let Some(got) = value(key, skill) else { return false };
            // Cases state descriptions trimmed or not: they are compared trimmed.
            let trimmed = |value: &Value| value.as_str().map(|text| Value::from(text.trim()));
            let is_same = got == *wanted
                || (key == "description" && trimmed(&got) == trimmed(wanted) && skill.is_some());
            if !is_same {
                faults.push(format!("{key} is {got}, not {wanted}"));
            }
        }
    }
    true
}

fn is_strict_ok(world: &World) -> bool {
    let options = ScanOptions { level: Level::Strict, ..ScanOptions::default() };
    let roots = world.roots.iter().map(|root| Root::given(root)).collect();
    let catalog = Scanner::new(roots, options).scan().unwrap();
    let is_clean = catalog.diagnostics().iter().all(|d| d.severity == Severity::Warning);
    !catalog.is_empty() && is_clean
}

/// The value of a key of one skill; `None` for a key that no skill has.
fn value(key: &str, skill: Option<&Skill>) -> Option<Value> {
    let pairs = |pairs: &[(String, String)]| -> Value {
        pairs.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
    };
    let known = [
        "name",
        "description",
        "catalog_description",
        "body",
        "license",
        "compatibility",
        "metadata",
        "extra",
        "allowed_tools",
        "model_invocable",
        "user_invocable",
    ];
    if !known.contains(&key) {
        return None;
    }
    let Some(skill) = skill else { return Some(Value::Null) };
    Some(match key {
        "name" => skill.name.as_str().into(),
        "description" => skill.description.as_str().into(),
        "catalog_description" => skill.one_line_description().into(),
        "body" => skill.body.trim().into(),
        "license" => skill.license.clone().into(),
        "compatibility" => skill.compatibility.clone().into(),
        "metadata" => pairs(&skill.metadata),
        "extra" => pairs(&skill.extra),
        "allowed_tools" => skill.allowed_tools.clone().into(),
        "model_invocable" => skill.invocable.by_model.into(),
        "user_invocable" => skill.invocable.by_user.into(),
        _ => unreachable!("the key is known"),
    })
}
