//! Keys and certificates of a cluster.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::{IpAddr, Ipv4Addr};

/// A certificate authority that lives as long as a cluster.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A server's certificate and key.
#[derive(Debug)]
pub struct Leaf {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    /// Makes a new authority.
    pub fn create() -> Result<Self> {
        let mut params = params(&[])?;
        params.distinguished_name.push(rcgen::DnType::CommonName, "spawnery-test-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("could not make the CA's key")?;
        let pem = params.self_signed(&key).context("could not sign the CA")?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// The authority's certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a server at `addresses` that also answers to `names`.
    pub fn issue(&self, names: &[&str], addresses: &[Ipv4Addr]) -> Result<Leaf> {
        let mut params = params(names)?;
        params.subject_alt_names.extend(addresses.iter().map(|&ip| rcgen::SanType::IpAddress(IpAddr::V4(ip))));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A certificate for a client: Kubernetes takes its common name for the user and its organisation for the group.
    pub fn issue_client(&self, user: &str, group: &str) -> Result<Leaf> {
        let mut params = params(&[])?;
        params.distinguished_name.push(rcgen::DnType::CommonName, user);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Leaf> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("could not make a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("could not sign a certificate")?;
        Ok(Leaf { certificate, key })
    }
}

impl Leaf {
    /// The certificate.
    pub fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    /// The key, PKCS #8.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// A TLS server's configuration that speaks HTTP/1.1.
    pub fn server_config(&self) -> Result<rustls::ServerConfig> {
        let chain: Vec<CertificateDer<'static>> = vec![self.certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.context("could not use the certificate")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The key pair that signs tokens of ServiceAccounts: private (PKCS #8) and public, both PEM.
pub fn token_keys() -> Result<(String, String)> {
    let key = KeyPair::generate().context("could not make the key that signs tokens")?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn params(names: &[&str]) -> Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).context("not a DNS name")?;
    // The cluster dies long before; a fixed span needs no clock.
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2099, 1, 1);
    Ok(params)
}
