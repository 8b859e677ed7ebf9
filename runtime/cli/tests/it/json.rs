//! JSON output against the schemas in `docs/schema/`, and the command on the
//! real model.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use skillgraft::models::{DEFAULT_MODEL_ID, ModelStore};
use skillgraft::{Settings, StopFlag};

use crate::command::{Printed, World};

/// The folder of fetched models that all tests share.
fn models() -> &'static Path {
    static MODELS: OnceLock<PathBuf> = OnceLock::new();
    MODELS.get_or_init(|| {
        let own = Settings::from_env().map(|settings| settings.cache_dir);
        let cache = own.unwrap_or_else(|_| Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
        let store = ModelStore::open(cache).cancelled_by(StopFlag::default().shared());
        store.pull(DEFAULT_MODEL_ID, &mut |_| {}).expect("the default model can be fetched");
        store.dir().to_owned()
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Checks that a run printed exactly one JSON object that its schema accepts.
pub(crate) fn checked(printed: &Printed, schema: &str) -> Value {
    assert_eq!(printed.code, Some(0), "{}", printed.all());
    valid(printed, schema)
}

/// Checks the same of a run that may have ended with another status.
pub(crate) fn valid(printed: &Printed, schema: &str) -> Value {
    let value: Value = serde_json::from_str(&printed.stdout).expect("one JSON object");
    let schema = root().join("docs/schema").join(schema);
    let schema = std::fs::read_to_string(&schema).expect("there is a schema");
    let schema: Value = serde_json::from_str(&schema).expect("the schema is JSON");
    let schema = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let faults: Vec<String> = schema
        .iter_errors(&value)
        .map(|fault| format!("{} {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
    value
}

#[test]
fn models_as_json() {
    let world = World::new();
    let listed = checked(&world.run(&["model", "list", "--json"]), "model.json");
    assert_eq!(listed["models"][0]["id"], DEFAULT_MODEL_ID);
    assert!(listed["models"][0]["path"].is_null(), "nothing was fetched into this cache");

    world.share_models(models());
    let pulled = checked(&world.run(&["model", "pull", "--json"]), "model.json");
    assert_eq!(pulled["models"].as_array().map(Vec::len), Some(1));
    assert!(pulled["models"][0]["path"].is_string());
}

#[test]
fn a_run_as_json() {
    let world = World::new();
    world.share_models(models());
    let skills = root().join("examples/skills");
    let skills = skills.to_str().expect("UTF-8");
    let ask = |extra: &[&str]| {
        let mut args = vec!["run", "--json", "--skills", skills, "--max-tokens", "3"];
        args.extend_from_slice(extra);
        args.push("How do I roll back a failed staging deploy?");
        checked(&world.run(&args), "run.json")
    };
    let first = ask(&[]);
    assert_eq!(first["activations"][0]["name"], "deploy-rollback");
    assert_eq!(first["activations"][0]["block"], "compiled");
    assert_eq!(first["activations"][0]["exact"], true);
    assert_eq!(first["full_prefill"]["estimated"], false, "the first use is a full prefill");
    let second = ask(&["--compare"]);
    assert_eq!(second["activations"][0]["block"], "disk");
    assert_eq!(second["full_prefill"]["estimated"], false);
    assert_eq!(second["answer"], first["answer"]);
    let exact = ask(&["--mode", "exact"]);
    assert_eq!((&exact["mode"], &exact["tokens"]["grafted"]), (&"exact".into(), &0.into()));
}

#[test]
fn a_benchmark_as_json() {
    let world = World::new();
    world.share_models(models());
    let args = ["bench", "--json", "--quick", "--repeat", "1", "--lengths", "24,40"];
    let report = checked(&world.run(&args), "bench.json");
    assert_eq!(report["workloads"][1]["skill_tokens"], 40);
    assert_eq!(report["workloads"][1]["ours"]["graft_disk"]["grafted"], 40);
    assert_eq!(report["workloads"][1]["ours"]["exact"]["grafted"], 0);
    assert_eq!(report["graft"].as_array().map(Vec::len), Some(2));
}

#[test]
fn fidelity_as_json() {
    let world = World::new();
    world.share_models(models());
    let out = world.path("cases.json");
    let cases_out = out.to_str().expect("UTF-8");
    let args = [
        "fidelity",
        "--json",
        "--limit",
        "2",
        "--modes",
        "graft-neutral",
        "--cases-out",
        cases_out,
    ];
    let report = checked(&world.run(&args), "fidelity.json");
    assert_eq!(report["noise_floor"]["kl_max"], 0.0, "no bit depends on the chunks");
    let neutral = &report["modes"]["graft-neutral"];
    assert_eq!(neutral["cases"], 2);
    assert!(neutral["greedy"]["kl_mean"].as_f64().is_some_and(|kl| kl > 0.0 && kl < 0.1));

    let written = std::fs::read_to_string(out).expect("the cases were written");
    let cases = Printed { code: Some(0), stdout: written, stderr: String::new() };
    assert_eq!(checked(&cases, "fidelity.json")["cases"].as_array().map(Vec::len), Some(2));
}

#[test]
fn fidelity_of_edits_of_own_skills_and_as_a_page() {
    let world = World::new();
    world.share_models(models());
    let folder = world.path("pairs");
    std::fs::create_dir_all(&folder).expect("it can be made");
    let skill = |wait: &str| {
        let line = |n| format!("Step {n} of the work is done with care.\n");
        let lines: String = (1..9).map(line).collect();
        format!("---\nname: tea\ndescription: Brew tea.\n---\n# Tea\n\n{lines}Wait {wait}.\n")
    };
    for (name, wait) in [("a.old.md", "60 seconds"), ("a.new.md", "90 seconds")] {
        std::fs::write(folder.join(name), skill(wait)).expect("it can be written");
    }
    let pairs = folder.to_str().expect("UTF-8");
    let report = checked(
        &world.run(&["fidelity", "--edits", "--limit", "1", "--pairs", pairs, "--json"]),
        "fidelity-edits.json",
    );
    let patch = &report["situations"]["unanswered"]["patch"];
    assert!(patch["kl_mean"].as_f64().is_some_and(|kl| kl < 0.05), "{patch}");
    assert_eq!(report["pairs"]["edited_in_place"], 1);
    let kl = |method: &str| report["pairs"][method]["kl_mean"].as_f64().expect("a number");
    assert!(kl("patch") < kl("nothing"), "{}", report["pairs"]);

    let skills = world.path("own");
    std::fs::create_dir_all(skills.join("tea")).expect("it can be made");
    std::fs::write(skills.join("tea/SKILL.md"), skill("at least 60 seconds"))
        .expect("it can be written");
    let (skills, page) = (skills.to_str().expect("UTF-8"), world.path("page.html"));
    let html = page.to_str().expect("UTF-8");
    let args =
        ["fidelity", "--skills", skills, "--modes", "repair", "--order", "before", "--html", html];
    let report = checked(&world.run(&[&args[..], &["--json"]].concat()), "fidelity.json");
    assert_eq!(
        (&report["modes"]["repair"]["cases"], &report["setting"]["order"]),
        (&1.into(), &"before".into())
    );
    assert!(report["cases"].is_null(), "cases were not asked for");
    let page = std::fs::read_to_string(page).expect("the page was written");
    assert!(page.contains("<svg") && page.contains("line 11</h3>"), "{page}");
}

#[test]
fn a_run_prints_the_answer_on_stdout_and_the_report_on_stderr() {
    let world = World::new();
    world.share_models(models());
    let skills = world.with_a_skill();
    let skills = skills.to_str().expect("UTF-8");
    let ask = |extra: &[&str]| {
        let mut args = vec!["run", "--skills", skills, "--max-tokens", "4"];
        args.extend_from_slice(extra);
        args.push("How long do I steep the tea?");
        world.run(&args)
    };
    let printed = ask(&[]);
    assert_eq!(printed.code, Some(0), "{}", printed.all());
    assert!(!printed.stdout.trim().is_empty());
    for part in ["skill     tea: ", "none yet: ", "kept as a block", "mode      graft"] {
        assert!(printed.stderr.contains(part), "`{part}` in {}", printed.stderr);
    }
    let again = ask(&[]);
    assert_eq!(again.stdout, printed.stdout);
    for part in ["from disk", "grafted", "prefix anchor, exact here", "estimated"] {
        assert!(again.stderr.contains(part), "`{part}` in {}", again.stderr);
    }
    assert!(ask(&["--compare"]).stderr.contains("(measured)"));
    let quiet = ask(&["--quiet"]);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), (printed.stdout.as_str(), ""));
}

#[test]
fn what_is_too_long_ends_with_1_and_a_hint() {
    let world = World::new();
    world.share_models(models());
    let skills = world.with_a_skill();
    let skills = skills.to_str().expect("UTF-8");
    let long = "tea ".repeat(200);
    let printed = world.run(&["run", "--skills", skills, "--context", "128", &long]);
    assert_eq!(printed.code, Some(1), "{}", printed.all());
    assert!(printed.stderr.contains("error: the prompt has "), "{}", printed.stderr);
    assert!(printed.stderr.contains("hint: shorten the prompt"), "{}", printed.stderr);
}

#[test]
fn a_chat_goes_on_after_a_mistake_and_ends_with_its_input() {
    let world = World::new();
    world.share_models(models());
    world.with_a_skill();
    let args = ["chat", "--skills", "skills", "--only", "--max-tokens", "3"];
    let input = "How long does tea steep?\n\nAnd $teaa?\nAnd $tea again?\n";
    let printed = world.run_with_input(&args, input);
    assert_eq!(printed.code, Some(0), "{}", printed.all());
    let said = &printed.stderr;
    assert!(said.contains("no skill is called `teaa`"), "{said}");
    assert!(said.contains("did you mean `tea`?"), "{said}");
    assert!(said.contains("tea: in the context already, from token "), "{said}");
    assert_eq!(said.matches("activating tea").count(), 1, "{said}");
    assert_eq!(printed.stdout.lines().count(), 2, "{}", printed.stdout);
}

#[test]
fn blocks_are_compiled_ahead_counted_checked_and_removed() {
    let world = World::new();
    world.share_models(models());
    world.with_a_skill();
    let skills = ["--skills", "skills", "--only", "--json"];
    let with = |args: &[&str]| world.run(&[args, &skills].concat());
    let compiled = checked(&with(&["compile", "--all"]), "compile.json");
    assert_eq!((&compiled["name"], &compiled["status"]), (&"tea".into(), &"compiled".into()));
    assert_eq!(checked(&with(&["compile", "tea"]), "compile.json")["status"], "present");
    assert_eq!(with(&["compile", "teaa"]).code, Some(1));

    let question = "How long do I steep the tea?";
    let report = checked(&with(&["run", question, "--max-tokens", "1"]), "run.json");
    let activation = &report["activations"][0];
    assert_eq!((&activation["block"], &activation["anchor"]), (&"disk".into(), &"neutral".into()));
    let cache = |command: &str| world.run(&["cache", command, "--json"]);
    let stats = checked(&cache("stats"), "cache-stats.json");
    assert_eq!(
        (&stats["hits"], &stats["saved_tokens"]),
        (&1.into(), &activation["grafted_tokens"])
    );
    assert_eq!(stats["skills"]["tea"]["hits"], 1);
    // The prefix, and the skill behind both anchors.
    assert_eq!(stats["blocks"], 3);
    let listed = checked(&cache("list"), "cache-list.json");
    assert_eq!(listed["bytes"], stats["bytes"]);
    assert_eq!(checked(&cache("verify"), "cache-list.json"), listed);

    let file =
        world.path("cache/blocks").join(listed["blocks"][1]["file"].as_str().expect("a name"));
    let mut bytes = std::fs::read(&file).expect("it is there");
    *bytes.last_mut().expect("it has bytes") ^= 1;
    std::fs::remove_file(&file).expect("it can be removed");
    std::fs::write(&file, bytes).expect("it can be written");
    let bad = cache("verify");
    assert_eq!(bad.code, Some(1), "{}", bad.all());
    assert_eq!(valid(&bad, "cache-list.json")["blocks"][1]["fault"], "damaged");
    let collected = checked(&cache("gc"), "cache-gc.json");
    assert_eq!(
        (&collected["removed"][0]["reason"], &collected["blocks"]),
        (&"unusable".into(), &2.into())
    );
    let none = world.run(&["cache", "gc", "--max-mb", "0", "--json"]);
    assert_eq!(checked(&none, "cache-gc.json")["removed"][1]["reason"], "size");
    let report = checked(&with(&["run", question, "--max-tokens", "1"]), "run.json");
    assert_eq!(report["activations"][0]["miss"], "absent");
    assert_eq!(checked(&cache("clear"), "cache-clear.json")["removed"], 3);
    assert_eq!(checked(&cache("stats"), "cache-stats.json")["blocks"], 0);
}
