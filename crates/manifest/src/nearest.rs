//! The known word that somebody most likely meant.

/// The candidate that is nearest to `word`, if one is near enough to be a slip of the pen.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong: `cird` for `cidr`, but not `range` for `gateway`.
    let allowed = (word.chars().count() / 3).max(1) + 1;
    candidates
        .into_iter()
        .map(|candidate| {
            (
                distance(&word.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, dropped or changed to turn one word into the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (to, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            left = (diagonal + usize::from(from != *to)).min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        let fields = ["cidr", "gateway", "dnsServers", "networkAttachmentDefinition"];
        assert_eq!(nearest("cird", fields), Some("cidr"));
        assert_eq!(nearest("dnsservers", fields), Some("dnsServers"));
        assert_eq!(
            nearest("networkAttachmentDefinitoin", fields),
            Some("networkAttachmentDefinition")
        );
    }

    #[test]
    fn a_different_word_is_not() {
        assert_eq!(nearest("replicas", ["cidr", "gateway"]), None);
        assert_eq!(nearest("x", ["cidr"]), None);
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
