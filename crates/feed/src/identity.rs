//! Which of two versions of a resource counts: the mounted file's or the watch's.

use serde_json::Value;

/// Which resource a manifest is of, and how new it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: Option<String>,
    pub(crate) generation: Option<i64>,
}

/// Where a manifest came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file, which a kubelet may bring a minute late.
    File,
    /// A watch, which may be answered by an API server that lags behind.
    Watch,
}

impl Identity {
    pub(crate) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        Identity {
            uid: metadata["uid"].as_str().map(str::to_owned),
            generation: metadata["generation"].as_i64(),
        }
    }
}

/// Whether a manifest takes the place of the current one.
///
/// For one uid a generation never goes back, whichever of file and watch is later, and one that was seen already is
/// no news, unless a file was edited. A resource of another uid was made anew: the watch knows that, a file that
/// lags behind does not.
pub(crate) fn supersedes(new: (&Identity, Origin), current: Option<(&Identity, Origin)>) -> bool {
    let (new, origin) = new;
    let Some((current, before)) = current else {
        return true;
    };
    let only_files = origin == Origin::File && before == Origin::File;
    if new.uid.is_none() || new.uid != current.uid {
        return origin == Origin::Watch || only_files;
    }
    match (new.generation, current.generation) {
        (Some(new), Some(current)) if new != current => new > current,
        _ => only_files,
    }
}

#[cfg(test)]
mod tests {
    use super::Origin::{File, Watch};
    use super::*;

    fn at(uid: &str, generation: i64) -> Identity {
        Identity {
            uid: Some(uid.into()),
            generation: Some(generation),
        }
    }

    #[test]
    fn the_first_manifest_counts() {
        assert!(supersedes((&Identity::default(), File), None));
        assert!(supersedes((&at("a", 1), Watch), None));
    }

    #[test]
    fn a_generation_never_goes_back_whichever_comes_later() {
        for (new, before) in [(File, Watch), (Watch, File), (File, File), (Watch, Watch)] {
            assert!(!supersedes((&at("a", 4), new), Some((&at("a", 5), before))));
            assert!(supersedes((&at("a", 6), new), Some((&at("a", 5), before))));
        }
    }

    #[test]
    fn a_generation_that_was_seen_is_no_news() {
        for (new, before) in [(File, Watch), (Watch, File), (Watch, Watch)] {
            assert!(!supersedes((&at("a", 5), new), Some((&at("a", 5), before))));
        }
    }

    #[test]
    fn a_file_that_a_person_edits_counts_until_the_watch_has_spoken() {
        let none = Identity::default();
        assert!(supersedes((&none, File), Some((&none, File))));
        assert!(supersedes((&at("a", 5), File), Some((&at("a", 5), File))));
        assert!(supersedes((&at("a", 1), Watch), Some((&none, File))));
        assert!(!supersedes((&none, File), Some((&at("a", 1), Watch))));
    }

    #[test]
    fn a_resource_that_was_made_anew_counts_when_the_watch_says_so() {
        assert!(supersedes((&at("b", 1), Watch), Some((&at("a", 9), Watch))));
        assert!(supersedes((&at("b", 1), Watch), Some((&at("a", 9), File))));
        assert!(!supersedes((&at("a", 9), File), Some((&at("b", 1), Watch))));
    }

    #[test]
    fn uid_and_generation_are_read_from_the_manifest() {
        let object = serde_json::json!({"metadata": {"uid": "a", "generation": 5}});
        assert_eq!(Identity::of(&object), at("a", 5));
        assert_eq!(Identity::of(&serde_json::json!({})), Identity::default());
    }
}
