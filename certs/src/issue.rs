//! Making a CA, and signing leaves with it.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use spawnery_core::rotation::Ca;
use thiserror::Error;
use time::OffsetDateTime;

use crate::parse::{self, CertFacts, ParseError};
use crate::provider::provider;

/// Common name of the CA; upstream's.
pub const CA_COMMON_NAME: &str = "spawnery-agent-ca";
/// How long a CA is valid; upstream's ten years of 365 days.
pub const CA_LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// How long a leaf is valid, backdating included; upstream's.
pub const LEAF_LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How far validity begins in the past, so that a peer whose clock is a little behind does not refuse it.
pub const BACKDATE: SignedDuration = SignedDuration::from_mins(1);

/// Why nothing was issued.
#[derive(Debug, Error)]
pub enum IssueError {
    /// The crypto library refused.
    #[error("could not {what}")]
    Crypto {
        /// What was tried.
        what: &'static str,
        /// The library's reason.
        #[source]
        source: rcgen::Error,
    },
    /// The system has no randomness to give.
    #[error("could not draw a random serial number")]
    Random,
    /// The moment lies outside what a certificate can hold.
    #[error("{0} cannot be written into a certificate")]
    Time(Timestamp),
    /// A leaf must name somebody.
    #[error("a leaf needs at least one name")]
    NoName,
    /// The key just made has an unexpected form.
    #[error("the new private key is not a P-256 key in PKCS#8")]
    KeyForm,
}

/// A certificate and its private key, both PEM. The key is left out of `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// `tls.crt`: the leaf alone, as upstream has it.
    pub cert_pem: String,
    /// `tls.key`.
    pub key_pem: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// A CA that can sign: certificate and matching key.
pub struct Authority {
    cert_pem: String,
    key_pem: String,
    facts: CertFacts,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Authority {
    /// A new self-signed CA, valid from a minute before `now` for ten years.
    pub fn generate(now: Timestamp) -> Result<Self, IssueError> {
        let mut params = params(CA_COMMON_NAME, now, now.checked_add(CA_LIFETIME).map_err(|_| IssueError::Time(now))?)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let (key, key_pem) = new_key()?;
        let certificate =
            params.self_signed(&key).map_err(|source| IssueError::Crypto { what: "sign the CA", source })?;
        let facts = parse::facts(certificate.der()).map_err(|_| IssueError::KeyForm)?;
        Ok(Self { cert_pem: certificate.pem(), key_pem, facts, issuer: Issuer::new(params, key) })
    }

    /// The CA that is stored as `cert_pem` and `key_pem`.
    ///
    /// # Errors
    /// When either cannot be read, they do not belong together, or the certificate may not sign. An expired CA is read:
    /// what to do about it is for `core::rotation` to say.
    pub fn parse(cert_pem: &str, key_pem: &str) -> Result<Self, ParseError> {
        let der = parse::certificate(cert_pem)?;
        let facts = parse::facts(&der)?;
        let key = KeyPair::try_from(&parse::private_key(key_pem)?)
            .map_err(|_| ParseError::Unreadable { what: "private key", why: "of an unknown kind".into() })?;
        if key.public_key_raw() != facts.public_key {
            return Err(ParseError::KeyMismatch);
        }
        if !facts.may_sign {
            return Err(ParseError::NotAnAuthority);
        }
        let issuer = Issuer::from_ca_cert_der(&der, key)
            .map_err(|error| ParseError::Unreadable { what: "CA certificate", why: error.to_string() })?;
        Ok(Self { cert_pem: cert_pem.to_owned(), key_pem: key_pem.to_owned(), facts, issuer })
    }

    /// The certificate: what clients must trust.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The private key.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// What the rotation rule needs to know.
    pub fn facts(&self) -> Ca {
        Ca { validity: self.facts.validity, fingerprint: self.facts.fingerprint, can_sign: true }
    }

    /// A new serving leaf for `names` (DNS names or addresses; the first is the common name), valid from a minute before
    /// `now` for 90 days in all.
    pub fn leaf(&self, now: Timestamp, names: &[String]) -> Result<Pair, IssueError> {
        let Some(common_name) = names.first() else {
            return Err(IssueError::NoName);
        };
        let end = LEAF_LIFETIME
            .checked_sub(BACKDATE)
            .and_then(|left| now.checked_add(left).ok())
            .ok_or(IssueError::Time(now))?;
        let with_names = CertificateParams::new(names)
            .map_err(|source| IssueError::Crypto { what: "write the names of the leaf", source })?;
        let mut params = params(common_name, now, end)?;
        params.subject_alt_names = with_names.subject_alt_names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let (key, key_pem) = new_key()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(|source| IssueError::Crypto { what: "sign the leaf", source })?;
        Ok(Pair { cert_pem: certificate.pem(), key_pem })
    }

    /// The certificate's DER.
    pub fn der(&self) -> Result<CertificateDer<'static>, ParseError> {
        parse::certificate(&self.cert_pem)
    }
}

/// The names under which a Service is reached: bare, with its namespace, with `.svc`, and fully qualified.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    vec![
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ]
}

/// The names of the agent channel's leaf, in upstream's order.
pub fn operator_names(namespace: &str) -> Vec<String> {
    service_names("spawnery-operator", namespace)
}

/// The names of the webhook's leaf; the API server asks for the third.
pub fn webhook_names(namespace: &str) -> Vec<String> {
    service_names("spawnery-webhook", namespace)
}

/// The names of the extender's leaf; schedulers ask for the third.
pub fn extender_names(namespace: &str) -> Vec<String> {
    service_names("spawnery-extender", namespace)
}

/// Parameters that CA and leaf share. rcgen's own validity runs from 1975 to 4096, so it is always set here.
fn params(common_name: &str, now: Timestamp, not_after: Timestamp) -> Result<CertificateParams, IssueError> {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.not_before = date(now.checked_sub(BACKDATE).map_err(|_| IssueError::Time(now))?)?;
    params.not_after = date(not_after)?;
    params.serial_number = Some(serial()?);
    Ok(params)
}

/// A random serial of 128 bits: unique without keeping count, and unpredictable (RFC 5280 4.1.2.2 allows 20 bytes).
fn serial() -> Result<SerialNumber, IssueError> {
    let mut bytes = [0u8; 16];
    provider().secure_random.fill(&mut bytes).map_err(|_| IssueError::Random)?;
    Ok(SerialNumber::from(bytes.to_vec()))
}

fn date(moment: Timestamp) -> Result<OffsetDateTime, IssueError> {
    OffsetDateTime::from_unix_timestamp(moment.as_second()).map_err(|_| IssueError::Time(moment))
}

fn new_key() -> Result<(KeyPair, String), IssueError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|source| IssueError::Crypto { what: "make a P-256 key", source })?;
    let pem = parse::ec_private_key_pem(key.serialized_der(), key.public_key_raw()).ok_or(IssueError::KeyForm)?;
    Ok((key, pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-29T12:00:00Z".parse().expect("a timestamp")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    #[test]
    fn ca_is_upstreams_to_the_letter() {
        let ca = Authority::generate(now()).expect("a CA");
        let facts = parse::facts(&ca.der().expect("DER")).expect("facts");
        assert_eq!(facts.common_name, "spawnery-agent-ca");
        assert_eq!(facts.validity.not_before, at("2026-11-29T11:59:00Z"));
        assert_eq!(facts.validity.not_after, at("2036-11-26T12:00:00Z"), "3650 days, not ten calendar years");
        assert!(facts.may_sign && facts.names.is_empty());
        assert!(ca.key_pem().starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    }

    #[test]
    fn leaf_is_upstreams_to_the_letter() {
        let ca = Authority::generate(now()).expect("a CA");
        let pair = ca.leaf(now(), &operator_names("spawnery-system")).expect("a leaf");
        let facts = parse::facts(&parse::certificate(&pair.cert_pem).expect("DER")).expect("facts");
        assert_eq!(facts.common_name, "spawnery-operator");
        assert_eq!(
            facts.names,
            [
                "spawnery-operator",
                "spawnery-operator.spawnery-system",
                "spawnery-operator.spawnery-system.svc",
                "spawnery-operator.spawnery-system.svc.cluster.local",
            ]
        );
        assert_eq!(facts.validity.not_before, at("2026-11-29T11:59:00Z"));
        assert_eq!(facts.validity.not_after, at("2027-02-27T11:59:00Z"));
        assert!(!facts.may_sign);
        assert_eq!(pair.cert_pem.matches("BEGIN CERTIFICATE").count(), 1, "the leaf alone");
        assert!(pair.key_pem.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
        assert!(!format!("{pair:?}").contains("PRIVATE KEY"), "keys stay out of logs");
    }

    #[test]
    fn usages_are_what_each_needs_and_no_more() {
        use x509_parser::prelude::{FromDer as _, X509Certificate};
        let ca = Authority::generate(now()).expect("a CA");
        let pair = ca.leaf(now(), &["a".to_owned()]).expect("a leaf");
        let ca_der = ca.der().expect("DER");
        let (_, ca_cert) = X509Certificate::from_der(&ca_der).expect("X.509");
        let usage = ca_cert.key_usage().expect("readable").expect("present").value;
        assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
        let leaf_der = parse::certificate(&pair.cert_pem).expect("DER");
        let (_, leaf) = X509Certificate::from_der(&leaf_der).expect("X.509");
        let usage = leaf.key_usage().expect("readable").expect("present").value;
        assert!(usage.digital_signature() && !usage.key_cert_sign());
        let extended = leaf.extended_key_usage().expect("readable").expect("present").value;
        assert!(extended.server_auth && !extended.client_auth && !extended.any);
        assert!(ca_cert.raw_serial().len() >= 12 && ca_cert.raw_serial() != leaf.raw_serial());
    }

    #[test]
    fn a_stored_ca_signs_what_the_made_one_would() {
        let made = Authority::generate(now()).expect("a CA");
        let stored = Authority::parse(made.cert_pem(), made.key_pem()).expect("what we wrote we can read");
        assert_eq!(stored.facts(), made.facts());
        let names = vec!["spawnery-operator".to_owned()];
        let pair = stored.leaf(now(), &names).expect("a leaf");
        crate::check::check_pair(&pair, made.cert_pem(), &names, now()).expect("chains to the CA as made");
    }

    #[test]
    fn a_ca_with_another_key_or_a_leaf_for_a_ca_is_refused() {
        let (one, two) = (Authority::generate(now()).expect("a CA"), Authority::generate(now()).expect("a CA"));
        assert_eq!(Authority::parse(one.cert_pem(), two.key_pem()).err(), Some(ParseError::KeyMismatch));
        let leaf = one.leaf(now(), &["a".to_owned()]).expect("a leaf");
        assert_eq!(Authority::parse(&leaf.cert_pem, &leaf.key_pem).err(), Some(ParseError::NotAnAuthority));
        assert!(matches!(one.leaf(now(), &[]), Err(IssueError::NoName)));
    }
}
