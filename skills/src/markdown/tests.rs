//! Tests of splitting a body into units.

use proptest::prelude::*;

use super::{UnitKind, links, units};

#[test]
fn headings_text_and_code_are_told_apart() {
    let body = "Intro.\n\n# Roll back ##\n1. Stop.\n\n```bash\n# not a heading\nrun --now\n```\n\n\
                Title\n-----\n- last\n";
    let found: Vec<_> =
        units(body).into_iter().map(|u| (u.kind, u.text, u.line, u.heading)).collect();
    let expected = [
        (UnitKind::Text, "Intro.", 0, None),
        (UnitKind::Heading, "Roll back", 2, None),
        (UnitKind::Text, "1. Stop.", 3, Some(1)),
        (UnitKind::Code, "```bash", 5, Some(1)),
        (UnitKind::Code, "# not a heading", 6, Some(1)),
        (UnitKind::Code, "run --now", 7, Some(1)),
        (UnitKind::Heading, "Title", 10, None),
        (UnitKind::Text, "- last", 12, Some(6)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn code_without_fence_is_code() {
    let found: Vec<_> = units("text\n\n    # code\n    more\n").iter().map(|u| u.kind).collect();
    assert_eq!(found, [UnitKind::Text, UnitKind::Code, UnitKind::Code]);
}

#[test]
fn links_are_those_to_files() {
    let body = "See [a](references/a.md#top) and ![b](assets/b%20c.png).\n\n\
                [web](https://example.com/x.md) [top](#top) [root](/etc/x) [any](<name>.md)\n\
                `[code](x.md)`\n\n```\n[fence](y.md)\n```\n\n- [c]: not a link\n- [d](../d.md)\n";
    let found: Vec<_> = links(body).into_iter().map(|link| (link.target, link.line)).collect();
    let expected = [("references/a.md", 0), ("assets/b c.png", 0), ("../d.md", 10)];
    assert_eq!(found, expected.map(|(target, line)| (target.to_owned(), line)));
}

proptest! {
    #[test]
    fn every_line_with_a_word_is_one_unit(body in "[a-z#`\\- \n>|*0-9é]{0,200}") {
        let lines: Vec<&str> = body.split('\n').collect();
        let found = units(&body);
        let with_words = lines.iter().filter(|line| line.contains(char::is_alphanumeric)).count();
        prop_assert_eq!(found.len(), with_words);
        for (at, unit) in found.iter().enumerate() {
            prop_assert!(lines[unit.line as usize].contains(unit.text));
            prop_assert!(unit.heading.is_none_or(|above| above < at));
        }
    }
}
