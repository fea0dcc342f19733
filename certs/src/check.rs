//! Whether a leaf may be served: valid now, for the right names, by the right CA, with its own key.

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{ServerName, UnixTime};
use spawnery_core::rotation::Validity;
use thiserror::Error;

use crate::issue::Pair;
use crate::parse::{self, ParseError};
use crate::provider::provider;

/// Why a leaf may not be served.
#[derive(Debug, Error)]
pub enum Unsound {
    /// It, its key or its CA cannot be read.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The private key is another certificate's.
    #[error("the private key does not belong to the certificate")]
    Key(#[source] rustls::Error),
    /// Clients ask for a name that it does not carry.
    #[error("the certificate does not name {0}")]
    Name(String),
    /// Not signed by the CA, or not valid at the time asked about.
    #[error("the certificate does not verify against the CA bundle")]
    Chain(#[source] rustls::Error),
}

/// The certified key of `pair`, with the key checked against the certificate.
pub(crate) fn certified(pair: &Pair) -> Result<CertifiedKey, Unsound> {
    let leaf = parse::certificate(&pair.cert_pem)?;
    let key = parse::private_key(&pair.key_pem)?;
    CertifiedKey::from_der(vec![leaf], key, &provider()).map_err(Unsound::Key)
}

/// Checks that clients which trust `ca_pem` (all its certificates) accept `pair` for each of `names` at `now`.
///
/// # Errors
/// The first rule that fails, in the order key, chain and validity, names.
pub fn check_pair(pair: &Pair, ca_pem: &str, names: &[String], now: Timestamp) -> Result<Validity, Unsound> {
    let certified = certified(pair)?;
    let Some(leaf) = certified.cert.first() else {
        return Err(ParseError::Absent { what: "certificate" }.into());
    };
    let parsed = ParsedCertificate::try_from(leaf).map_err(Unsound::Chain)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(parse::certificates(ca_pem));
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &roots,
        &[],
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)),
        provider().signature_verification_algorithms.all,
    )
    .map_err(Unsound::Chain)?;
    for name in names {
        let unnamed = || Unsound::Name(name.clone());
        let asked = ServerName::try_from(name.as_str()).map_err(|_| unnamed())?;
        verify_server_name(&parsed, &asked).map_err(|_| unnamed())?;
    }
    Ok(parse::facts(leaf)?.validity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::{Authority, webhook_names};
    use rstest::rstest;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    const NOW: &str = "2026-11-29T12:00:00Z";

    #[rstest]
    #[case::now(NOW, true)]
    #[case::a_clock_half_a_minute_behind("2026-11-29T11:59:30Z", true)]
    #[case::before("2026-11-29T11:58:00Z", false)]
    #[case::last_second("2027-02-27T11:58:59Z", true)]
    #[case::after("2027-02-28T12:00:00Z", false)]
    fn validity_is_the_leafs(#[case] now: &str, #[case] accepted: bool) {
        let ca = Authority::generate(at(NOW)).expect("a CA");
        let names = webhook_names("spawnery-system");
        let pair = ca.leaf(at(NOW), &names).expect("a leaf");
        assert_eq!(check_pair(&pair, ca.cert_pem(), &names, at(now)).is_ok(), accepted);
    }

    #[test]
    fn each_rule_refuses_alone() {
        let (ca, other) = (Authority::generate(at(NOW)).expect("a CA"), Authority::generate(at(NOW)).expect("a CA"));
        let names = webhook_names("spawnery-system");
        let pair = ca.leaf(at(NOW), &names).expect("a leaf");
        let foreign_key = Pair { key_pem: other.key_pem().to_owned(), ..pair.clone() };
        assert!(matches!(check_pair(&foreign_key, ca.cert_pem(), &names, at(NOW)), Err(Unsound::Key(_))));
        assert!(matches!(check_pair(&pair, other.cert_pem(), &names, at(NOW)), Err(Unsound::Chain(_))));
        let more = [names.clone(), vec!["elsewhere.svc".to_owned()]].concat();
        let refused = check_pair(&pair, ca.cert_pem(), &more, at(NOW)).expect_err("names a host too few");
        assert_eq!(refused.to_string(), "the certificate does not name elsewhere.svc");
        let bundle = format!("{}{}", other.cert_pem(), ca.cert_pem());
        check_pair(&pair, &bundle, &names, at(NOW)).expect("any certificate of the bundle is an anchor");
    }
}
