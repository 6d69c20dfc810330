//! The certificates of a test cluster: one authority, and a client certificate a component.
//!
//! Kubernetes reads a user's name from the common name and its groups from the organisations.

use std::{net::IpAddr, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use crate::{Error, state::State};

/// The certificate authority of one testbed; what it signs lies in the testbed's state directory.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: PathBuf,
    key: PathBuf,
}

/// A certificate with its key, on disk.
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Makes an authority, `pki/ca.crt`.
    pub(crate) fn create(state: &State) -> Result<Self, Error> {
        let make = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, "testbed");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            let certificate = params.self_signed(&key)?.pem();
            let key_pem = key.serialize_pem();
            Ok((certificate, key_pem, Issuer::new(params, key)))
        };
        let (certificate, key, issuer) = make().map_err(failed("the authority"))?;
        Ok(Self {
            issuer,
            certificate: state.write("pki/ca.crt", &certificate)?,
            key: state.write("pki/ca.key", &key)?,
        })
    }

    /// The authority's own certificate.
    pub(crate) fn certificate(&self) -> &PathBuf {
        &self.certificate
    }

    /// The authority's key, for the controller that signs requests.
    pub(crate) fn key(&self) -> &PathBuf {
        &self.key
    }

    /// A certificate by which `user`, of one group or none, shows who it is.
    pub(crate) fn client(&self, state: &State, user: &str, group: Option<&str>) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(state, user, params)
    }

    /// A certificate for a server that is reached by these names and addresses.
    pub(crate) fn server(
        &self,
        state: &State,
        name: &str,
        names: &[&str],
        addresses: &[IpAddr],
    ) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(failed(name))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .subject_alt_names
            .extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(state, name, params)
    }

    fn sign(&self, state: &State, name: &str, mut params: CertificateParams) -> Result<Identity, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let make = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
        };
        let (certificate, key) = make().map_err(failed(name))?;
        let file = name.replace(':', "-");
        Ok(Identity {
            certificate: state.write(&format!("pki/{file}.crt"), &certificate)?,
            key: state.write(&format!("pki/{file}.key"), &key)?,
        })
    }

    /// A key pair without a certificate: service-account tokens are signed by it.
    pub(crate) fn token_key(&self, state: &State) -> Result<(PathBuf, PathBuf), Error> {
        let key = KeyPair::generate().map_err(failed("service accounts"))?;
        let private = state.write("pki/tokens.key", &key.serialize_pem())?;
        Ok((private, state.write("pki/tokens.pub", &key.public_key_pem())?))
    }

    /// A kubeconfig by which `user` of `group` reaches `server`. JSON is YAML too.
    pub(crate) fn kubeconfig(
        &self,
        state: &State,
        file: &str,
        server: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<PathBuf, Error> {
        let identity = self.client(state, user, group)?;
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
        state.write(file, &format!("{document:#}\n"))
    }
}

fn failed(subject: &str) -> impl FnOnce(rcgen::Error) -> Error {
    let subject = subject.to_owned();
    move |source| Error::Certificate { subject, source }
}
