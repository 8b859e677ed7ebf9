//! Tests of where skills are looked for.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Origin, Places, Roots};
use crate::{Code, Trust};

struct Setting {
    folder: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for path in ["repo/.git", "repo/a/b", "home", "given"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        Setting { folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn with(self, paths: &[&str]) -> Self {
        for path in paths {
            fs::create_dir_all(self.at(path)).unwrap();
        }
        self
    }

    fn places(&self, working: &str) -> Places {
        Places {
            working: self.at(working),
            home: Some(self.at("home")),
            config: Some(self.at("home/.config/skillgraft")),
            further: Vec::new(),
        }
    }

    fn names(&self, roots: &Roots, origin: Origin) -> Vec<String> {
        let of_origin = roots.roots.iter().filter(|root| root.origin == origin);
        let relative = |path: &Path| path.strip_prefix(self.folder.path()).unwrap().to_owned();
        of_origin.map(|root| relative(&root.path).display().to_string()).collect()
    }
}

#[test]
fn given_first_then_the_project_from_within_then_the_user() {
    let setting = Setting::new();
    let mut trust = Trust::open(&setting.at("trusted")).unwrap();
    trust.add(&setting.at("repo")).unwrap();
    let given = [setting.at("given"), setting.at("repo/../given")];
    let roots = Roots::discover(&given, &setting.places("repo/a/b"), &trust);
    assert_eq!(setting.names(&roots, Origin::Given), ["given"]);
    let project = setting.names(&roots, Origin::Project);
    assert_eq!(project[0], "repo/a/b/.skillgraft/skills");
    assert_eq!(project.last().unwrap(), "repo/.claude/skills");
    assert_eq!(project.len(), 9, "three folders on each of three levels: {project:?}");
    let user = ["home/.config/skillgraft/skills", "home/.agents/skills", "home/.claude/skills"];
    assert_eq!(setting.names(&roots, Origin::User), user);
    let origins: Vec<Origin> = roots.roots.iter().map(|root| root.origin).collect();
    assert!(origins.is_sorted_by_key(|origin| match origin {
        Origin::Given => 0,
        Origin::Project => 1,
        Origin::User => 2,
    }));
}

#[test]
fn an_untrusted_project_is_left_out_and_told() {
    let setting = Setting::new().with(&["repo/.claude/skills"]);
    let roots = Roots::discover(&[], &setting.places("repo/a"), &Trust::none());
    assert!(setting.names(&roots, Origin::Project).is_empty());
    let [finding] = &roots.findings[..] else { panic!("{:?}", roots.findings) };
    assert_eq!(
        (finding.code, &finding.path),
        (Code::Untrusted, &setting.at("repo/.claude/skills"))
    );
    assert!(finding.hint.contains(&setting.at("repo").display().to_string()));
    let none = Roots::discover(&[], &setting.places("given"), &Trust::none());
    assert!(none.findings.is_empty(), "a folder without skills asks for no trust");
}

#[test]
fn the_home_folder_is_the_users_own() {
    let setting = Setting::new().with(&["home/.claude/skills"]);
    let roots = Roots::discover(&[], &setting.places("home"), &Trust::none());
    assert!(roots.findings.is_empty(), "{:?}", roots.findings);
    assert_eq!(setting.names(&roots, Origin::User).len(), 3);
}
