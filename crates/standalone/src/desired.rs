//! Documents → what the servers run.
//!
//! What the operator watches is read from the same stream here: one `Infra`, and beside it the `Service`s and
//! `EndpointSlice`s of its control plane and the `VirtualMachineInstance`s that are its nodes, which `*.apps` leads to. A
//! server that is not in the plan is absent.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use oooi_api::Infra;
use oooi_api::foreign::VirtualMachineInstance;
use oooi_dhcp::machines::Machines;
use oooi_manifest::{Document, Mistake};
use oooi_plan::infra::{Apps, machine_addresses};
use oooi_plan::{Components, Known};
use oooi_proxy::assemble::Assembler;
use oooi_proxy::snapshot::Snapshot;

/// What the servers run.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The plan that it comes from.
    pub components: Components,
    /// The DHCP server's part.
    pub dhcp: Option<Arc<oooi_dhcp::config::Config>>,
    /// The DNS server's part.
    pub dns: Option<Arc<oooi_dns::config::Config>>,
    /// The gateway's part.
    pub proxy: Option<Arc<Snapshot>>,
    /// The virtual machines that the DHCP server knows by name.
    pub machines: Arc<Machines>,
    /// The addresses of the servers, with the prefix length of the VLAN.
    pub addresses: Vec<Ipv4Net>,
}

impl Desired {
    /// Reads documents. Addresses that were chosen before are kept: `known` is what ran until now.
    pub fn read(documents: &[Document], known: &Known) -> Result<Self, Vec<Mistake>> {
        let infra_document = oooi_manifest::only(documents, "Infra")?;
        let infra: Infra = infra_document.decode().map_err(|mistake| vec![mistake])?;
        let services: Vec<Service> = oooi_manifest::all(documents, "v1", "Service")?;
        let slices: Vec<EndpointSlice> =
            oooi_manifest::all(documents, "discovery.k8s.io/v1", "EndpointSlice")?;
        let at = |path: &str, message: &str| infra_document.mistake(path, message);
        let machines: Vec<VirtualMachineInstance> =
            oooi_manifest::all(documents, "kubevirt.io/v1", "VirtualMachineInstance")?;
        let mut desired = Desired::of(&infra, &services, &slices, &machines, known, at)?;
        desired.machines = Arc::new(oooi_feed::machines::index(&machines));
        Ok(desired)
    }

    /// The same from what was read already. `at` says where a mistake stands.
    pub fn of(
        infra: &Infra,
        services: &[Service],
        slices: &[EndpointSlice],
        machines: &[VirtualMachineInstance],
        known: &Known,
        at: impl Fn(&str, &str) -> Mistake,
    ) -> Result<Self, Vec<Mistake>> {
        let components = oooi_plan::plan(infra, known).map_err(|mistakes| {
            mistakes
                .iter()
                .map(|m| at(&m.path, &m.message))
                .collect::<Vec<_>>()
        })?;
        let network: Option<Ipv4Net> = infra.spec.network_config.cidr.parse().ok();
        let addresses = host_addresses(&components, network);
        let local: Vec<Ipv4Addr> = addresses.iter().map(Ipv4Net::addr).collect();

        // The plan is held against the servers by tests: what they refuse here is a mistake of ours, said all the same.
        let mut mistakes = Vec::new();
        let dhcp = components
            .dhcp
            .as_ref()
            .map(|spec| oooi_dhcp::config::Config::from_spec(spec, &local));
        let dhcp = dhcp.transpose().unwrap_or_else(|found| {
            mistakes.extend(found.iter().map(|m| at("spec", &m.to_string())));
            None
        });
        let dns = components.dns.as_ref().map(oooi_dns::config::Config::from_spec);
        let dns = dns.transpose().unwrap_or_else(|found| {
            mistakes.extend(found.0.iter().map(|m| at("spec", &m.to_string())));
            None
        });
        let proxy = components.proxy.as_ref().map(|spec| {
            let mut assembler = Assembler::default();
            assembler.set_spec(spec);
            // As the operator would make it; a document of the same name goes before it.
            if let Some(apps) = Apps::of(infra, &components) {
                let nodes = machines.iter().flat_map(machine_addresses).collect();
                assembler.set_service(&apps.service());
                apps.slices(&nodes)
                    .iter()
                    .for_each(|slice| assembler.set_slice(slice));
            }
            services.iter().for_each(|service| assembler.set_service(service));
            slices.iter().for_each(|slice| assembler.set_slice(slice));
            assembler.snapshot()
        });
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        Ok(Desired {
            components,
            dhcp: dhcp.map(Arc::new),
            dns: dns.map(Arc::new),
            proxy,
            machines: Arc::default(),
            addresses,
        })
    }

    /// The addresses that the gateway listens on.
    pub fn gateway_addresses(&self) -> Vec<IpAddr> {
        let listed = self.components.addresses().proxy;
        listed.iter().filter_map(|address| address.parse().ok()).collect()
    }
}

/// Every server's address once, in the network of the VLAN.
fn host_addresses(components: &Components, network: Option<Ipv4Net>) -> Vec<Ipv4Net> {
    let all = components.addresses();
    let prefix = network.map_or(24, |network| network.prefix_len());
    let mut addresses: Vec<Ipv4Net> = [all.dhcp, all.dns, all.proxy]
        .iter()
        .flatten()
        .filter_map(|address| Ipv4Net::new(address.parse().ok()?, prefix).ok())
        .collect();
    addresses.dedup();
    addresses
}
