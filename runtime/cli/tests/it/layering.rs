//! The allowed edges between our packages. An edge that is not here fails the
//! build: add it only when the design changes.

use std::collections::BTreeSet;

use cargo_metadata::MetadataCommand;

/// A package and the packages of ours that it may depend on, in any way.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("skillgraft-kv", &[]),
    ("skillgraft-kernels", &["skillgraft-kv"]),
    ("skillgraft-store", &["skillgraft-kv"]),
    ("skillgraft-engine", &["skillgraft-kv", "skillgraft-kernels"]),
    ("skillgraft-skills", &[]),
    ("skillgraft-gateway", &[]),
    (
        "skillgraft",
        &[
            "skillgraft-kv",
            "skillgraft-engine",
            "skillgraft-store",
            "skillgraft-skills",
            "skillgraft-gateway",
        ],
    ),
    ("skillgraft-server", &["skillgraft"]),
    (
        "skillgraft-bench",
        &["skillgraft", "skillgraft-engine", "skillgraft-kernels", "skillgraft-kv"],
    ),
    ("skillgraft-cli", &["skillgraft", "skillgraft-server", "skillgraft-bench"]),
    ("skillgraft-examples", &["skillgraft"]),
];

#[test]
fn packages_depend_only_downwards() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs");
    let packages = metadata.workspace_packages();
    let listed: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(found, listed, "every package of the workspace is listed, and no other");

    for package in packages {
        let (_, allowed) = ALLOWED
            .iter()
            .find(|(name, _)| *name == package.name.as_str())
            .expect("the lists were just compared");
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            assert!(
                !listed.contains(name) || allowed.contains(&name),
                "`{}` may not depend on `{name}`",
                package.name,
            );
        }
    }
}

#[test]
fn kv_depends_on_nothing() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs");
    let kv = metadata.packages.iter().find(|package| package.name.as_str() == "skillgraft-kv");
    let used: Vec<&str> = kv
        .expect("skillgraft-kv is in the workspace")
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == cargo_metadata::DependencyKind::Normal)
        .map(|dependency| dependency.name.as_str())
        .collect();
    assert_eq!(used, Vec::<&str>::new());
}
