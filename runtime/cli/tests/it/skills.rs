//! `skillgraft skills` and `skillgraft trust`, without any model.

use insta::assert_snapshot;

use crate::command::{Printed, World};
use crate::json::{checked, valid};

const TEA: &str = "---\nname: tea\ndescription: Brew tea. Use for tea.\n---\n\
                   Steep for 4 minutes. See [times](references/times.md).\n";

fn world() -> World {
    let world = World::new();
    world.write("skills/tea/SKILL.md", TEA);
    world.write("skills/tea/references/times.md", "sencha 90 s\n");
    world.write(
        "skills/tea/iced/SKILL.md",
        "---\nname: iced\ndescription: Ice tea.\n---\nCool it.\n",
    );
    world.write(
        "skills/odd/SKILL.md",
        "---\nname: odd\ndescription: Odd: indeed.\nmodel: big\n---\n",
    );
    world
}

fn skills(world: &World, args: &[&str]) -> Printed {
    let mut all = vec!["skills"];
    all.extend_from_slice(args);
    if !matches!(args[0], "check" | "add") {
        all.extend(["--skills", "skills", "--only"]);
    }
    world.run(&all)
}

#[test]
fn skills_are_listed_and_shown() {
    let world = world();
    let listed = checked(&skills(&world, &["list", "--json"]), "skills-list.json");
    let names: Vec<&str> =
        listed["skills"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["odd", "tea", "tea/iced"]);
    assert!(listed["catalog_tokens"].is_null(), "there is no model to count with");
    assert_eq!(listed["skills"][0]["diagnostics"].as_array().map(Vec::len), Some(2));

    let shown = checked(&skills(&world, &["show", "tea", "--json"]), "skills-show.json");
    assert_eq!(shown["files"], serde_json::json!(["references/times.md"]));
    assert_eq!(shown["inner"], serde_json::json!(["tea/iced"]));
    assert_snapshot!("skills_show", skills(&world, &["show", "tea"]).all());
    let file = skills(&world, &["show", "tea/references/times.md"]);
    assert_eq!((file.code, file.stdout.as_str()), (Some(0), "sencha 90 s\n"));
    let outside = skills(&world, &["show", "tea/../odd/SKILL.md"]);
    assert_eq!(outside.code, Some(1));
    assert_snapshot!("skills_show_unknown", skills(&world, &["show", "te"]).all());
}

#[test]
fn skills_are_checked() {
    let world = world();
    let fine = valid(&skills(&world, &["check", "skills", "--json"]), "skills-check.json");
    assert_eq!(fine["ok"], true);
    let strict = skills(&world, &["check", "skills", "--strict", "--json"]);
    assert_eq!(strict.code, Some(1));
    assert_eq!(valid(&strict, "skills-check.json")["ok"], false);
    world.write("skills/bad/SKILL.md", "---\nname: bad\nx: [1\n- y: }\n---\n");
    world.write("skills/tea/SKILL.md", TEA.replace("times.md", "gone.md"));
    let printed = skills(&world, &["check", "skills"]);
    assert_eq!(printed.code, Some(1));
    assert_snapshot!("skills_check", printed.all());
    let one = skills(&world, &["check", "skills/tea/iced/SKILL.md"]);
    assert_eq!(one.code, Some(0), "{}", one.all());
    assert!(one.stdout.is_empty(), "{}", one.stdout);
}

#[test]
fn skills_are_found() {
    let world = world();
    let found =
        checked(&skills(&world, &["search", "steep minutes", "--json"]), "skills-search.json");
    assert_eq!(found["matches"][0]["name"], "tea");
    assert_eq!(
        (&found["matches"][0]["line"], &found["matches"][0]["fits"]),
        (&5.into(), &true.into())
    );
    let none = checked(&skills(&world, &["search", "quantum", "--json"]), "skills-search.json");
    assert_eq!(none["matches"], serde_json::json!([]));
}

#[test]
fn skills_are_added() {
    let world = world();
    let add = ["add", "skills/tea", "--into", "own", "--json"];
    let added = checked(&skills(&world, &add), "skills-add.json");
    assert_eq!(added["skills"][0]["name"], "tea");
    assert!(world.path("own/tea/references/times.md").exists());
    let again = skills(&world, &add);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("is already there"), "{}", again.stderr);
    world.write("broken.zip", "no archive");
    assert_eq!(skills(&world, &["add", "broken.zip", "--into", "own"]).code, Some(1));
}

#[test]
fn a_project_is_trusted_before_its_skills_are_used() {
    let world = World::new();
    world.write(".claude/skills/tea/SKILL.md", TEA);
    world.write(".git/HEAD", "");
    let listed = world.run(&["skills", "list"]);
    assert_eq!(listed.stdout, "", "{}", listed.all());
    assert!(listed.stderr.contains("it is not trusted"), "{}", listed.stderr);
    let trusted = checked(&world.run(&["trust", "--json"]), "trust.json");
    assert_eq!(trusted["trusted"].as_array().map(Vec::len), Some(1));
    let listed = world.run(&["skills", "list"]);
    assert!(listed.stdout.starts_with("tea "), "{}", listed.all());
    let removed = checked(&world.run(&["trust", "--remove", "--json"]), "trust.json");
    assert_eq!(removed["trusted"], serde_json::json!([]));
    assert_eq!(world.run(&["skills", "list"]).stdout, "");
}
