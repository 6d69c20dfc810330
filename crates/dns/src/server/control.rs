//! Turns every change into a new state and publishes it.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use oooi_api::report::{Event, Report, ServerReport};
use tokio::sync::watch;

use super::{Serving, Shared, service};
use crate::config::{Config, Forward, Upstream};
use crate::names::Names;
use crate::upstream::{Groups, Member, Target, system};
use crate::view::Horizon;

/// How often the host's list of resolvers is read again.
const SYSTEM: Duration = Duration::from_secs(2);

/// Builds and publishes states.
pub(super) struct Control {
    shared: Arc<Shared>,
    report: Arc<dyn Report>,
    known: HashMap<Target, Arc<Member>>,
    system: Vec<SocketAddr>,
    last: Option<Arc<Config>>,
}

impl Control {
    pub(super) fn new(shared: Arc<Shared>, report: Arc<dyn Report>) -> Control {
        Control {
            shared,
            report,
            known: HashMap::new(),
            system: Vec::new(),
            last: None,
        }
    }

    /// Publishes a state for each change, until it is aborted.
    pub(super) async fn run(
        mut self,
        mut config: watch::Receiver<Arc<Config>>,
        mut names: watch::Receiver<Arc<Names>>,
    ) {
        let (resolved_to, mut resolved) = watch::channel(None);
        // Dropped with this future, so that nothing of a server outlives it.
        let mut services = tokio::task::JoinSet::new();
        services.spawn(service::keep_resolved(config.clone(), resolved_to));
        let mut addresses = self.shared.addresses.subscribe();
        let mut reread = tokio::time::interval(SYSTEM);
        loop {
            let current = Arc::clone(&config.borrow_and_update());
            let learnt = Arc::clone(&names.borrow_and_update());
            let internal = resolved.borrow_and_update().clone();
            addresses.mark_unchanged();
            self.read_system(&current).await;
            self.prepare_tls(&current).await;
            self.publish(current, &learnt, internal.as_deref());
            loop {
                tokio::select! {
                    Ok(()) = config.changed() => break,
                    Ok(()) = names.changed() => break,
                    Ok(()) = resolved.changed() => break,
                    Ok(()) = addresses.changed() => break,
                    _ = reread.tick() => {
                        let current = Arc::clone(&config.borrow());
                        if self.read_system(&current).await {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Reads the host's resolvers where some list wants them; true where they changed. Our own addresses
    /// are left out: they would only ask us.
    async fn read_system(&mut self, config: &Config) -> bool {
        let wanted = |forward: &Forward| forward.upstreams.contains(&Upstream::System);
        if !config.forwards.iter().any(wanted) {
            return !std::mem::take(&mut self.system).is_empty();
        }
        let path = &self.shared.options.resolv_conf;
        let text = match tokio::fs::read_to_string(path).await {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the resolvers of the host; the last ones stay");
                return false;
            }
        };
        let mut found = system::resolvers(&text);
        found.retain(|resolver| !self.shared.addresses.borrow().contains(resolver));
        let changed = found != self.system;
        self.system = found;
        changed
    }

    /// Loads the authorities of the host once some upstream speaks TLS.
    async fn prepare_tls(&self, config: &Config) {
        let speaks_tls = |upstream: &Upstream| matches!(upstream, Upstream::Tls { .. });
        let wanted = config
            .forwards
            .iter()
            .any(|forward| forward.upstreams.iter().any(speaks_tls));
        if !wanted || self.shared.tls.get().is_some() {
            return;
        }
        match tokio::task::spawn_blocking(oooi_trust::client).await {
            Ok(Ok(client)) => drop(self.shared.tls.set(Arc::new(client))),
            Ok(Err(error)) => self
                .report
                .event(Event::warning("NoCertificateAuthority", error.to_string())),
            Err(error) => tracing::error!(%error, "loading certificate authorities failed"),
        }
    }

    fn publish(&mut self, config: Arc<Config>, names: &Names, internal: Option<&[IpAddr]>) {
        let groups = Groups::build(&config, &self.system, &mut self.known);
        let last = self.last.replace(Arc::clone(&config));
        let same_answers =
            |last: &Arc<Config>| last.forwards == config.forwards && last.cache_ttl == config.cache_ttl;
        let is_new = last.as_ref().is_none_or(|last| *last != config);
        if is_new {
            self.announce(&config, last.as_deref());
        }
        let forgets = last.as_ref().is_some_and(|last| !same_answers(last));
        let horizon = Horizon::build(Arc::clone(&config), names, internal);
        let own_names = horizon.own_names();
        self.shared
            .serving
            .send_replace(Some(Arc::new(Serving { horizon, groups })));
        if forgets {
            self.shared.cache.clear();
        }
        self.shared
            .ready
            .store(true, std::sync::atomic::Ordering::Relaxed);
        let upstreams = self.known.len();
        self.report.state(ServerReport {
            uid: config.source.uid.clone(),
            generation: config.source.generation,
            accepted: true,
            addresses: self.addresses(),
            counts: BTreeMap::from([
                ("names".into(), own_names as i64),
                ("upstreams".into(), upstreams as i64),
            ]),
            ..ServerReport::default()
        });
    }

    fn addresses(&self) -> Vec<String> {
        let addresses = self.shared.addresses.borrow();
        addresses.iter().map(ToString::to_string).collect()
    }

    fn announce(&self, config: &Config, last: Option<&Config>) {
        tracing::info!(
            domain = %config.domain,
            generation = config.source.generation,
            entries = config.entries.len(),
            forwards = config.forwards.len(),
            "serving a new configuration"
        );
        let had_none = last.is_some_and(|last| last.forwards.is_empty());
        if config.forwards.is_empty() && !had_none {
            self.report.event(Event::warning(
                "NoUpstream",
                "no upstream is configured: names outside the cluster's domain are refused; \
                 set spec.upstreamDNS, or `system` for the resolvers of the pod",
            ));
        }
    }
}
