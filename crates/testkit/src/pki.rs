//! The certificates of a test cluster: one authority, and a client certificate a component.
//!
//! Kubernetes reads a user's name from the common name and its groups from the organisations. All files
//! lie in one directory: certificates and keys in `pki/`, kubeconfigs beside it.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use crate::{Error, error::Context, state};

/// A certificate authority; what it signs lies in its directory.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: PathBuf,
    key: PathBuf,
}

/// A certificate with its key, on disk.
pub struct Identity {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority, `pki/ca.crt` of this directory.
    pub fn create(directory: &Path) -> Result<Self, Error> {
        let make = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            let params = own_params();
            let certificate = params.self_signed(&key)?.pem();
            let key_pem = key.serialize_pem();
            Ok((certificate, key_pem, Issuer::new(params, key)))
        };
        let (certificate, key, issuer) = make().map_err(failed("the authority"))?;
        Ok(Self {
            certificate: state::put(directory, "pki/ca.crt", &certificate)?,
            key: state::put(directory, "pki/ca.key", &key)?,
            directory: directory.to_owned(),
            issuer,
        })
    }

    /// The authority that another process made in `made`; what is signed from now on lies in `directory`.
    pub(crate) fn open(made: &Path, directory: &Path) -> Result<Self, Error> {
        let [certificate, key] = ["pki/ca.crt", "pki/ca.key"].map(|file| made.join(file));
        let pem = fs::read_to_string(&key).context(|| format!("cannot read {}", key.display()))?;
        let pair = KeyPair::from_pem(&pem).map_err(failed("the authority"))?;
        Ok(Self {
            directory: directory.to_owned(),
            issuer: Issuer::new(own_params(), pair),
            certificate,
            key,
        })
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &PathBuf {
        &self.certificate
    }

    /// The authority's key, for the controller that signs requests.
    pub fn key(&self) -> &PathBuf {
        &self.key
    }

    /// A certificate by which `user`, of one group or none, shows who it is.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(user, params)
    }

    /// A certificate for a server that is reached by these names and addresses.
    pub fn server(&self, name: &str, names: &[&str], addresses: &[IpAddr]) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(failed(name))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .subject_alt_names
            .extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, params)
    }

    fn sign(&self, name: &str, mut params: CertificateParams) -> Result<Identity, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let make = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
        };
        let (certificate, key) = make().map_err(failed(name))?;
        let file = name.replace(':', "-");
        Ok(Identity {
            certificate: state::put(&self.directory, &format!("pki/{file}.crt"), &certificate)?,
            key: state::put(&self.directory, &format!("pki/{file}.key"), &key)?,
        })
    }

    /// A key pair without a certificate: service-account tokens are signed by it.
    pub fn token_key(&self) -> Result<(PathBuf, PathBuf), Error> {
        let key = KeyPair::generate().map_err(failed("service accounts"))?;
        let private = state::put(&self.directory, "pki/tokens.key", &key.serialize_pem())?;
        Ok((
            private,
            state::put(&self.directory, "pki/tokens.pub", &key.public_key_pem())?,
        ))
    }

    /// A kubeconfig by which `user` of `group` reaches `server`. JSON is YAML too.
    pub fn kubeconfig(
        &self,
        file: &str,
        server: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<PathBuf, Error> {
        let identity = self.client(user, group)?;
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority": self.certificate}}],
            "users": [{"name": user, "user": {
                "client-certificate": identity.certificate, "client-key": identity.key,
            }}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        });
        state::put(&self.directory, file, &format!("{document:#}\n"))
    }
}

/// What an authority says of itself.
fn own_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "testbed");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn failed(subject: &str) -> impl FnOnce(rcgen::Error) -> Error {
    let subject = subject.to_owned();
    move |source| Error::Certificate { subject, source }
}
