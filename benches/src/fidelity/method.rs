//! The ways of getting a skill into a context that are compared.

use skillgraft::Prompts;
use skillgraft_engine::{EngineError, Model};
use skillgraft_kv::{AnchorKind, TokenId};

use super::layout::SkillTokens;
use crate::error::Error;

/// A way of getting a skill into a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Full prefill, a second time in other chunks: the noise floor.
    Exact,
    /// The skill is left out: what answers are without it.
    NoSkill,
    /// A block that was compiled behind nothing.
    GraftLone,
    /// A block that was compiled behind a short system turn and its header.
    GraftNeutral,
    /// A block that was compiled behind the real prefix and its header.
    GraftPrefix,
    /// A block that was compiled behind the real prefix, a turn of small talk and its
    /// header.
    GraftTurn,
    /// The block behind the real prefix, and the lines computed anew that the question is about.
    Repair,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 7] = [
        Method::Exact,
        Method::NoSkill,
        Method::GraftLone,
        Method::GraftNeutral,
        Method::GraftPrefix,
        Method::GraftTurn,
        Method::Repair,
    ];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Exact => "exact",
            Method::NoSkill => "no-skill",
            Method::GraftLone => "graft-lone",
            Method::GraftNeutral => "graft-neutral",
            Method::GraftPrefix => "graft-prefix",
            Method::GraftTurn => "graft-turn",
            Method::Repair => "repair",
        }
    }

    /// What its blocks are compiled behind; `None` when it grafts none.
    pub(super) fn anchor(
        self,
        model: &Model,
        prefix: &[TokenId],
        opening: &[TokenId],
        skill: &SkillTokens,
    ) -> Result<Option<(AnchorKind, Vec<TokenId>)>, EngineError> {
        Ok(match self {
            Method::Exact | Method::NoSkill => None,
            Method::GraftLone => Some((AnchorKind::None, Vec::new())),
            Method::GraftNeutral => {
                let anchor = Prompts::new(model).neutral_anchor(&skill.header)?;
                Some((AnchorKind::Neutral, anchor))
            }
            Method::GraftTurn => {
                let turn = Prompts::new(model).small_talk()?;
                Some((AnchorKind::Prefix, [prefix, &turn, opening, &skill.header].concat()))
            }
            Method::GraftPrefix | Method::Repair => {
                Some((AnchorKind::Prefix, [prefix, opening, &skill.header].concat()))
            }
        })
    }
}

/// Reads a list of method names, separated by commas; `graft` stands for all that
/// graft. The order and repetitions do not matter; `exact` is always among them,
/// since everything is compared with it.
///
/// # Errors
/// [`Error::UnknownMethod`].
pub fn parse_methods(list: &str) -> Result<Vec<Method>, Error> {
    let mut methods = vec![Method::Exact];
    for name in list.split(',').map(str::trim) {
        let is_meant = |method: &&Method| {
            method.name() == name || (name == "graft" && method.name().starts_with("graft-"))
        };
        let meant: Vec<Method> = Method::ALL.iter().filter(is_meant).copied().collect();
        if meant.is_empty() {
            let known: Vec<&str> = Method::ALL.iter().map(|method| method.name()).collect();
            let known = format!("graft, {}", known.join(", "));
            return Err(Error::UnknownMethod { found: name.to_owned(), known });
        }
        methods.extend(meant);
    }
    methods.sort_unstable();
    methods.dedup();
    Ok(methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_methods() {
        let grafts = [
            Method::Exact,
            Method::GraftLone,
            Method::GraftNeutral,
            Method::GraftPrefix,
            Method::GraftTurn,
        ];
        assert_eq!(parse_methods("exact,graft").unwrap(), grafts);
        assert_eq!(parse_methods(" graft-prefix , graft,graft-lone").unwrap(), grafts);
        assert_eq!(parse_methods("no-skill").unwrap(), [Method::Exact, Method::NoSkill]);
        for bad in ["", "exact,", "mend", "graft-"] {
            let error = parse_methods(bad).unwrap_err();
            assert!(matches!(error, Error::UnknownMethod { .. }), "{bad}: {error}");
        }
    }
}
