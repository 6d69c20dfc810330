//! Why something was not written, and whether trying again can help.

use kube::core::Status;

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object of the same name belongs to somebody else.
    #[error("{kind} {name} exists and does not belong to this resource: rename or delete one of the two")]
    Foreign {
        /// Its kind.
        kind: String,
        /// Its namespace and name.
        name: String,
    },
    /// An earlier operator made an object that cannot be changed into ours. [`Writer::replace`] makes room for it.
    #[error("{kind} {name} of an earlier operator is being replaced: it is made anew once its pods are gone")]
    Replacing {
        /// Its kind.
        kind: String,
        /// Its namespace and name.
        name: String,
    },
    /// The API server did not do it.
    #[error("cannot {verb} {kind} {name}: {source}")]
    Refused {
        /// What was tried.
        verb: &'static str,
        /// On which kind.
        kind: String,
        /// On which object.
        name: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// Another process leads now.
    #[error("{kind} {name} was not written: another manager leads now")]
    NotLeading {
        /// Its kind.
        kind: String,
        /// Its namespace and name.
        name: String,
    },
    /// An object cannot be written as JSON.
    #[error("{kind} {name} cannot be written as JSON: {source}")]
    Json {
        /// Its kind.
        kind: String,
        /// Its namespace and name.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether the API server itself found fault with fields: the same again is refused again. What a webhook or a policy
    /// denies may be allowed later without a word, and another uid is that of an object that was made anew since.
    pub fn is_invalid(&self) -> bool {
        let Some(status) = self.answer() else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let mut fields = causes
            .map(|cause| &*cause.field)
            .filter(|field| !field.is_empty())
            .peekable();
        status.code == 422
            && !status.message.starts_with("admission webhook")
            && fields.peek().is_some()
            && fields.all(|field| field != "metadata.uid")
    }

    /// Whether there is no such namespace, or it is about to be none.
    pub fn is_namespace_missing(&self) -> bool {
        let Some(status) = self.answer() else {
            return false;
        };
        let ending = status.details.as_ref().is_some_and(|details| {
            details
                .causes
                .iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
        });
        status.code == 404 || ending
    }

    /// Whether the object was changed or removed since it was seen: looking again is all that is needed.
    pub fn is_outdated(&self) -> bool {
        self.answer()
            .is_some_and(|status| matches!(status.code, 404 | 409))
    }

    /// Whether the manager has no right to it.
    pub fn is_forbidden(&self) -> bool {
        self.answer().is_some_and(|status| status.code == 403)
    }

    /// What the API server answered, if it did.
    fn answer(&self) -> Option<&Status> {
        match self {
            Error::Refused { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A write that the API server answered with this body.
    fn refused(body: Value) -> Error {
        Error::Refused {
            verb: "apply",
            kind: "Infra".into(),
            name: "clusters/x".into(),
            source: Box::new(kube::Error::Api(Box::new(serde_json::from_value(body).unwrap()))),
        }
    }

    fn unprocessable(message: &str, causes: &Value) -> Error {
        refused(json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
            "message": message, "details": {"name": "x", "kind": "Infra", "causes": causes},
        }))
    }

    #[test]
    fn what_the_schema_or_a_rule_of_it_refuses_is_refused_again() {
        let message = "Infra.hostedcluster.densityops.com \"x\" is invalid";
        for field in ["spec.networkConfig.cidr", "spec"] {
            let causes = json!([{"reason": "FieldValueInvalid", "message": "no network", "field": field}]);
            assert!(unprocessable(message, &causes).is_invalid(), "{field}");
        }
    }

    #[test]
    fn what_others_refuse_may_be_allowed_later() {
        let webhook = "admission webhook \"infras.example.com\" denied the request: not today";
        let policy = "infras.hostedcluster.densityops.com \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' \
                      denied request: not today";
        let field = json!([{"reason": "FieldValueInvalid", "message": "not today", "field": "spec"}]);
        assert!(!unprocessable(webhook, &field).is_invalid());
        assert!(!unprocessable(policy, &json!([{"message": "not today"}])).is_invalid());
        assert!(!unprocessable(policy, &json!([])).is_invalid());
    }

    #[test]
    fn an_object_that_was_made_anew_is_looked_at_again() {
        let causes = json!([{"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]);
        let message = "Infra.hostedcluster.densityops.com \"x\" is invalid: metadata.uid: field is immutable";
        assert!(!unprocessable(message, &causes).is_invalid());
    }

    #[test]
    fn a_busy_api_server_is_no_fault_of_the_fields() {
        let causes = json!([{"reason": "FieldValueInvalid", "message": "no network", "field": "spec"}]);
        let busy = refused(json!({"code": 429, "message": "later", "details": {"causes": causes}}));
        assert!(!busy.is_invalid() && !busy.is_forbidden() && !busy.is_namespace_missing());
    }

    #[test]
    fn a_namespace_that_goes_is_missing() {
        let causes =
            json!([{"reason": "NamespaceTerminating", "message": "it goes", "field": "metadata.namespace"}]);
        let ending = refused(json!({"code": 403, "message": "it goes", "details": {"causes": causes}}));
        assert!(ending.is_namespace_missing());
        assert!(refused(json!({"code": 404, "message": "not found"})).is_namespace_missing());
        assert!(!refused(json!({"code": 403, "message": "no"})).is_namespace_missing());
    }
}
