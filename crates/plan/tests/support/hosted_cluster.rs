//! HostedClusters and what is around them.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use oooi_api::Infra;
use oooi_api::foreign::{HostedCluster, Ingress, NodePool, Route};
use oooi_plan::hosted_cluster::{Derived, Sources, derive};

use super::{broken_rules, read};

/// Everything around a HostedCluster.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) pools: Vec<NodePool>,
    pub(crate) routes: Vec<Route>,
    pub(crate) services: Vec<Service>,
    pub(crate) ingress: Option<Ingress>,
    pub(crate) gateways: Vec<Ipv4Addr>,
}

impl World {
    /// One NodePool on `vms/vlan100`, and the management cluster's router.
    pub(crate) fn usual() -> Self {
        World {
            pools: vec![pool("workers", "{additionalNetworks: [{name: vms/vlan100}]}")],
            ingress: Some(read(
                "{apiVersion: config.openshift.io/v1, kind: Ingress, metadata: {name: cluster}, spec: {domain: \
                 apps.mgmt.example.net}}",
            )),
            ..World::default()
        }
    }

    pub(crate) fn with_service(mut self, name: &str, rest: &str) -> Self {
        self.services.push(read(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: clusters-tenant}}, {rest}}}"
        )));
        self
    }

    pub(crate) fn derive(&self, cluster: &HostedCluster) -> Derived {
        derive(
            cluster,
            &Sources {
                node_pools: &self.pools,
                routes: &self.routes,
                services: &self.services,
                ingress: self.ingress.as_ref(),
                gateways: &self.gateways,
            },
        )
    }
}

pub(crate) fn pool(name: &str, kubevirt: &str) -> NodePool {
    read(&format!(
        "{{apiVersion: hypershift.openshift.io/v1beta1, kind: NodePool, metadata: {{name: {name}}}, spec: {{clusterName: \
         tenant, platform: {{type: KubeVirt, kubevirt: {kubevirt}}}}}}}"
    ))
}

/// A HostedCluster `clusters/tenant`; `services` are pairs of a service and its strategy.
pub(crate) fn cluster(services: &[(&str, &str)], rest: &str) -> HostedCluster {
    let services: String = services
        .iter()
        .map(|(service, strategy)| {
            format!("  - {{service: {service}, servicePublishingStrategy: {strategy}}}\n")
        })
        .collect();
    let extra = |key: &str, default: &'static str| if rest.contains(key) { "" } else { default };
    read(&format!(
        "
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata:
  name: tenant
  namespace: clusters
  annotations: {{hostedcluster.densityops.com/infra: 'true'{annotations}}}
spec:
{platform}{dns}{networking}  services:
{services}{rest}
",
        annotations = rest
            .lines()
            .filter_map(|line| line.strip_prefix("# annotate "))
            .map(|line| format!(", hostedcluster.densityops.com/{line}"))
            .collect::<String>(),
        platform = extra("platform:", "  platform: {type: KubeVirt}\n"),
        dns = extra("dns:", "  dns: {baseDomain: example.com}\n"),
        networking = extra(
            "networking:",
            "  networking: {machineNetwork: [{cidr: 192.168.100.0/24}]}\n"
        ),
    ))
}

/// What the CLI of HyperShift writes for KubeVirt.
pub(crate) const CLI: [(&str, &str); 4] = [
    ("APIServer", "{type: LoadBalancer}"),
    ("OAuthServer", "{type: Route}"),
    ("Konnectivity", "{type: Route}"),
    ("Ignition", "{type: Route}"),
];

/// The derived Infra, as the operator would store it.
pub(crate) fn infra(derived: &Derived) -> Infra {
    let spec = derived
        .infra
        .clone()
        .unwrap_or_else(|| panic!("{:?}", derived.gaps));
    let mut infra = Infra::new("tenant", spec);
    infra.metadata.namespace = Some("clusters".into());
    assert_eq!(
        broken_rules(&infra),
        Vec::<String>::new(),
        "the API server takes the derived Infra"
    );
    infra
}
