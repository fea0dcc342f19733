//! What stands in the TLS Secret, what to do about it, and what it looks like afterwards.

use std::collections::BTreeMap;

use jiff::Timestamp;
use spawnery_core::rotation::{self, Ca, Fingerprint, Leaf, Rotation, Validity};

use crate::check::check_pair;
use crate::issue::{Authority, IssueError, Pair};
use crate::parse;

/// Keys of the Secret; upstream's.
pub const CA_CERT: &str = "ca.crt";
/// The CA's private key.
pub const CA_KEY: &str = "ca.key";
/// The serving leaf.
pub const TLS_CERT: &str = "tls.crt";
/// The leaf's private key.
pub const TLS_KEY: &str = "tls.key";

/// CA and leaf as stored; each as far as it can be read.
#[derive(Debug, Default)]
pub struct Stored {
    /// The CA, if certificate and key can be read and belong together.
    pub ca: Option<Authority>,
    /// The CA's certificate alone when it can be read and its key cannot: what agents trust now.
    pub keyless_ca: Option<Ca>,
    /// The leaf; present when both of its entries are text, whatever they say.
    pub leaf: Option<Pair>,
}

impl Stored {
    /// Reads a Secret's data. What is missing or damaged is `None`; the rotation rule says what to do about that.
    pub fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Self {
        let text = |key: &str| data.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let ca = text(CA_CERT).zip(text(CA_KEY)).and_then(|(cert, key)| Authority::parse(cert, key).ok());
        let keyless_ca =
            match &ca {
                Some(_) => None,
                None => text(CA_CERT)
                    .and_then(|cert| parse::facts(&parse::certificate(cert).ok()?).ok())
                    .map(|facts| Ca { validity: facts.validity, fingerprint: facts.fingerprint, can_sign: false }),
            };
        let leaf = text(TLS_CERT)
            .zip(text(TLS_KEY))
            .map(|(cert, key)| Pair { cert_pem: cert.to_owned(), key_pem: key.to_owned() });
        Self { ca, keyless_ca, leaf }
    }

    /// The four entries of the Secret, as far as they are known.
    pub fn to_data(&self) -> BTreeMap<String, Vec<u8>> {
        let ca = self.ca.iter().flat_map(|ca| [(CA_CERT, ca.cert_pem()), (CA_KEY, ca.key_pem())]);
        let leaf = self.leaf.iter().flat_map(|pair| [(TLS_CERT, &*pair.cert_pem), (TLS_KEY, &*pair.key_pem)]);
        ca.chain(leaf).map(|(key, pem)| (key.to_owned(), pem.as_bytes().to_vec())).collect()
    }

    /// The CA's certificate, PEM: the bundle to publish. `None` without a CA that can be read.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca.as_ref().map(Authority::cert_pem)
    }

    /// What the rotation rule needs to know, for a leaf that must carry `names`.
    pub fn facts(&self, names: &[String]) -> (Option<Ca>, Option<Leaf>) {
        let ca = self.ca.as_ref().map(Authority::facts).or(self.keyless_ca);
        let leaf = self.leaf.as_ref().and_then(|pair| self.leaf_facts(pair, names));
        (ca, leaf)
    }

    fn leaf_facts(&self, pair: &Pair, names: &[String]) -> Option<Leaf> {
        let validity: Validity = parse::facts(&parse::certificate(&pair.cert_pem).ok()?).ok()?.validity;
        // Soundness is asked about a moment inside the leaf's life: its validity is a fact of its own.
        let sound = self.ca_pem().is_some_and(|ca| check_pair(pair, ca, names, validity.not_before).is_ok());
        // The CA may be younger than the backdated leaf only if it did not sign it, so the chain check above holds.
        Some(Leaf { validity, sound })
    }

    /// What to do at `now` for a leaf that must carry `names`, while clients trust `published` (empty: nobody looked).
    pub fn plan(&self, now: Timestamp, names: &[String], published: &[Fingerprint]) -> Rotation {
        let (ca, leaf) = self.facts(names);
        rotation::next(now, leaf.as_ref(), ca.as_ref(), published)
    }

    /// Carries out `rotation` at `now`. `None` when what is stored stays as it is.
    pub fn carry_out(&self, rotation: Rotation, now: Timestamp, names: &[String]) -> Result<Option<Self>, IssueError> {
        let authority = match (rotation, &self.ca) {
            (Rotation::Keep | Rotation::Publish, _) => return Ok(None),
            // Read again rather than shared: an Authority owns its key.
            (Rotation::Renew(_), Some(ca)) => Authority::parse(ca.cert_pem(), ca.key_pem()).ok(),
            (Rotation::Renew(_), None) | (Rotation::Reissue(_), _) => None,
        };
        let authority = match authority {
            Some(authority) => authority,
            None => Authority::generate(now)?,
        };
        let leaf = authority.leaf(now, names)?;
        Ok(Some(Self { ca: Some(authority), keyless_ca: None, leaf: Some(leaf) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::operator_names;
    use jiff::SignedDuration;
    use rotation::Reason;
    use rstest::rstest;

    fn now() -> Timestamp {
        "2026-11-29T12:00:00Z".parse().expect("a timestamp")
    }

    fn later(days: i64) -> Timestamp {
        now().checked_add(SignedDuration::from_hours(days * 24)).expect("within range")
    }

    fn names() -> Vec<String> {
        operator_names("spawnery-system")
    }

    fn fresh() -> Stored {
        Stored::default()
            .carry_out(Rotation::Reissue(Reason::Missing), now(), &names())
            .expect("issued")
            .expect("changed")
    }

    #[test]
    fn an_empty_secret_gets_ca_and_leaf_and_is_then_left_alone() {
        let empty = Stored::from_data(&BTreeMap::new());
        let plan = empty.plan(now(), &names(), &[]);
        assert_eq!(plan, Rotation::Reissue(Reason::Missing));
        let made = empty.carry_out(plan, now(), &names()).expect("issued").expect("changed");
        let data = made.to_data();
        assert_eq!(data.keys().map(String::as_str).collect::<Vec<_>>(), ["ca.crt", "ca.key", "tls.crt", "tls.key"]);
        let read = Stored::from_data(&data);
        assert_eq!(read.plan(now(), &names(), &parse::fingerprints(made.ca_pem().expect("a CA"))), Rotation::Keep);
        assert_eq!(read.to_data(), data, "reading and writing changes nothing");
    }

    #[test]
    fn renewal_keeps_the_ca() {
        let old = fresh();
        let plan = old.plan(later(61), &names(), &[]);
        assert_eq!(plan, Rotation::Renew(Reason::Due));
        let renewed = old.carry_out(plan, later(61), &names()).expect("issued").expect("changed");
        assert_eq!(renewed.ca_pem(), old.ca_pem());
        assert_ne!(renewed.leaf, old.leaf);
        assert_eq!(renewed.plan(later(61), &names(), &[]), Rotation::Keep);
    }

    #[rstest]
    #[case::ca_cert_gone("ca.crt", None, Rotation::Reissue(Reason::Missing))]
    #[case::ca_key_gone("ca.key", None, Rotation::Reissue(Reason::Unsound))]
    #[case::ca_key_garbage("ca.key", Some("no key"), Rotation::Reissue(Reason::Unsound))]
    #[case::leaf_gone("tls.crt", None, Rotation::Renew(Reason::Missing))]
    #[case::leaf_garbage("tls.crt", Some("no certificate"), Rotation::Renew(Reason::Missing))]
    #[case::leaf_key_garbage("tls.key", Some("no key"), Rotation::Renew(Reason::Unsound))]
    fn damage(#[case] key: &str, #[case] content: Option<&str>, #[case] want: Rotation) {
        let mut data = fresh().to_data();
        match content {
            Some(content) => drop(data.insert(key.to_owned(), content.as_bytes().to_vec())),
            None => drop(data.remove(key)),
        }
        assert_eq!(Stored::from_data(&data).plan(now(), &names(), &[]), want);
    }

    #[test]
    fn a_leaf_for_other_names_or_of_another_ca_is_unsound() {
        let stored = fresh();
        assert_eq!(stored.plan(now(), &operator_names("elsewhere"), &[]), Rotation::Renew(Reason::Unsound));
        let foreign = Stored { leaf: fresh().leaf, ..stored };
        assert_eq!(foreign.plan(now(), &names(), &[]), Rotation::Renew(Reason::Unsound));
    }

    #[test]
    fn what_was_not_published_is_published_first() {
        let (stored, other) = (fresh(), fresh());
        let published = parse::fingerprints(other.ca_pem().expect("a CA"));
        assert_eq!(stored.plan(later(61), &names(), &published), Rotation::Publish);
        assert!(stored.carry_out(Rotation::Publish, now(), &names()).expect("no failure").is_none());
    }
}
