//! VLANs: which one a network is, and whose turn it is on it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kube::ResourceExt;
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_plan::network::{Network, Vlan};
use tokio::sync::OwnedMutexGuard;

/// Which VLAN each network is. A definition is read once for each version of it: every look at an Infra asks for all of
/// them. Clones share it.
#[derive(Clone, Default)]
pub struct Vlans(Arc<Mutex<HashMap<String, Read>>>);

/// What was read of one version of a definition.
struct Read {
    version: String,
    vlan: Option<Arc<Vlan>>,
}

/// So many definitions may be remembered that are gone.
const FORGOTTEN: usize = 1024;

impl Vlans {
    /// The VLAN of a definition, if it can be read. `all` is how many definitions there are.
    pub(super) fn of(&self, definition: &NetworkAttachmentDefinition, all: usize) -> Option<Arc<Vlan>> {
        let read = || {
            Network::read(definition.spec.config.as_deref())
                .ok()
                .map(|network| Arc::new(network.vlan))
        };
        let (Some(uid), Some(version)) = (definition.uid(), definition.resource_version()) else {
            return read();
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > all + FORGOTTEN {
            known.clear();
        }
        if let Some(found) = known.get(&uid).filter(|found| found.version == version) {
            return found.vlan.clone();
        }
        let vlan = read();
        known.insert(
            uid,
            Read {
                version,
                vlan: vlan.clone(),
            },
        );
        vlan
    }
}

/// One look at a time for each VLAN: of two Infras on it the second must see what the first chose. Others do not wait.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<Arc<Vlan>, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for the turn on a VLAN. It lasts until what is given is dropped.
    pub(crate) async fn of(&self, vlan: Arc<Vlan>) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let waiting = turns.get(&vlan).and_then(Weak::upgrade);
            waiting.unwrap_or_else(|| {
                let turn = Arc::default();
                turns.insert(vlan, Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use oooi_api::foreign::NetworkAttachmentDefinitionSpec;

    use super::*;

    fn definition(version: &str, config: &str) -> NetworkAttachmentDefinition {
        let config = Some(config.to_owned());
        let mut definition =
            NetworkAttachmentDefinition::new("vlan", NetworkAttachmentDefinitionSpec { config });
        definition.metadata.uid = Some("1".into());
        definition.metadata.resource_version = Some(version.into());
        definition
    }

    #[test]
    fn a_definition_is_read_again_when_it_changed() {
        let vlans = Vlans::default();
        let link = |definition| vlans.of(&definition, 1).map(|vlan| vlan.link.clone());
        let a = r#"{"type":"bridge","bridge":"a"}"#;
        assert_eq!(link(definition("1", a)).as_deref(), Some("a"));
        assert_eq!(
            link(definition("1", "{")).as_deref(),
            Some("a"),
            "the same version is the same"
        );
        assert_eq!(
            link(definition("2", r#"{"type":"bridge","bridge":"b"}"#)).as_deref(),
            Some("b")
        );
        assert_eq!(link(definition("3", "{")), None);
    }

    #[tokio::test]
    async fn a_turn_is_waited_for_on_the_same_vlan_and_on_no_other() {
        let vlan = |id| {
            Arc::new(Vlan {
                plugin: "bridge".into(),
                link: "a".into(),
                id,
            })
        };
        let turns = Arc::new(Turns::default());
        let first = turns.of(vlan(1)).await;
        let _other = turns.of(vlan(2)).await;
        let waiting = {
            let turns = turns.clone();
            tokio::spawn(async move { drop(turns.of(vlan(1)).await) })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        drop(turns.of(vlan(3)).await);
        assert!(
            turns.0.lock().unwrap().len() <= 2,
            "what nobody waits for is forgotten"
        );
    }
}
