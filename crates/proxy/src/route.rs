//! Which backend a connection belongs to.
//!
//! The rule of one listening port: the exact name, then the longest wildcard; without a name the port's only
//! backend, else kube-apiserver where it is published there (Go clients and pods that dial an address send
//! none); everything else is refused. A port of plain TCP or UDP has one backend and asks nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::config::Backend;
use crate::server_name::{Pattern, ServerName};

/// The Service that answers connections without a name where several share a port.
const DEFAULT_SERVICE: &str = "kube-apiserver";

/// Why a connection belongs to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No backend has this name.
    UnknownName,
    /// It asks for nothing, and the port has no backend for that.
    NoName,
}

/// What one port does with its connections. Backends are named, not held.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Routes {
    /// Everything goes to one backend, unread.
    Whole(Arc<str>),
    /// By the server name of the TLS hello.
    ByName(Names),
}

/// The names of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// Backend by exact name.
    pub exact: BTreeMap<ServerName, Arc<str>>,
    /// Backend by the suffix of a wildcard, without its `*.`.
    pub wildcards: BTreeMap<ServerName, Arc<str>>,
    /// The backend of connections without a name.
    pub nameless: Option<Arc<str>>,
}

impl Routes {
    /// The routes of one port, from the backends that are published there.
    pub fn of_port<'a>(backends: impl Iterator<Item = &'a Arc<Backend>>) -> Self {
        let mut names = Names::default();
        let mut default = None;
        let mut count = 0;
        for backend in backends {
            count += 1;
            if default.is_none() || (default_rank(backend) && !default.is_some_and(default_rank)) {
                default = Some(backend);
            }
            for pattern in &backend.patterns {
                match pattern {
                    Pattern::Exact(name) => names.exact.insert(name.clone(), backend.name.clone()),
                    Pattern::Wildcard(suffix) => names.wildcards.insert(suffix.clone(), backend.name.clone()),
                    Pattern::Any => return Self::Whole(backend.name.clone()),
                };
            }
        }
        names.nameless = default
            .filter(|backend| count == 1 || default_rank(backend))
            .map(|b| b.name.clone());
        Self::ByName(names)
    }
}

fn default_rank(backend: &Arc<Backend>) -> bool {
    &*backend.service.name == DEFAULT_SERVICE
}

impl Names {
    /// The backend of a hello with this name, or with none.
    pub fn select(&self, name: Option<&ServerName>) -> Result<&Arc<str>, Refusal> {
        let Some(name) = name else {
            return self.nameless.as_ref().ok_or(Refusal::NoName);
        };
        if let Some(backend) = self.exact.get(name) {
            return Ok(backend);
        }
        let mut rest = name.as_str();
        while let Some((_, suffix)) = rest.split_once('.') {
            if let Some(backend) = self.wildcards.get(suffix) {
                return Ok(backend);
            }
            rest = suffix;
        }
        Err(Refusal::UnknownName)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Config;
    use crate::config::tests::spec;

    fn routes(backends: &[Value]) -> Routes {
        let (config, mistakes) = Config::read(&spec(backends));
        assert_eq!(mistakes, []);
        Routes::of_port(config.backends.iter())
    }

    fn select(routes: &Routes, name: Option<&str>) -> Result<String, Refusal> {
        let Routes::ByName(names) = routes else {
            panic!("no names here")
        };
        names
            .select(name.map(|name| ServerName::parse(name).unwrap()).as_ref())
            .map(ToString::to_string)
    }

    fn backend(name: &str, hostname: &str) -> Value {
        json!({"name": name, "hostname": hostname, "targetService": name})
    }

    #[test]
    fn the_exact_name_wins_over_the_wildcard_and_the_longest_wildcard_over_the_others() {
        let routes = routes(&[
            backend("all", "*.example"),
            backend("apps", "*.apps.example"),
            backend("console", "console.apps.example"),
        ]);
        for (name, expected) in [
            ("console.apps.example", Ok("console")),
            ("grafana.apps.example", Ok("apps")),
            ("a.b.apps.example", Ok("apps")),
            ("apps.example", Ok("all")),
            ("example", Err(Refusal::UnknownName)),
            ("other.test", Err(Refusal::UnknownName)),
            ("notexample", Err(Refusal::UnknownName)),
        ] {
            assert_eq!(select(&routes, Some(name)), expected.map(String::from), "{name}");
        }
    }

    #[test]
    fn without_a_name_the_only_backend_answers() {
        assert_eq!(
            select(&routes(&[backend("oauth", "oauth.example")]), None),
            Ok("oauth".into())
        );
    }

    #[test]
    fn without_a_name_kube_apiserver_answers_among_several_wherever_it_stands() {
        let others = [
            backend("oauth", "oauth.example"),
            backend("ignition", "ignition.example"),
        ];
        assert_eq!(select(&routes(&others), None), Err(Refusal::NoName));
        let api = json!({"name": "the-api", "hostname": "api.example", "targetService": "kube-apiserver"});
        for position in 0..=2 {
            let mut backends = others.to_vec();
            backends.insert(position, api.clone());
            assert_eq!(select(&routes(&backends), None), Ok("the-api".into()));
        }
    }

    #[test]
    fn a_star_takes_the_whole_port() {
        assert_eq!(routes(&[backend("plain", "*")]), Routes::Whole("plain".into()));
    }
}
