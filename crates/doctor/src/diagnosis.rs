//! Everything that the doctor can say, with its remedy. `docs/doctor.md` has the same table; a test holds them equal.

use serde::Serialize;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Nodes boot, but something needs a look.
    Warning,
    /// Nodes do not boot.
    Failure,
}

impl Severity {
    /// As a word.
    pub fn label(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Failure => "failure",
        }
    }
}

/// A thing that can be wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What programs call it.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it means.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

macro_rules! diagnoses {
    ($($name:ident: $severity:ident, $id:literal, $meaning:literal, $remedy:literal;)*) => {
        $(
            #[doc = $meaning]
            pub static $name: Diagnosis = Diagnosis {
                id: $id,
                severity: Severity::$severity,
                meaning: $meaning,
                remedy: $remedy,
            };
        )*

        /// All of them, in the order in which one can cause the next.
        pub static ALL: &[&Diagnosis] = &[$(&$name),*];
    };
}

diagnoses! {
    INFRA_NOT_READY: Failure, "infra-not-ready", "A condition of the Infra or of one of its servers is not True",
        "The condition's message says what to do; `oooi status NAME` shows all of them.";
    NETWORK_ATTACHMENT_MISSING: Failure, "network-attachment-missing",
        "The NetworkAttachmentDefinition of the Infra does not exist",
        "Create it, or name another one in spec.networkConfig.networkAttachmentDefinition.";
    SERVER_MISSING: Failure, "server-missing", "A server that the Infra asks for has no pod",
        "Look at the Deployment and its events: `kubectl describe deployment`; is `oooi manager` running?";
    POD_NOT_READY: Failure, "pod-not-ready", "A pod of a server is not ready",
        "`kubectl describe pod` and `kubectl logs` say why: an image, a volume, a security policy, or the server itself.";
    POD_WITHOUT_VLAN: Failure, "pod-without-vlan", "A pod of a server has not got its address on the VLAN",
        "Look at the pod's k8s.v1.cni.cncf.io/network-status and its events: Multus must attach it with its static address.";
    NETWORK_POLICY_MISSING: Failure, "network-policy-missing",
        "The control plane's namespace is closed to the gateway",
        "The operator writes NetworkPolicies oooi-NAMESPACE-NAME-SERVICE there; let it (spec…proxy.networkPolicy: Managed), or admit the gateway's pods yourself.";
    BACKEND_WITHOUT_ENDPOINTS: Failure, "backend-without-endpoints",
        "A Service of the control plane has no ready pod behind it",
        "Look at the control plane's pods: the gateway has nowhere to forward to until one is ready.";
    LINK_MISSING: Failure, "link-missing", "The interface does not exist",
        "Name one that does with --interface; for a virtual machine, look at its network in the VirtualMachine and the NodePool.";
    LINK_DOWN: Failure, "link-down", "The interface is switched off",
        "Switch it on: `ip link set dev IF up`.";
    LINK_NO_CARRIER: Failure, "link-no-carrier", "Nothing is on the other end of the interface",
        "Look at the bridge or switch port on the other side: is it up, and in the right VLAN?";
    DHCP_SILENT: Failure, "dhcp-silent", "No DHCP server offers an address",
        "Is the DHCP server on this VLAN, and does it serve this machine (unknownClients: Ignore serves known ones alone) and have addresses left?";
    DHCP_ROGUE: Failure, "dhcp-rogue", "A DHCP server that is not the Infra's offers addresses",
        "Find it by its address and switch it off, or keep its answers off the VLAN: a node takes the first offer that it gets.";
    DHCP_SEVERAL: Warning, "dhcp-several", "Several DHCP servers offer addresses, and nothing says which ones belong here",
        "Name the Infra (--infra FILE or --cluster NAME) to tell them apart; only its own servers should answer.";
    DHCP_ADDRESS_WRONG: Failure, "dhcp-address-wrong", "The offered address is not one of the Infra's network",
        "The server runs from another manifest, or the offer is a stranger's: compare the DHCPServer with the Infra.";
    DHCP_OPTION_MISSING: Failure, "dhcp-option-missing", "The offer lacks an option that the Infra asks for",
        "The server runs from an older manifest: apply the Infra again, and look at the DHCPServer's conditions.";
    DHCP_OPTION_WRONG: Failure, "dhcp-option-wrong", "An option of the offer is not what the Infra says",
        "The server runs from another manifest: compare the DHCPServer with the Infra, and look at its conditions.";
    DHCP_REFUSED: Failure, "dhcp-refused", "A server offers an address and then does not give it",
        "Look at the DHCP server's log: it cannot store the lease, or another server answered in between.";
    ADDRESS_MISSING: Failure, "address-missing", "The interface has no address, and none can be had",
        "Mend DHCP first; to look further at once, put an address of the VLAN on the interface.";
    MTU_BLACKHOLE: Failure, "mtu-blackhole", "Large packets vanish between here and a server",
        "Lower spec.networkConfig.mtu to what passes, or raise the MTU of the bridge, the VLAN or the switch in between.";
    DNS_SILENT: Failure, "dns-silent", "A resolver does not answer",
        "Is the DNS server running at that address, and is port 53 open for UDP and TCP?";
    DNS_REFUSED: Failure, "dns-refused", "A resolver refuses a name of the control plane",
        "The server takes this machine for a stranger (networkConfig of the DNSServer says whose queries it answers), or it is not the Infra's.";
    DNS_NAME_MISSING: Failure, "dns-name-missing", "A resolver does not know a name of the control plane",
        "Compare the DNSServer's static entries with the Infra; a name that was just added is there within a second.";
    DNS_WRONG_VIEW: Failure, "dns-wrong-view", "A name of the control plane resolves to something else than the gateway",
        "This machine gets the view of pods or of the outside: it must ask the Infra's DNS server from an address of the VLAN.";
    DNS_BROKEN: Failure, "dns-broken", "A resolver fails or answers what is no answer",
        "Look at the DNS server's log; SERVFAIL for a name of its own zone is a mistake in its configuration.";
    DNS_UPSTREAM_DEAD: Warning, "dns-upstream-dead", "Names outside of the cluster are not resolved, though the Infra names upstreams",
        "Ask the upstreams of spec.networkConfig.dnsServers from the management side: they do not answer the DNS server.";
    DNS_NO_UPSTREAM: Warning, "dns-no-upstream", "Names outside of the cluster are not resolved: there is no upstream",
        "Right for a site without a way out, if images come from a mirror that the Infra names; else set spec.networkConfig.dnsServers.";
    NO_ROUTE: Failure, "no-route", "There is no route to the gateway",
        "Compare the interface's address and routes with the Infra's network: `ip route get ADDRESS`.";
    TCP_REFUSED: Failure, "tcp-refused", "The gateway does not listen on a port that nodes need",
        "Is the gateway running, and does its manifest publish the port? Look at the ProxyServer's conditions.";
    TCP_SILENT: Failure, "tcp-silent", "Nothing answers at the gateway's address",
        "Is the gateway's pod running and on the VLAN? A firewall in between drops packets silently, too.";
    TLS_RESET: Failure, "tls-reset", "The gateway closes a connection for a name at once",
        "It has no route for the name, or no pod behind it is ready: look at the ProxyServer's backends and their endpoints.";
    TLS_SILENT: Failure, "tls-silent", "A connection is taken, and then nothing comes",
        "The gateway cannot reach the Service: a NetworkPolicy of the control plane's namespace, or a pod that hangs.";
    TLS_BROKEN: Failure, "tls-broken", "What answers does not speak TLS as it must",
        "Something else than the Service answers at that port: compare the backend's target with the Service.";
    CLOCK_WRONG: Failure, "clock-wrong", "The clock of this machine is not the control plane's",
        "Set it: name time servers in spec.networkConfig.ntpServers, or mend the host's clock; certificates look wrong until then.";
    CERTIFICATE_NAMES: Failure, "certificate-names", "A certificate is not for the name that nodes ask for",
        "The name leads to the wrong Service, or the HostedCluster does not publish it: compare the backend's hostname with spec.services.";
    CERTIFICATE_EXPIRED: Failure, "certificate-expired", "A certificate is over",
        "Renew it on the control plane; HyperShift does so by itself while its operator runs.";
    CERTIFICATE_NOT_YET_VALID: Failure, "certificate-not-yet-valid", "A certificate is not valid yet",
        "Compare the clocks of this machine and of the management cluster.";
    CERTIFICATE_ISSUER: Failure, "certificate-issuer", "A certificate was not made by the authority of --ca",
        "Another server answers under this name, or the file holds another cluster's authority.";
    CERTIFICATE_BROKEN: Failure, "certificate-broken", "A certificate cannot be used",
        "Make it again on the control plane: the detail says what is wrong with it.";
    API_ANSWER: Failure, "api-answer", "The API server does not answer as one",
        "Look at the kube-apiserver's pods and their logs on the management cluster.";
    IGNITION_ANSWER: Failure, "ignition-answer", "The ignition server does not answer as one",
        "Look at the ignition-server's pods and their logs on the management cluster.";
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_page_says_what_the_code_says() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md")).unwrap();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let wanted: Vec<String> = ALL
            .iter()
            .map(|d| {
                format!(
                    "| `{}` | {} | {} | {} |",
                    d.id,
                    d.severity.label(),
                    d.meaning,
                    d.remedy
                )
            })
            .collect();
        assert_eq!(
            rows,
            wanted,
            "the table of docs/doctor.md must be:\n{}",
            wanted.join("\n")
        );
    }

    #[test]
    fn every_diagnosis_is_found_under_one_symptom() {
        let page = include_str!("../../../docs/troubleshooting.md");
        for diagnosis in ALL {
            let rows = page
                .lines()
                .filter(|line| line.starts_with(&format!("| `{}` |", diagnosis.id)))
                .count();
            assert_eq!(
                rows, 1,
                "docs/troubleshooting.md must have one row of {}",
                diagnosis.id
            );
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(
            rows,
            ALL.len(),
            "docs/troubleshooting.md has a row of a diagnosis that is none"
        );
    }

    #[test]
    fn every_diagnosis_has_a_name_of_its_own() {
        let mut ids: Vec<&str> = ALL.iter().map(|diagnosis| diagnosis.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ALL.len());
    }
}
