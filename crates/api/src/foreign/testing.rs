//! Short manifests for the tests of the kinds.

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Decodes a manifest as it would come from a file. Panics with the mistake, which names the field.
pub(crate) fn read<T: DeserializeOwned>(manifest: &str) -> T {
    let source = oooi_manifest::Source::new("test", manifest.to_owned());
    let documents = oooi_manifest::read(&source).unwrap();
    assert_eq!(documents.len(), 1);
    documents[0]
        .decode()
        .unwrap_or_else(|mistake| panic!("{mistake}"))
}

/// An object that has nothing but a name is readable, with and without null in the places of `spec` and `status`,
/// and writing it says what it is.
pub(crate) fn assert_empty_is_readable<T>()
where
    T: Resource<DynamicType = ()> + DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let empty = json!({
        "apiVersion": T::api_version(&()), "kind": T::kind(&()), "metadata": {"name": "empty"},
    });
    let object: T = serde_json::from_value(empty.clone()).unwrap();
    for part in ["spec", "status"] {
        let mut odd = empty.clone();
        odd[part] = Value::Null;
        assert_eq!(serde_json::from_value::<T>(odd).unwrap(), object);
    }
    let written = serde_json::to_value(&object).unwrap();
    for field in ["apiVersion", "kind", "metadata"] {
        assert_eq!(written[field], empty[field]);
    }
}
