//! Changes replicas one after another, so that one of them always serves.
//!
//! A change that goes wrong stays with the first replica that got it: the others serve as before.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::runtime::reflector::Store;

use crate::apply::{Error, Writer};

/// Makes the Deployments of a server as they are wanted, and gives them as they are then. One that serves is left as it
/// is while another does not; it is changed when that one does, which is seen. So is one of which `waits` says, by what
/// it is and what it is to be, that something else comes first.
pub(super) async fn roll_out(
    writer: &Writer,
    at_hand: &Store<Deployment>,
    wanted: &[Deployment],
    waits: impl Fn(&Deployment, &Deployment) -> bool,
) -> Result<Vec<Deployment>, Error> {
    let mut seen = Vec::new();
    for one in wanted {
        seen.push(match wanted {
            [_] => None, // there is nobody else to wait for
            _ => {
                writer
                    .read::<Deployment>(&one.namespace().unwrap_or_default(), &one.name_any())
                    .await?
            }
        });
    }
    let mut made = Vec::new();
    for (place, one) in wanted.iter().enumerate() {
        let others_serve = serve_but(&seen, place);
        let now = writer
            .keep_at_hand(at_hand, one, |existing: &Deployment| {
                !others_serve && serves(existing) || waits(existing, one)
            })
            .await?;
        seen[place] = doubted(seen[place].take(), &now);
        made.push(now);
    }
    Ok(made)
}

/// Of a replica as the API server told and as it is given after that, the one that does not serve: what a watch keeps at
/// hand may be older than what was read, and what was written is newer.
fn doubted(read: Option<Deployment>, now: &Deployment) -> Option<Deployment> {
    read.filter(|read| !serves(read) || serves(now))
        .or_else(|| Some(now.clone()))
}

/// Whether all serve but perhaps the one at a place.
fn serve_but(seen: &[Option<Deployment>], place: usize) -> bool {
    seen.iter()
        .enumerate()
        .all(|(at, one)| at == place || one.as_ref().is_some_and(serves))
}

/// Whether the pod of a replica serves, and is the one that its Deployment now asks for.
fn serves(deployment: &Deployment) -> bool {
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation >= deployment.metadata.generation
            && status.updated_replicas >= Some(1)
            && status.available_replicas >= Some(1)
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DeploymentStatus;

    use super::*;

    fn deployment(observed: i64, updated: i32, available: i32) -> Deployment {
        let mut deployment = Deployment::default();
        deployment.metadata.generation = Some(2);
        deployment.status = Some(DeploymentStatus {
            observed_generation: Some(observed),
            updated_replicas: Some(updated),
            available_replicas: Some(available),
            ..DeploymentStatus::default()
        });
        deployment
    }

    #[test]
    fn a_replica_serves_once_its_newest_pod_is_available() {
        assert!(serves(&deployment(2, 1, 1)));
        assert!(
            !serves(&deployment(1, 1, 1)),
            "what it asks for now was not looked at yet"
        );
        assert!(!serves(&deployment(2, 0, 1)), "the pod is one of before");
        assert!(!serves(&deployment(2, 1, 0)), "the pod is not ready");
        assert!(!serves(&Deployment::default()));
    }

    #[test]
    fn a_replica_serves_only_if_neither_the_api_server_nor_the_watch_says_otherwise() {
        let (up, down) = (deployment(2, 1, 1), deployment(2, 1, 0));
        for (read, now, counts) in [
            (Some(&up), &up, true),
            (Some(&down), &up, false),
            (Some(&up), &down, false),
            (Some(&down), &down, false),
            (None, &up, true),
        ] {
            let found = doubted(read.cloned(), now);
            assert_eq!(found.as_ref().is_some_and(serves), counts, "{read:?} {now:?}");
        }
    }

    #[test]
    fn a_replica_waits_for_all_others_and_not_for_itself() {
        let (up, down) = (deployment(2, 1, 1), deployment(2, 1, 0));
        assert!(serve_but(&[None], 0), "a single one waits for nobody");
        assert!(serve_but(&[Some(down.clone()), Some(up.clone())], 0));
        assert!(!serve_but(&[Some(down), Some(up.clone())], 1));
        assert!(!serve_but(&[Some(up), None], 0), "the other is yet to be made");
    }
}
