//! The changes of an interface. All of it is sent back as it came, but for our addresses. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::Pools;

/// The interface with further addresses, in the subnet of its own; none if there is nothing to change.
pub(super) fn with(
    interface: &Value,
    addresses: &BTreeMap<Ipv4Addr, Pools>,
) -> Result<Option<Value>, String> {
    let mut changed = interface.clone();
    let configurations = configurations(&mut changed)?;
    let own = configurations
        .iter()
        .find(|one| one["properties"]["primary"] == true)
        .or(configurations.first());
    let own = own.ok_or("the interface has no address of its own")?["properties"].clone();
    let before = configurations.len();
    for (address, pools) in addresses {
        let text = address.to_string();
        if configurations
            .iter()
            .any(|one| one["properties"]["privateIPAddress"] == text)
        {
            continue;
        }
        let mut properties = json!({
            "privateIPAddress": text,
            "privateIPAllocationMethod": "Static",
            "privateIPAddressVersion": "IPv4",
            "primary": false,
            "subnet": {"id": own["subnet"]["id"]},
        });
        // Who may reach the machine may reach it by this address too.
        copy(&own, &mut properties, "applicationSecurityGroups");
        if *pools == Pools::AsPrimary {
            copy(&own, &mut properties, "loadBalancerBackendAddressPools");
        }
        configurations.push(json!({"name": format!("EgressIP{address}"), "properties": properties}));
    }
    Ok((configurations.len() != before).then_some(changed))
}

/// The interface without some of its further addresses; none if it has none of them.
pub(super) fn without(interface: &Value, addresses: &BTreeSet<Ipv4Addr>) -> Result<Option<Value>, String> {
    let mut changed = interface.clone();
    let configurations = configurations(&mut changed)?;
    let before = configurations.len();
    configurations.retain(|one| {
        let properties = &one["properties"];
        let address = properties["privateIPAddress"].as_str();
        let address = address.and_then(|text| text.parse().ok());
        properties["primary"] == true || !address.is_some_and(|one| addresses.contains(&one))
    });
    Ok((configurations.len() != before).then_some(changed))
}

fn configurations(interface: &mut Value) -> Result<&mut Vec<Value>, String> {
    let found = interface.pointer_mut("/properties/ipConfigurations");
    let found = found.and_then(Value::as_array_mut);
    found.ok_or_else(|| "the interface has no ipConfigurations".to_owned())
}

/// Copies the references of a list.
fn copy(from: &Value, to: &mut Value, key: &str) {
    let ids: Vec<Value> = from[key]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| Some(json!({"id": one.get("id")?})))
        .collect();
    if !ids.is_empty() {
        to[key] = Value::Array(ids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Value {
        json!({"id": "/nic", "etag": "1", "location": "westeurope", "tags": {"k": "v"}, "properties": {
        "enableIPForwarding": true,
        "ipConfigurations": [
            {"name": "pipConfig", "properties": {"privateIPAddress": "10.0.0.7", "primary": true,
                "subnet": {"id": "/v/subnets/w", "properties": {}},
                "loadBalancerBackendAddressPools": [{"id": "/lb/pool", "properties": {}}]}},
            {"name": "theirs", "properties": {"privateIPAddress": "10.0.0.8", "primary": false}},
        ]}})
    }

    fn added(pools: Pools) -> Value {
        let changed = with(&interface(), &[([10, 0, 0, 9].into(), pools)].into());
        changed.unwrap().unwrap()
    }

    #[test]
    fn an_address_joins_the_pools_of_the_first_one_or_none() {
        let joined = added(Pools::AsPrimary);
        let new = &joined["properties"]["ipConfigurations"][2];
        assert_eq!(new["name"], "EgressIP10.0.0.9");
        assert_eq!(new["properties"]["subnet"], json!({"id": "/v/subnets/w"}));
        assert_eq!(new["properties"]["primary"], false);
        assert_eq!(
            new["properties"]["loadBalancerBackendAddressPools"],
            json!([{"id": "/lb/pool"}])
        );
        let alone = added(Pools::None);
        let new = &alone["properties"]["ipConfigurations"][2];
        assert_eq!(new["properties"].get("loadBalancerBackendAddressPools"), None);
    }

    #[test]
    fn everything_else_of_the_interface_is_sent_back_as_it_came() {
        let mut changed = added(Pools::AsPrimary);
        let configurations = changed["properties"]["ipConfigurations"].as_array_mut();
        configurations.unwrap().pop();
        assert_eq!(changed, interface());
    }

    #[test]
    fn its_own_address_is_never_taken_and_what_is_done_is_not_done_again() {
        let both = [[10, 0, 0, 7].into(), [10, 0, 0, 8].into()].into();
        let changed = without(&interface(), &both).unwrap().unwrap();
        let left = changed["properties"]["ipConfigurations"].as_array().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0]["name"], "pipConfig");
        assert_eq!(without(&changed, &[[10, 0, 0, 8].into()].into()), Ok(None));
        let there = [([10, 0, 0, 8].into(), Pools::None)].into();
        assert_eq!(with(&interface(), &there), Ok(None));
        assert!(with(&json!({}), &there).is_err() && without(&json!([]), &both).is_err());
    }
}
