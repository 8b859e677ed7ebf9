//! Tests of splitting and stemming.

use proptest::prelude::*;

use super::{all_words, is_stop, is_weak, stem, words};

#[test]
fn forms_of_a_word_meet() {
    let families: [&[&str]; 12] = [
        &["deploy", "deploys", "deployed", "deploying", "deployment", "deployments"],
        &["restore", "restores", "restored", "restoring"],
        &["rotate", "rotates", "rotation", "rotating"],
        &["stop", "stops", "stopped", "stopping"],
        &["fill", "fills", "filled", "filling"],
        &["policy", "policies"],
        &["box", "boxes"],
        &["branch", "branches"],
        &["process", "processes", "processed", "processing"],
        &["cache", "caches", "cached", "caching"],
        &["verify", "verifies", "verifying"],
        &["load", "loads", "loaded", "loader", "loading"],
    ];
    for family in families {
        for form in family {
            assert_eq!(stem(form), stem(family[0]), "{form} and {}", family[0]);
        }
    }
}

#[test]
fn different_words_stay_apart() {
    for (a, b) in [("stage", "stop"), ("status", "state"), ("ring", "red"), ("e1186", "e1187")] {
        assert_ne!(stem(a), stem(b));
    }
}

#[test]
fn text_is_split_at_marks() {
    assert_eq!(
        all_words("Isn't `pool.max` svc_siphon /healthz?"),
        ["isn", "pool", "max", "svc", "siphon", "healthz"]
    );
    assert_eq!(words("How do I roll back the deploy?"), ["roll", "back", "deploy"]);
    assert!(all_words(&"x".repeat(500)).is_empty());
    assert!(is_stop("the") && is_stop("x") && !is_stop("7") && !is_stop("deploy"));
    assert!(is_weak("42") && is_weak(&stem("explain")) && !is_weak("e42") && !is_weak("canary"));
}

proptest! {
    #[test]
    fn any_text_can_be_split(text in any::<String>()) {
        for word in all_words(&text) {
            prop_assert!(!word.is_empty() && word.chars().all(|c| !c.is_whitespace()));
            prop_assert!(!stem(&word).is_empty());
        }
    }
}
