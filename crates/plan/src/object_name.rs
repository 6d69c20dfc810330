//! Names of the objects that belong to an `Infra`.

/// The longest name that every kind accepts: that of a Service, one DNS label.
const LONGEST: usize = 63;

/// `base` and `suffix` with a dash between them. A label has no dots: they become dashes. What was changed by that or
/// gets too long, and is then cut, ends in 8 hexadecimal digits of a hash of the whole: so two names that look alike stay
/// two.
pub fn object_name(base: &str, suffix: &str) -> String {
    let whole = format!("{base}-{suffix}");
    if whole.len() <= LONGEST && !whole.contains('.') {
        return whole;
    }
    let mut kept = String::new();
    for character in whole.replace('.', "-").chars() {
        if kept.len() + character.len_utf8() > LONGEST - 9 {
            break;
        }
        kept.push(character);
    }
    let kept = kept.trim_end_matches('-'); // which does not read well before the hash
    format!("{kept}-{:08x}", hash(&whole))
}

/// The namespace of a hosted control plane, as HyperShift names it.
pub fn control_plane_namespace(namespace: &str, name: &str) -> String {
    format!("{namespace}-{}", name.replace('.', "-"))
}

/// FNV-1a: not secret, only spread well, and the same for ever.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_is_whole() {
        assert_eq!(object_name("my-cluster", "dhcp"), "my-cluster-dhcp");
    }

    #[test]
    fn long_names_that_begin_alike_stay_two() {
        let (a, b) = ("x".repeat(80) + "a", "x".repeat(80) + "b");
        let (a, b) = (object_name(&a, "dns"), object_name(&b, "dns"));
        assert_ne!(a, b);
        assert_eq!((a.len(), b.len()), (63, 63));
        assert_eq!(
            a,
            object_name(&("x".repeat(80) + "a"), "dns"),
            "the name never changes"
        );
    }

    #[test]
    fn a_name_with_dots_is_one_label_and_no_other_s() {
        let (dotted, dashed) = (object_name("a.b", "dns"), object_name("a-b", "dns"));
        assert_eq!(dashed, "a-b-dns");
        assert!(dotted.starts_with("a-b-dns-") && dotted.len() == 16, "{dotted}");
    }

    #[test]
    fn dots_of_a_cluster_name_become_dashes() {
        assert_eq!(control_plane_namespace("clusters", "a.b"), "clusters-a-b");
    }
}
