//! Tests of reading one file.

use std::path::Path;

use proptest::prelude::*;

use super::{DESCRIPTION_CHARS_MAX, FILE_BYTES_MAX, NAME_CHARS_MAX, Parsed, parse};
use crate::{Code, Severity};

fn read(bytes: &[u8]) -> Result<Parsed, Code> {
    let parsed = parse(bytes, Path::new("skills/demo-skill/SKILL.md")).map_err(|finding| {
        assert_eq!(finding.severity, Severity::Error);
        assert!(!finding.hint.is_empty() && !finding.message.is_empty());
        finding.code
    })?;
    assert!(parsed.warnings.iter().all(|finding| finding.severity == Severity::Warning));
    Ok(parsed)
}

fn ok(text: &str) -> Parsed {
    read(text.as_bytes()).unwrap_or_else(|code| panic!("{text:?} is refused: {code}"))
}

fn refused(text: &str) -> Code {
    read(text.as_bytes()).map(|parsed| parsed.skill).expect_err(text)
}

fn warnings(text: &str) -> Vec<Code> {
    ok(text).warnings.iter().map(|finding| finding.code).collect()
}

fn with_front(front: &str) -> String {
    format!("---\n{front}\n---\nBody.\n")
}

#[test]
fn a_plain_skill_is_read() {
    let text = "---\nname: demo-skill\ndescription: Does a demo.\nlicense: MIT\n---\n\n# Demo\n";
    let Parsed { skill, warnings } = ok(text);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!((skill.name.as_str(), skill.id.as_str()), ("demo-skill", "demo-skill"));
    assert_eq!(skill.description, "Does a demo.");
    assert_eq!((skill.body.as_str(), skill.body_line), ("# Demo\n", 7));
    assert_eq!(skill.fields, ["name", "description", "license"]);
    assert!(skill.front_matter.contains("license: MIT\n"));
    assert_eq!(skill.folder, Path::new("skills/demo-skill"));
    assert_eq!(skill.digest_hex(), blake3::hash(text.as_bytes()).to_hex().to_string());
}

#[test]
fn body_line_points_at_the_body() {
    for text in [
        "---\nname: demo-skill\ndescription: x\n---\nfirst\n",
        "\n\n---\nname: demo-skill\ndescription: x\n---\n\n \n  first\n",
        "---\r\nname: demo-skill\r\ndescription: x\r\n---\r\n\r\nfirst\r\n",
    ] {
        let skill = ok(text).skill;
        let line = text.lines().nth(skill.body_line as usize - 1).unwrap();
        assert_eq!(Some(line), skill.body.lines().next(), "{text:?}");
    }
}

#[test]
fn indent_of_the_first_line_stays() {
    let text = "---\nname: demo-skill\ndescription: x\n---\n\n    code\n";
    assert_eq!(ok(text).skill.body, "    code\n");
}

#[test]
fn encodings() {
    let text = "---\nname: demo-skill\ndescription: Stepped — übersicht.\n---\n# Demo\n\nOne.\n";
    let plain = ok(text).skill;
    let crlf = ok(&text.replace('\n', "\r\n")).skill;
    assert_eq!((&plain.body, &plain.description), (&crlf.body, &crlf.description));
    let marked = ok(&format!("\u{feff}{text}")).skill;
    assert_eq!((&plain.body, plain.body_line), (&marked.body, marked.body_line));

    let path = Path::new("demo/SKILL.md");
    let bad = b"---\nname: demo\ndescription: caf\xe9\n---\nx\n";
    let finding = parse(bad, path).expect_err("latin 1");
    assert_eq!((finding.code, finding.line), (Code::NotUtf8, Some(3)));
    assert_eq!(read(b"\xff\xfe-\0-\0-\0"), Err(Code::NotUtf8));
    assert_eq!(refused("---\nname: a\ndescription: x\n---\n\0\n"), Code::BinaryFile);
}

#[test]
fn delimiters() {
    let fields = "name: demo-skill\ndescription: x";
    assert_eq!(refused(""), Code::NoFrontMatter);
    assert_eq!(refused("# Title\n\n---\nname: a\n---\n"), Code::NoFrontMatter);
    assert_eq!(refused(&format!("---x\n{fields}\n---\n")), Code::NoFrontMatter);
    assert_eq!(refused("---"), Code::UnterminatedFrontMatter);
    assert_eq!(refused(&format!("---\n{fields}\n\n# Demo\n")), Code::UnterminatedFrontMatter);
    assert_eq!(refused(&format!("---\n{fields}\n ---\n")), Code::UnterminatedFrontMatter);
    assert_eq!(refused("---\n---\n# Demo\n"), Code::DescriptionMissing);
    assert_eq!(ok(&format!("---\n{fields}\n---")).skill.body, "");
    assert_eq!(warnings(&format!("\n\n---\n{fields}\n---\nx")), [Code::LeadingContent]);
    let rule = format!("---\n{fields}\n---\none\n\n---\n\ntwo\n");
    assert_eq!(ok(&rule).skill.body, "one\n\n---\n\ntwo\n");
    let dashes = "---\nname: demo-skill\ndescription: \"Splits at --- marks\"\n---\nx\n";
    assert_eq!(ok(dashes).skill.description, "Splits at --- marks");
}

#[test]
fn front_matter_that_is_not_a_mapping() {
    assert_eq!(refused(&with_front("- name: a\n- description: x")), Code::NotAMapping);
    assert_eq!(refused(&with_front("just text")), Code::NotAMapping);
    assert_eq!(refused(&with_front("12")), Code::NotAMapping);
    assert_eq!(refused(&with_front("name: [a\ndescription")), Code::YamlUnparseable);
}

#[test]
fn values_keep_their_spelling() {
    let description = |value: &str| {
        ok(&with_front(&format!("name: demo-skill\ndescription: {value}"))).skill.description
    };
    assert_eq!(description("007"), "007");
    assert_eq!(description("1.10"), "1.10");
    assert_eq!(description("2026-01-05"), "2026-01-05");
    assert_eq!(description("yes"), "yes");
    assert_eq!(description("|\n  First.\n  Second."), "First.\nSecond.");
    assert_eq!(description(">-\n  First\n  half."), "First half.");
    assert_eq!(description("'It''s <b> & \"c\"'"), "It's <b> & \"c\"");
}

#[test]
fn invalid_yaml_is_recovered_line_by_line() {
    let front = "name: demo-skill\ndescription: Plans: no questions, [only] \"what\" was said";
    let parsed = ok(&with_front(front));
    assert_eq!(parsed.skill.description, "Plans: no questions, [only] \"what\" was said");
    assert_eq!(parsed.warnings[0].code, Code::YamlRecovered);
    let flags = "name: demo-skill\ndescription: x\nargument-hint: [path] [--full]";
    assert_eq!(warnings(&with_front(flags)), [Code::YamlRecovered, Code::UnknownField]);
    let folded = ok(&with_front("name: demo-skill\ndescription:\n  One: two:\n  and: more"));
    assert_eq!(folded.skill.description, "One: two: and: more");
    let block = ok(&with_front("bad: [\nname: demo-skill\ndescription: |\n  One.\n  Two."));
    assert_eq!(block.skill.description, "One.\nTwo.");
    assert_eq!(refused(&with_front("bad: [\nno field\nname: a")), Code::YamlUnparseable);
}

#[test]
fn names() {
    let named = |name: &str| with_front(&format!("name: {name}\ndescription: x"));
    assert_eq!(warnings(&named("other")), [Code::NameDirMismatch]);
    assert_eq!(warnings(&named("Demo Skill")), [Code::NameInvalid, Code::NameDirMismatch]);
    for invalid in ["-a", "a-", "a--b", "a_b"] {
        assert!(warnings(&named(invalid)).contains(&Code::NameInvalid), "{invalid}");
    }
    let longest = "a".repeat(NAME_CHARS_MAX);
    assert_eq!(warnings(&named(&longest)), [Code::NameDirMismatch]);
    assert!(warnings(&named(&format!("{longest}a"))).contains(&Code::NameTooLong));
    for dangerous in ["../etc", "a/b", "a\\b", "..", "\"a\\nb\""] {
        assert_eq!(refused(&named(dangerous)), Code::NameUnsafe, "{dangerous}");
    }
    let unnamed = ok(&with_front("description: x"));
    assert_eq!(unnamed.skill.name, "demo-skill");
    assert_eq!(unnamed.warnings[0].code, Code::NameMissing);
    let nowhere = parse(b"---\ndescription: x\n---\n", Path::new("SKILL.md"));
    assert_eq!(nowhere.expect_err("no folder either").code, Code::NameMissing);
}

#[test]
fn limits() {
    let described =
        |n: usize| with_front(&format!("name: demo-skill\ndescription: {}", "d".repeat(n)));
    assert!(warnings(&described(DESCRIPTION_CHARS_MAX)).is_empty());
    assert_eq!(warnings(&described(DESCRIPTION_CHARS_MAX + 1)), [Code::DescriptionTooLong]);
    assert_eq!(refused(&with_front("name: a\ndescription: '  '")), Code::DescriptionMissing);
    assert_eq!(refused(&with_front("name: a\ndescription: ~")), Code::DescriptionMissing);
    let huge = format!("{}{}", described(1), "x".repeat(FILE_BYTES_MAX as usize));
    assert_eq!(refused(&huge), Code::TooLarge);
    assert_eq!(refused(&described(super::FRONT_MATTER_BYTES_MAX)), Code::TooLarge);
}

#[test]
fn hostile_yaml_is_refused_quickly() {
    let brackets = |n: usize| format!("x: {}{}", "[".repeat(n), "]".repeat(n));
    let deep = |n: usize| with_front(&format!("name: demo-skill\ndescription: x\n{}", brackets(n)));
    assert_eq!(refused(&deep(40)), Code::YamlTooDeep);
    assert_eq!(refused(&deep(5000)), Code::YamlTooDeep);
    let nested: Vec<String> = (0..100).map(|n| format!("{}k:", " ".repeat(n))).collect();
    assert_eq!(refused(&with_front(&format!("name: a\n{}", nested.join("\n")))), Code::YamlTooDeep);
    let mut bomb = vec!["name: a\ndescription: x\na0: &a0 [x,x,x,x,x,x,x,x,x]".to_owned()];
    for n in 1..12 {
        let before = format!("*a{}", n - 1);
        bomb.push(format!("a{n}: &a{n} [{}]", [before.as_str(); 9].join(",")));
    }
    let bomb = bomb.join("\n");
    let code = refused(&with_front(&bomb));
    assert!(matches!(code, Code::YamlAlias | Code::TooLarge), "{code}");
}

#[test]
fn thousands_of_broken_lines_are_all_kept() {
    let lines: Vec<String> = (0..4000).map(|n| format!("k{n}: a: b")).collect();
    let parsed =
        ok(&with_front(&format!("name: demo-skill\ndescription: x\n{}", lines.join("\n"))));
    assert_eq!(parsed.skill.extra.len(), 4000);
    assert_eq!(parsed.skill.extra[3999], ("k3999".to_owned(), "a: b".to_owned()));
    assert_eq!(parsed.warnings.len(), 4001, "one for each field, and that it was recovered");
}

#[test]
fn keys_are_checked() {
    let front = "name: demo-skill\ndescription: one\nmodel: big\ndescription: two";
    let parsed = ok(&with_front(front));
    assert_eq!(parsed.skill.description, "two");
    let found: Vec<_> = parsed.warnings.iter().map(|w| (w.code, w.line)).collect();
    assert_eq!(found, [(Code::UnknownField, Some(4)), (Code::DuplicateKey, Some(5))]);
}

proptest! {
    #[test]
    fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_front_matter_gives_an_answer(front in "[ -~\n&*\\[{:\"'|>#]{0,200}", body in ".{0,40}") {
        let _ = read(format!("---\n{front}\n---\n{body}").as_bytes());
    }

    #[test]
    fn what_is_written_is_read(
        name in "[a-z]{1,9}(-[a-z0-9]{1,5}){0,2}",
        description in "[A-Za-z][ -~]{0,80}",
        body in "[A-Za-z#][ -~\n]{0,200}",
        crlf in any::<bool>(),
    ) {
        let quoted = serde_json::to_string(&description).unwrap();
        let text = format!("---\nname: {name}\ndescription: {quoted}\n---\n{body}");
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let path = format!("root/{name}/SKILL.md");
        let parsed = parse(text.as_bytes(), Path::new(&path)).expect("it is well formed");
        prop_assert_eq!(&parsed.skill.name, &name);
        prop_assert_eq!(&parsed.skill.description, description.trim());
        prop_assert_eq!(&parsed.skill.body, &body);
        prop_assert!(parsed.warnings.is_empty());
    }
}
