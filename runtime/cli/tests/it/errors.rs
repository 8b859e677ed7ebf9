//! What the command prints: help, and each kind of bad input that needs no model.

use insta::assert_snapshot;

use crate::command::World;

#[test]
fn help() {
    assert_snapshot!("help", World::new().run(&["--help"]).all());
    assert_snapshot!("help_run", World::new().run(&["run", "--help"]).all());
}

#[test]
fn a_mistyped_model_is_guessed() {
    let world = World::new();
    let skills = world.with_a_skill();
    let skills = skills.to_str().expect("UTF-8");
    assert_snapshot!(
        "unknown_model",
        world.run(&["run", "--skills", skills, "--model", "smollm2-135m", "Hi"]).all()
    );
    assert_snapshot!(
        "missing_model_file",
        world.run(&["run", "--skills", skills, "--model", "my/model.gguf", "Hi"]).all()
    );
}

#[test]
fn files_that_are_no_models() {
    let world = World::new();
    let skills = world.with_a_skill();
    let skills = skills.to_str().expect("UTF-8");
    world.write("notes.gguf", "these are notes");
    world.write("cut.gguf", b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0");
    for (name, file) in [("not_gguf", "notes.gguf"), ("cut_gguf", "cut.gguf")] {
        assert_snapshot!(
            name,
            world.run(&["run", "--skills", skills, "--model", file, "Hi"]).all()
        );
    }
}

#[test]
fn folders_without_skills() {
    let world = World::new();
    world.write("empty/README.md", "nothing here");
    world.write("bad/tea/SKILL.md", b"---\nname: tea\ndescription: caf\xe9\n---\n");
    assert_snapshot!("no_folder", world.run(&["run", "--only", "Hi"]).all());
    assert_snapshot!("missing_folder", world.run(&["run", "--skills", "nowhere", "Hi"]).all());
    assert_snapshot!("no_skills", world.run(&["run", "--skills", "empty", "Hi"]).all());
    assert_snapshot!("only_bad_skills", world.run(&["run", "--skills", "bad", "Hi"]).all());
}

#[test]
fn bad_options() {
    let world = World::new();
    for (name, args) in [
        ("bad_temperature", ["run", "--temperature", "-1", "Hi"]),
        ("bad_mode", ["run", "--mode", "fast", "Hi"]),
        ("bad_max_tokens", ["run", "--max-tokens", "many", "Hi"]),
    ] {
        assert_snapshot!(name, world.run(&args).all());
    }
}

#[test]
fn the_list_of_models() {
    assert_snapshot!("model_list", World::new().run(&["model", "list"]).all());
}
