//! What Azure's resource manager answers. Pure.

use std::net::Ipv4Addr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A list that comes in parts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<T> {
    pub(super) value: Vec<T>,
    pub(super) next_link: Option<String>,
}

/// Most things have their fields inside.
#[derive(Debug, Deserialize)]
pub(super) struct Resource<P> {
    pub(super) id: String,
    pub(super) properties: P,
}

/// A machine.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Machine {
    network_profile: NetworkProfile,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkProfile {
    #[serde(default)]
    network_interfaces: Vec<Attached>,
}

#[derive(Debug, Deserialize)]
struct Attached {
    id: String,
    properties: Option<IsPrimary>,
}

#[derive(Debug, Deserialize)]
struct IsPrimary {
    #[serde(default)]
    primary: bool,
}

impl Machine {
    /// Its first interface: the one that says so, else the only one.
    pub(super) fn interface(&self) -> Option<&str> {
        let all = &self.network_profile.network_interfaces;
        let primary = all
            .iter()
            .find(|one| one.properties.as_ref().is_some_and(|one| one.primary));
        let found = primary.or(match all.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        found.map(|one| one.id.as_str())
    }
}

/// An interface.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interface {
    #[serde(default)]
    pub(super) ip_configurations: Vec<Configuration>,
}

/// An address of an interface.
#[derive(Debug, Deserialize)]
pub(super) struct Configuration {
    #[serde(default)]
    pub(super) id: String,
    pub(super) properties: Option<Address>,
}

/// An address.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Address {
    #[serde(rename = "privateIPAddress")]
    pub(super) address: Option<String>,
    #[serde(default)]
    pub(super) primary: bool,
    pub(super) subnet: Option<Reference>,
}

/// The name of something else.
#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    pub(super) id: String,
}

impl Interface {
    /// Its addresses of IPv4, and whether each is its own.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (Ipv4Addr, bool)> + '_ {
        let configurations = self
            .ip_configurations
            .iter()
            .filter_map(|one| one.properties.as_ref());
        configurations.filter_map(|one| Some((one.address.as_ref()?.parse().ok()?, one.primary)))
    }

    /// The subnet that it is in.
    pub(super) fn subnet(&self) -> Option<&str> {
        let mut configurations = self
            .ip_configurations
            .iter()
            .filter_map(|one| one.properties.as_ref());
        configurations.find_map(|one| Some(one.subnet.as_ref()?.id.as_str()))
    }
}

/// A network with the addresses in use.
#[derive(Debug, Deserialize)]
pub(super) struct Network {
    #[serde(default)]
    subnets: Vec<Subnet>,
}

#[derive(Debug, Deserialize)]
struct Subnet {
    properties: Option<Interface>,
}

impl Network {
    /// Every address that is in use there, with the path of what uses it.
    pub(super) fn used(&self) -> impl Iterator<Item = (Ipv4Addr, &str)> + '_ {
        let subnets = self
            .subnets
            .iter()
            .filter_map(|subnet| subnet.properties.as_ref());
        let configurations = subnets.flat_map(|subnet| &subnet.ip_configurations);
        configurations.filter_map(|one| {
            let address = one.properties.as_ref()?.address.as_ref()?.parse().ok()?;
            Some((address, one.id.as_str()))
        })
    }
}

/// A token, and for how many seconds it is good.
#[derive(Deserialize)]
pub(super) struct Token {
    pub(super) access_token: String,
    pub(super) expires_in: u32,
}

/// What went wrong, in Azure's words: a code and a sentence. Both the resource manager and the giver of tokens.
pub(super) fn fault(text: &str) -> (String, String) {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let inner = &value["error"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match inner {
        Value::String(code) => (code.clone(), word(&value["error_description"])),
        _ => (word(&inner["code"]), word(&inner["message"])),
    }
}

/// Reads an answer.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("the answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: &str = r#"{"id": "/v", "properties": {"subnets": [{"properties": {"ipConfigurations": [
        {"id": "/nics/db/ipConfigurations/a", "properties": {"privateIPAddress": "10.0.0.9"}},
        {"id": "/nics/lb/ipConfigurations/a"}]}}, {}]}}"#;

    #[test]
    fn the_first_interface_is_the_one_that_says_so_or_the_only_one() {
        let read = |interfaces: &str| -> Machine {
            read(&format!(
                r#"{{"networkProfile": {{"networkInterfaces": {interfaces}}}}}"#
            ))
            .unwrap()
        };
        assert_eq!(read(r#"[{"id": "/a"}]"#).interface(), Some("/a"));
        let two = r#"[{"id": "/a", "properties": {"primary": false}}, {"id": "/b", "properties": {"primary": true}}]"#;
        assert_eq!(read(two).interface(), Some("/b"));
        assert_eq!(
            read(r#"[{"id": "/a"}, {"id": "/b"}]"#).interface(),
            None,
            "nobody says which"
        );
    }

    #[test]
    fn addresses_in_use_are_read_with_their_users() {
        let network: Resource<Network> = read(NETWORK).unwrap();
        let used: Vec<(Ipv4Addr, &str)> = network.properties.used().collect();
        assert_eq!(used, [([10, 0, 0, 9].into(), "/nics/db/ipConfigurations/a")]);
        refuses_every_prefix::<Resource<Network>>(NETWORK);
    }

    const MACHINES: &str = r#"{"value": [{"id": "/m", "properties": {"networkProfile": {"networkInterfaces": [
        {"id": "/nic", "properties": {"primary": true}}]}}}], "nextLink": "https://more"}"#;

    const INTERFACES: &str = r#"{"value": [{"id": "/nic", "properties": {"ipConfigurations": [
        {"properties": {"privateIPAddress": "10.0.0.7", "primary": true, "subnet": {"id": "/v/subnets/w"}}},
        {"properties": {"privateIPAddress": "10.0.0.40"}}, {"properties": {"privateIPAddress": "fd00::1"}}]}}]}"#;

    const TOKEN: &str = r#"{"access_token": "hidden", "expires_in": 3599}"#;

    /// Every beginning of an answer but the answer itself is refused, and none is read as a shorter one.
    fn refuses_every_prefix<T: DeserializeOwned>(text: &str) {
        for end in 0..text.len() {
            assert!(read::<T>(&text[..end]).is_err(), "{end} bytes of {text}");
        }
    }

    #[test]
    fn lists_come_in_parts_and_none_is_read_that_was_cut_off() {
        let machines: List<Resource<Machine>> = read(MACHINES).unwrap();
        assert_eq!(machines.next_link.as_deref(), Some("https://more"));
        assert_eq!(machines.value[0].properties.interface(), Some("/nic"));
        let interfaces: List<Resource<Interface>> = read(INTERFACES).unwrap();
        let interface = &interfaces.value[0].properties;
        let addresses: Vec<(Ipv4Addr, bool)> = interface.addresses().collect();
        assert_eq!(
            addresses,
            [([10, 0, 0, 7].into(), true), ([10, 0, 0, 40].into(), false)]
        );
        assert_eq!(interface.subnet(), Some("/v/subnets/w"));
        refuses_every_prefix::<List<Resource<Machine>>>(MACHINES);
        refuses_every_prefix::<List<Resource<Interface>>>(INTERFACES);
        refuses_every_prefix::<Token>(TOKEN);
    }

    #[test]
    fn faults_of_both_kinds_are_told_by_their_code() {
        let manager = r#"{"error": {"code": "Conflict", "message": "in use"}}"#;
        assert_eq!(fault(manager), ("Conflict".into(), "in use".into()));
        let giver = r#"{"error": "invalid_client", "error_description": "wrong"}"#;
        assert_eq!(fault(giver), ("invalid_client".into(), "wrong".into()));
        for text in ["", "{", "[]", "502 Bad Gateway", r#"{"error": 7}"#] {
            assert_eq!(fault(text), (String::new(), String::new()), "{text}");
        }
    }
}
