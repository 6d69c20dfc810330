//! Infra → components.
//!
//! ```text
//! Infra ─┬─ layout ──► who has which address, and the range of the nodes ─┐
//! Known ─┤                                                                ├─► dhcp, dns, proxy ──► Components
//!        └─ backends ► what the gateway forwards, under which names ──────┘
//! ```
//! Every part adds its mistakes to the same list and goes on; the components are handed out only if there is none.

mod apps;
mod backends;
mod components;
mod control_plane;
mod dhcp;
mod dns;
mod fields;
mod known;
mod layout;
mod overlap;
mod proxy;
mod reservations;
mod servers;
mod several;

use oooi_api::Infra;
use oooi_api::infra::InfraComponents;

use crate::mistake::{Mistake, Notes};

pub use apps::{Apps, apps_service, machine_addresses};
pub(crate) use backends::backend;
pub use components::Components;
pub use control_plane::{API_SERVER, pod_names};
pub(crate) use fields::is_resolver;
pub use known::{Attachment, ControlPlane, DHCP_SERVER, Known, Neighbour, Occupied};
pub use several::plan_all;

/// What every part of the plan reads.
struct Subject<'a> {
    infra: &'a Infra,
    parts: &'a InfraComponents,
    known: &'a Known,
    name: &'a str,
    namespace: &'a str,
}

impl Subject<'_> {
    /// The NetworkAttachmentDefinition that pods use, and its namespace: the one that was made for them, else that of
    /// the virtual machines.
    fn attachment(&self) -> (Option<String>, Option<String>) {
        match &self.known.attachment {
            Some(own) => (Some(own.name.clone()), Some(own.namespace.clone())),
            None => {
                let config = &self.infra.spec.network_config;
                let name = config.network_attachment_definition.clone();
                (Some(name), config.network_attachment_namespace.clone())
            }
        }
    }
}

impl<'a> Subject<'a> {
    /// What runs already, for an Infra whose HostedCluster has not been heard of, such as after a restart or while
    /// nobody looks after it. What runs goes on running.
    fn unheard_of(&self) -> Option<&'a Known> {
        let waits = self.infra.spec.hosted_cluster_ref.is_some() && self.known.control_plane.is_none();
        waits.then_some(self.known)
    }
}

/// The namespace of an Infra's control plane, which is also that of its virtual machines.
pub fn control_plane_namespace(infra: &Infra, known: &Known) -> String {
    let nothing = InfraComponents::default();
    control_plane::namespace(&subject(infra, known, &nothing))
}

fn subject<'a>(infra: &'a Infra, known: &'a Known, nothing: &'a InfraComponents) -> Subject<'a> {
    Subject {
        infra,
        parts: infra.spec.infra_components.as_ref().unwrap_or(nothing),
        known,
        name: infra.metadata.name.as_deref().unwrap_or_default(),
        namespace: infra.metadata.namespace.as_deref().unwrap_or("default"),
    }
}

/// What an Infra means: its components, or all that is wrong with it.
///
/// Addresses that nobody set are chosen, and those that were chosen before ([`Known`]) are kept: planning again with
/// the result as what is known gives the same result. An Infra without a namespace, as files may have it, is in
/// `default`.
pub fn plan(infra: &Infra, known: &Known) -> Result<Components, Vec<Mistake>> {
    let nothing = InfraComponents::default();
    let subject = subject(infra, known, &nothing);
    let mut notes = Notes::default();
    if subject.name.starts_with(|first: char| first.is_ascii_digit()) {
        notes.mistake(
            "metadata.name",
            format!(
                "`{}` begins with a digit, and the name of a Service must begin with a letter: create it under a name \
                 that does",
                subject.name
            ),
        );
    }
    let shared = fields::network(&subject, &mut notes);
    let domain = control_plane::domain(&subject, &mut notes);
    let layout = layout::layout(&subject, &shared, &mut notes);
    let backends = backends::backends(&subject, domain.as_ref(), &mut notes);

    let dhcp = dhcp::plan(&subject, &shared, layout.as_ref(), domain.as_ref(), &mut notes);
    let dns = dns::plan(&subject, layout.as_ref(), domain.as_ref(), &backends, &mut notes);
    let proxy = proxy::plan(&subject, layout.as_ref(), backends, &mut notes);

    if dhcp.is_none() && dns.is_none() && proxy.is_none() {
        notes.warning(
            "NothingRuns",
            "spec.infraComponents",
            "no component is enabled, so nothing runs: add dhcp, dns or proxy",
        );
    }
    if notes.mistakes.is_empty() {
        Ok(Components {
            dhcp,
            dns,
            proxy,
            warnings: notes.warnings,
        })
    } else {
        Err(notes.mistakes)
    }
}
