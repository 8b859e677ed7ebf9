//! What differs between two snapshots.
//!
//! **Invariant:** changes are sorted by identifier, and none is reported twice.

use std::cmp::Ordering;

use crate::text::{escape, escape_name};
use crate::{Catalog, Skill};

/// Changes that a message tells one by one: a folder that is checked out anew
/// may change thousands.
const ANNOUNCED_MAX: usize = 20;

/// A skill that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogChange {
    /// Which skill.
    pub id: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// Digest of its file before; `None` when it was not there.
    pub old_digest: Option<[u8; 32]>,
    /// Digest of its file now; `None` when it is not there.
    pub new_digest: Option<[u8; 32]>,
}

/// What became of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its file has other content.
    Changed {
        /// Whether the body is as it was: what was compiled of it stays valid.
        front_matter_only: bool,
    },
}

impl Catalog {
    /// What has changed from `before` to this snapshot. A skill that is found in
    /// another place with the same content has not changed.
    pub fn changes_since(&self, before: &Catalog) -> Vec<CatalogChange> {
        if self.is_same(before) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let (mut old, mut new) = (before.skills().iter(), self.skills().iter());
        let (mut was, mut is) = (old.next(), new.next());
        loop {
            let order = match (was, is) {
                (None, None) => return changes,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(was), Some(is)) => was.id.as_bytes().cmp(is.id.as_bytes()),
            };
            let one = was.filter(|_| order.is_le());
            let other = is.filter(|_| order.is_ge());
            changes.extend(change(one.map(|s| &**s), other.map(|s| &**s)));
            if order.is_le() {
                was = old.next();
            }
            if order.is_ge() {
                is = new.next();
            }
        }
    }

    /// The changes as a message for a model that has the catalog of before;
    /// `None` when the model was told of none of the skills, then or now.
    pub fn announce(&self, changes: &[CatalogChange], before: &Catalog) -> Option<String> {
        let find = |catalog: &Catalog, id: &str| {
            let at = catalog.skills().binary_search_by(|skill| skill.id.as_str().cmp(id)).ok()?;
            let skill = &catalog.skills()[at];
            skill.invocable.by_model.then(|| skill.clone())
        };
        let mut lines = Vec::new();
        for change in changes {
            let (was, is) = (find(before, &change.id), find(self, &change.id));
            let (word, skill) = match (was, is) {
                (None, None) => continue,
                (None, Some(is)) => ("Added", is),
                (Some(was), None) => ("Removed", was),
                (Some(_), Some(is)) => ("Changed", is),
            };
            let id = escape_name(&crate::text::one_line(&skill.id, usize::MAX));
            lines.push(match word {
                "Removed" => format!("- {word}: {id}\n"),
                _ => format!("- {word}: {id}: {}\n", escape(&skill.one_line_description())),
            });
        }
        let n_more = lines.len().saturating_sub(ANNOUNCED_MAX);
        lines.truncate(ANNOUNCED_MAX);
        if n_more > 0 {
            lines.push(format!("{n_more} more skills have changed; search finds them.\n"));
        }
        (!lines.is_empty()).then(|| format!("[SKILLS UPDATE]\n{}", lines.concat()))
    }
}

fn change(was: Option<&Skill>, is: Option<&Skill>) -> Option<CatalogChange> {
    let kind = match (was, is) {
        (None, None) => return None,
        (None, Some(_)) => ChangeKind::Added,
        (Some(_), None) => ChangeKind::Removed,
        (Some(was), Some(is)) if was.digest == is.digest => return None,
        (Some(was), Some(is)) => ChangeKind::Changed { front_matter_only: was.body == is.body },
    };
    let id = is.or(was)?.id.clone();
    let digest = |skill: Option<&Skill>| skill.map(|skill| skill.digest);
    Some(CatalogChange { id, kind, old_digest: digest(was), new_digest: digest(is) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn catalog(skills: &[(&str, &str, &str)]) -> Catalog {
        let skill =
            |(id, description, body): &(&str, &str, &str)| Skill::in_memory(id, description, body);
        Catalog::from_skills(skills.iter().map(skill).collect())
    }

    #[test]
    fn kinds_of_change() {
        let before =
            catalog(&[("a", "A.", "1"), ("b", "B.", "1"), ("c", "C.", "1"), ("d", "D.", "1")]);
        let after =
            catalog(&[("b", "B!", "1"), ("c", "C.", "2"), ("d", "D.", "1"), ("e", "E.", "1")]);
        let changes = after.changes_since(&before);
        let kinds: Vec<_> = changes.iter().map(|c| (c.id.as_str(), c.kind)).collect();
        let expected = [
            ("a", ChangeKind::Removed),
            ("b", ChangeKind::Changed { front_matter_only: true }),
            ("c", ChangeKind::Changed { front_matter_only: false }),
            ("e", ChangeKind::Added),
        ];
        assert_eq!(kinds, expected);
        assert_eq!((changes[0].new_digest, changes[3].old_digest), (None, None));
        let told = after.announce(&changes, &before).expect("there is something to tell");
        let lines = "- Removed: a\n- Changed: b: B!\n- Changed: c: C.\n- Added: e: E.\n";
        assert_eq!(told, format!("[SKILLS UPDATE]\n{lines}"));
    }

    #[test]
    fn a_message_tells_of_a_bounded_number() {
        let many: Vec<Skill> =
            (0..25).map(|n| Skill::in_memory(&format!("s{n:02}"), "S.", "1")).collect();
        let (none, many) = (catalog(&[]), Catalog::from_skills(many));
        let told = many.announce(&many.changes_since(&none), &none).unwrap();
        assert_eq!(told.lines().count(), 22);
        assert!(
            told.ends_with("- Added: s19: S.\n5 more skills have changed; search finds them.\n")
        );
    }

    #[test]
    fn what_the_model_does_not_see_is_not_told() {
        let mut hidden = Skill::in_memory("h", "H <|im_end|>.", "1");
        hidden.invocable.by_model = false;
        let (none, one) = (catalog(&[]), Catalog::from_skills(vec![hidden.clone()]));
        let changes = one.changes_since(&none);
        assert_eq!((changes.len(), one.announce(&changes, &none)), (1, None));
        hidden.invocable.by_model = true;
        hidden.digest = [7; 32];
        let shown = Catalog::from_skills(vec![hidden]);
        let told = shown.announce(&shown.changes_since(&one), &one).unwrap();
        assert_eq!(told, "[SKILLS UPDATE]\n- Added: h: H &lt;|im_end|&gt;.\n");
    }

    proptest! {
        #[test]
        fn the_difference_is_that_of_two_maps(
            before in proptest::collection::btree_map("[a-f]", 0..3_u8, 0..6),
            after in proptest::collection::btree_map("[a-f]", 0..3_u8, 0..6),
        ) {
            let make = |map: &BTreeMap<String, u8>| {
                let skill = |(id, n): (&String, &u8)| Skill::in_memory(id, "x", &n.to_string());
                Catalog::from_skills(map.iter().map(skill).collect())
            };
            let changed: Vec<String> = make(&after)
                .changes_since(&make(&before))
                .into_iter()
                .map(|change| change.id)
                .collect();
            let ids = before.keys().chain(after.keys());
            let mut expected: Vec<String> =
                ids.filter(|id| before.get(*id) != after.get(*id)).cloned().collect();
            expected.sort();
            expected.dedup();
            prop_assert_eq!(changed, expected);
        }
    }
}
