//! Certificates and keys as PEM: what they say, and how keys are written.

use jiff::Timestamp;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use spawnery_core::rotation::{Fingerprint, Validity};
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why a certificate or key could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// There is nothing to read.
    #[error("no {what}")]
    Absent {
        /// What was looked for.
        what: &'static str,
    },
    /// It is there but is not PEM, or its content is not what the PEM label says.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// What was looked for.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The private key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The certificate may not sign others.
    #[error("the certificate is not a CA that may sign certificates")]
    NotAnAuthority,
}

/// What a certificate says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertFacts {
    /// When it is valid.
    pub validity: Validity,
    /// SHA-256 of its DER.
    pub fingerprint: Fingerprint,
    /// The common name of its subject; empty if it has none.
    pub common_name: String,
    /// Its DNS names and addresses, in order.
    pub names: Vec<String>,
    /// It may sign other certificates.
    pub may_sign: bool,
    /// Its subject's public key, raw.
    pub public_key: Vec<u8>,
}

/// SHA-256 of a certificate's DER.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    Sha256::digest(certificate).into()
}

/// Every certificate of a PEM bundle that can be read, in order. Blocks that cannot be read are skipped: a bundle with one
/// bad block still holds the anchors that keep agents connected.
pub fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .filter(|der| X509Certificate::from_der(der).is_ok())
        .collect()
}

/// The fingerprints of every certificate of a PEM bundle that can be read.
pub fn fingerprints(pem: &str) -> Vec<Fingerprint> {
    certificates(pem).iter().map(fingerprint).collect()
}

/// The first certificate of a PEM text.
pub fn certificate(pem: &str) -> Result<CertificateDer<'static>, ParseError> {
    if pem.trim().is_empty() {
        return Err(ParseError::Absent { what: "certificate" });
    }
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| ParseError::Unreadable { what: "certificate", why: error.to_string() })
}

/// The first private key of a PEM text: `EC PRIVATE KEY` (upstream's and ours) or `PRIVATE KEY`.
pub fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, ParseError> {
    if pem.trim().is_empty() {
        return Err(ParseError::Absent { what: "private key" });
    }
    // The parser's own message could name bytes of the key, so it stays out.
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| ParseError::Unreadable { what: "private key", why: "not a PEM private key".into() })
}

/// What the certificate `der` says about itself.
pub fn facts(der: &CertificateDer<'_>) -> Result<CertFacts, ParseError> {
    let unreadable = |why: String| ParseError::Unreadable { what: "certificate", why };
    let (_, x509) = X509Certificate::from_der(der).map_err(|error| unreadable(error.to_string()))?;
    let time = |seconds: i64| Timestamp::from_second(seconds).map_err(|error| unreadable(error.to_string()));
    let validity = Validity {
        not_before: time(x509.validity().not_before.timestamp())?,
        not_after: time(x509.validity().not_after.timestamp())?,
    };
    let names = match x509.subject_alternative_name() {
        Ok(Some(extension)) => extension.value.general_names.iter().filter_map(name).collect(),
        Ok(None) => Vec::new(),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    // Absent key usage allows everything (RFC 5280 4.2.1.3); basic constraints must say CA.
    let signs = matches!(x509.key_usage(), Ok(usage) if usage.as_ref().is_none_or(|u| u.value.key_cert_sign()));
    let common_name = x509.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok()).unwrap_or_default();
    Ok(CertFacts {
        validity,
        fingerprint: fingerprint(der),
        common_name: common_name.to_owned(),
        names,
        may_sign: x509.is_ca() && signs,
        public_key: x509.public_key().subject_public_key.data.to_vec(),
    })
}

fn name(general: &GeneralName<'_>) -> Option<String> {
    match general {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(*bytes)
            .map(std::net::IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from))
            .ok()
            .map(|address| address.to_string()),
        _ => None,
    }
}

/// Start of the PKCS#8 that aws-lc writes for a P-256 key, up to the scalar: version 0, ecPublicKey on prime256v1, and an
/// `ECPrivateKey` of version 1 (RFC 5958, RFC 5915).
const PKCS8_P256: [u8; 36] = [
    0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
    0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01, 0x04, 0x20,
];
/// `ECPrivateKey` with parameters, up to the scalar; 119 bytes of content follow the first two.
const SEC1_P256: [u8; 7] = [0x30, 0x77, 0x02, 0x01, 0x01, 0x04, 0x20];
/// The named curve prime256v1, and the start of the public key.
const SEC1_CURVE: [u8; 17] =
    [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0xa1, 0x44, 0x03, 0x42, 0x00];

/// A P-256 key from PKCS#8 as `EC PRIVATE KEY` (SEC 1), the form upstream writes and reads. `None` when `pkcs8` is not a
/// P-256 key or `public_key` is not an uncompressed point.
pub(crate) fn ec_private_key_pem(pkcs8: &[u8], public_key: &[u8]) -> Option<String> {
    let scalar = pkcs8.strip_prefix(&PKCS8_P256)?.get(..32)?;
    if public_key.len() != 65 {
        return None;
    }
    let der = [&SEC1_P256[..], scalar, &SEC1_CURVE[..], public_key].concat();
    let mut pem = String::from("-----BEGIN EC PRIVATE KEY-----\n");
    for line in base64(&der).as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str("-----END EC PRIVATE KEY-----\n");
    Some(pem)
}

/// Standard base64 with padding (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| (word << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let index = (word >> (18 - 6 * place)) & 0x3f;
            let symbol = ALPHABET.get(index as usize).copied().unwrap_or(b'=');
            out.push(if place > chunk.len() { '=' } else { char::from(symbol) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(b"", "")]
    #[case(b"f", "Zg==")]
    #[case(b"fo", "Zm8=")]
    #[case(b"foo", "Zm9v")]
    #[case(b"foob", "Zm9vYg==")]
    #[case(b"foobar", "Zm9vYmFy")]
    fn base64_as_rfc_4648_section_10(#[case] bytes: &[u8], #[case] want: &str) {
        assert_eq!(base64(bytes), want);
    }

    #[test]
    fn says_what_cannot_be_read() {
        assert_eq!(certificate("\n"), Err(ParseError::Absent { what: "certificate" }));
        assert!(matches!(certificate("not pem"), Err(ParseError::Unreadable { what: "certificate", .. })));
        assert_eq!(private_key("").err(), Some(ParseError::Absent { what: "private key" }));
        assert!(matches!(facts(&CertificateDer::from(vec![0x30, 0x00])), Err(ParseError::Unreadable { .. })));
    }

    #[test]
    fn a_key_of_another_curve_is_not_rewritten() {
        assert_eq!(ec_private_key_pem(&[0; 138], &[4; 65]), None);
    }
}
