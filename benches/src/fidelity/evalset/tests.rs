use super::*;

const SKILL: &str =
    r#"{"name": "tea", "description": "Make tea.", "body": "Steep for 90 seconds.\n"}"#;
const CASE: &str = r#"{"id": "tea/0", "kind": "single", "skills": ["tea"], "user_prefix": "Help me.", "question": "How long?", "answer_stub": "Steep for", "answer": "90 seconds"}"#;

fn environment_text() -> String {
    let template: serde_json::Map<String, serde_json::Value> =
        TEMPLATE.iter().map(|&(part, text)| (part.to_owned(), text.into())).collect();
    serde_json::json!({
        "system": "Be helpful.",
        "catalog": {"tea": "Make tea.", "coffee": "Make coffee."},
        "template": template,
    })
    .to_string()
}

fn parse_texts(skills: &str, cases: &str, environment: &str) -> Result<EvalSet, Error> {
    parse(&Files {
        name: "test",
        skills: (SKILLS.into(), skills),
        cases: (CASES.into(), cases),
        environment: (ENVIRONMENT.into(), environment),
    })
}

fn message(result: Result<EvalSet, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn the_built_in_set_is_whole() {
    let set = EvalSet::built_in().unwrap();
    assert_eq!((set.skills.len(), set.cases.len(), set.catalog.len()), (12, 60, 20));
    for case in &set.cases {
        assert!(set.skill_of(case).body.contains(&case.answer), "{}", case.id);
    }
    // The order of the catalog is the order of the prefix's bytes.
    assert_eq!(set.catalog[0].0, "rotate-api-keys");
    assert_eq!(set.catalog[19].0, "backup-plan");
}

#[test]
fn a_small_set_is_read_as_written() {
    let other = CASE.replace("single", "combo").replace("tea/0", "tea/1");
    let cases = format!("{CASE}\n\n{other}\n");
    let set = parse_texts(&format!("{SKILL}\n"), &cases, &environment_text()).unwrap();
    assert_eq!(set.cases.len(), 1, "other kinds are not run");
    assert_eq!(set.cases[0].answer_stub, "Steep for");
    assert_eq!(set.catalog[1], ("coffee".to_owned(), "Make coffee.".to_owned()));
    assert_eq!(set.skill_of(&set.cases[0]).name, "tea");
}

#[test]
fn bad_lines_are_named() {
    let environment = environment_text();
    let cut = message(parse_texts(&SKILL[..40], CASE, &environment));
    assert!(cut.starts_with("`skills.jsonl`, line 1: EOF"), "{cut}");
    let second = message(parse_texts(SKILL, &format!("{CASE}\nnonsense"), &environment));
    assert!(second.starts_with("`cases.jsonl`, line 2: expected"), "{second}");
    let field = message(parse_texts(SKILL, &CASE.replace("question", "query"), &environment));
    assert!(field.contains("missing field `question`"), "{field}");
    let cut = message(parse_texts(SKILL, CASE, "{\n\"system\": 3"));
    assert!(cut.starts_with("`env.json`, line 2: "), "{cut}");
}

#[test]
fn cases_that_cannot_be_run_are_refused() {
    let environment = environment_text();
    let refused =
        |from: &str, to: &str| message(parse_texts(SKILL, &CASE.replace(from, to), &environment));
    assert!(refused("[\"tea\"]", "[\"cocoa\"]").ends_with("line 1: no skill `cocoa`"));
    assert!(refused("[\"tea\"]", "[]").ends_with("a `single` case with 0 skills"));
    assert!(refused("\"90 seconds\"", "\" \"").ends_with("the answer is empty"));
    assert!(
        refused("90 seconds", "91 seconds")
            .ends_with("the answer `91 seconds` is not in the skill `tea`")
    );
    let twice = message(parse_texts(SKILL, &format!("{CASE}\n{CASE}"), &environment));
    assert!(twice.ends_with("line 2: a second case `tea/0`"), "{twice}");
    let none = parse_texts(SKILL, &CASE.replace("single", "two"), &environment);
    assert!(matches!(none, Err(Error::NoCases { .. })));
}

#[test]
fn another_layout_is_refused() {
    let other = environment_text().replace("</skill>", "</doc>");
    let refused = message(parse_texts(SKILL, CASE, &other));
    assert!(refused.contains("template part `block_tail` is \"</doc>\\n\""), "{refused}");
    let number = environment_text().replace("\"Make coffee.\"", "7");
    let refused = message(parse_texts(SKILL, CASE, &number));
    assert!(refused.ends_with("the description of `coffee` is no text"), "{refused}");
}

#[test]
fn an_absent_folder_is_named() {
    let error = EvalSet::read(Path::new("no/such/folder")).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path.ends_with("folder/skills.jsonl")));
    assert!(error.is_user_error() && error.to_string().contains("no/such/folder"));
}

#[test]
fn a_folder_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [(SKILLS, SKILL), (CASES, CASE), (ENVIRONMENT, &environment_text())] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let set = EvalSet::read(folder.path()).unwrap();
    assert_eq!(set.cases.len(), 1);
    assert_eq!(Some(set.name.as_ref()), folder.path().file_name().and_then(|name| name.to_str()));
    std::fs::write(folder.path().join(CASES), b"\xff\xfe").unwrap();
    assert!(matches!(EvalSet::read(folder.path()), Err(Error::Io { .. })), "not UTF-8");
}
