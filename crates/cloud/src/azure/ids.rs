//! Names of things in Azure: paths in which case does not matter. Pure.

/// The machine of `azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/N`, as a path
/// in lower case. Machines of scale sets are not changed one by one, so they are none.
pub(super) fn machine_id(provider_id: &str) -> Option<String> {
    let path = provider_id.strip_prefix("azure://")?.to_ascii_lowercase();
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [
            "",
            "subscriptions",
            subscription,
            "resourcegroups",
            group,
            "providers",
            "microsoft.compute",
            "virtualmachines",
            name,
        ] if [subscription, group, name].iter().all(|part| is_name(part)) => Some(path),
        _ => None,
    }
}

/// Whether this is a machine of a scale set that keeps its machines alike. Those of a flexible one are like any other.
pub(super) fn is_of_scale_set(provider_id: &str) -> bool {
    let path = provider_id.to_ascii_lowercase();
    path.starts_with("azure://") && path.contains("/virtualmachinescalesets/")
}

/// What names consist of. Nothing else becomes part of an address that is asked.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.()".contains(c))
}

/// The first four parts of a path: `/subscriptions/S/resourceGroups/G`.
pub(super) fn group(id: &str) -> Option<String> {
    let end = id.match_indices('/').nth(4)?.0;
    let group = &id[..end];
    let plain = group.split('/').skip(1).all(is_name);
    plain.then(|| group.to_ascii_lowercase())
}

/// The network of a subnet: its path without the last two parts.
pub(super) fn network(subnet: &str) -> Option<String> {
    let end = subnet.to_ascii_lowercase().rfind("/subnets/")?;
    let network = &subnet[..end];
    let plain = network.starts_with('/') && network.split('/').skip(1).all(is_name);
    plain.then(|| network.to_ascii_lowercase())
}

/// The last part of a path.
pub(super) fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: &str =
        "azure:///subscriptions/S-1/resourceGroups/Mgmt-RG/providers/Microsoft.Compute/virtualMachines/w1";

    #[test]
    fn the_machine_is_read_from_a_provider_id_whatever_its_case() {
        let id = machine_id(VM).unwrap();
        assert_eq!(
            id,
            "/subscriptions/s-1/resourcegroups/mgmt-rg/providers/microsoft.compute/virtualmachines/w1"
        );
        assert_eq!(
            group(&id).as_deref(),
            Some("/subscriptions/s-1/resourcegroups/mgmt-rg")
        );
        for end in 0..VM.len() {
            let cut = machine_id(&VM[..end]);
            assert!(cut.is_none() || end > VM.len() - 2, "{}", &VM[..end]);
        }
        let of_set = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/x/virtualMachines/0";
        assert!(is_of_scale_set(of_set) && !is_of_scale_set(VM));
        for wrong in [
            "aws:///a/i-1",
            of_set,
            "azure:///subscriptions/s?x/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/w1",
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a b",
        ] {
            assert_eq!(machine_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_network_is_what_holds_a_subnet() {
        let subnet =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/w";
        assert_eq!(
            network(subnet).as_deref(),
            Some("/subscriptions/s/resourcegroups/g/providers/microsoft.network/virtualnetworks/v")
        );
        assert_eq!(network("v/subnets/w"), None);
        assert_eq!(network("https://elsewhere/subnets/w"), None);
    }
}
