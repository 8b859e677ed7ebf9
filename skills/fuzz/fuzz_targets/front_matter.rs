//! Any bytes as a `SKILL.md`: an answer, and one that cannot leave its place.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use skillgraft_skills::{Catalog, CatalogFormat, Severity, parse, units};

fuzz_target!(|bytes: &[u8]| {
    let file = Path::new("root/demo-skill/SKILL.md");
    let parsed = match parse(bytes, file) {
        Ok(parsed) => parsed,
        Err(finding) => {
            assert_eq!(finding.severity, Severity::Error);
            assert!(!finding.hint.is_empty() && !finding.message.is_empty());
            return;
        }
    };
    let skill = &parsed.skill;
    assert!(!skill.description.is_empty() && !skill.name.contains(['/', '\\', '\n']));
    assert!(skill.body.is_empty() || String::from_utf8_lossy(bytes).replace("\r\n", "\n").ends_with(&skill.body));
    for unit in units(&skill.body) {
        assert!(skill.body.contains(unit.text));
    }
    let again = parse(bytes, file).expect("the same bytes give the same answer");
    assert_eq!(again, parsed);
    let catalog = Catalog::from_skills(vec![parsed.skill]);
    let lines = catalog.render();
    assert!(lines.matches('\n').count() <= 1 && !lines.contains(['<', '>']));
    let xml = catalog.render_as(CatalogFormat::Xml);
    assert!(xml.is_empty() || xml.matches("</available_skills>").count() == 1);
    let count = |text: &str| text.len();
    let budgeted = catalog.render_within(CatalogFormat::Lines, 80, &count);
    assert!(budgeted.text.len() <= 80);
});
