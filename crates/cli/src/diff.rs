//! The difference of two texts, line by line, with a little of what stays around it.

use std::fmt::Write;

/// So many lines around a change are shown.
const CONTEXT: usize = 3;

/// What leads from one text to the other; nothing if they are the same.
pub(crate) fn lines(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let steps = steps(&old, &new);
    let near = |at: usize| {
        let from = at.saturating_sub(CONTEXT);
        let until = (at + CONTEXT + 1).min(steps.len());
        steps
            .get(from..until)
            .is_some_and(|around| around.iter().any(|(mark, _)| *mark != ' '))
    };
    let mut text = String::new();
    let mut skipped = false;
    for (at, (mark, line)) in steps.iter().enumerate() {
        if near(at) {
            if skipped {
                text.push_str("  …\n");
            }
            // Writing to a string does not fail.
            let _ = writeln!(text, "{mark} {line}");
        }
        skipped = !near(at);
    }
    Some(text)
}

/// Every line once: kept (` `), gone (`-`) or new (`+`), along a longest common subsequence.
fn steps<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    // common[i][j]: how many lines the rests from i and j have in common.
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            steps.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            steps.push(('-', old[i]));
            i += 1;
        } else {
            steps.push(('+', new[j]));
            j += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(lines("a\nb\n", "a\nb\n"), None);
    }

    #[test]
    fn what_changed_is_shown_with_what_is_near_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\n5\nsix\n7\n8\n9\nten\n";
        let shown = lines(old, new).unwrap_or_default();
        assert_eq!(shown, "  …\n  3\n  4\n  5\n- 6\n+ six\n  7\n  8\n  9\n+ ten\n");
        assert_eq!(lines("", "a\n").unwrap_or_default(), "+ a\n");
        assert_eq!(lines("a\n", "").unwrap_or_default(), "- a\n");
    }

    #[test]
    fn far_changes_are_apart() {
        let old: String = (0..30).map(|n| format!("{n}\n")).collect();
        let new = old.replace("2\n3\n", "2\nx\n").replace("27\n", "y\n");
        let shown = lines(&old, &new).unwrap_or_default();
        assert!(
            shown.contains("  …\n") && shown.contains("+ y\n") && !shown.contains("  15\n"),
            "{shown}"
        );
    }
}
