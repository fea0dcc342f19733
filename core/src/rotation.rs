//! What to do with the certificates now: keep them, renew the leaf, or start again.
//!
//! ```text
//! now, leaf, CA, published bundle ──► next() ──► Keep | Renew (same CA) | Reissue (new CA) | Publish (before anything is served)
//! ```
//!
//! A leaf is renewed when less than a third of its lifetime is left. The CA is kept for as long as it can sign: a new one
//! is unknown to every running agent until the new bundle has reached it, so it is made only when there is nothing to
//! keep. Rotating a healthy CA with overlap (publish old and new, confirm, swap the leaf, drop the old) is a later step of
//! this same rule; [`Rotation::Publish`] is its first half, and already needed whenever a bundle lags its CA.

use jiff::Timestamp;

/// SHA-256 of a certificate's DER: how certificates are told apart without carrying them around.
pub type Fingerprint = [u8; 32];

/// The half-open span in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First moment of validity.
    pub not_before: Timestamp,
    /// From this moment on no longer valid.
    pub not_after: Timestamp,
}

impl Validity {
    /// Whether a certificate of this validity may be used at `now`.
    pub fn covers(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Whether less than a third of the lifetime is left at `now`; true for an expired one.
    ///
    /// A validity that ends before it begins has no lifetime and is always due.
    pub fn renewal_due(&self, now: Timestamp) -> bool {
        let lifetime = self.not_after.as_second().saturating_sub(self.not_before.as_second());
        let left = self.not_after.as_second().saturating_sub(now.as_second());
        left.saturating_mul(3) < lifetime || lifetime <= 0
    }
}

/// A CA certificate as the rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ca {
    /// When it is valid.
    pub validity: Validity,
    /// Which certificate it is.
    pub fingerprint: Fingerprint,
    /// Its private key is there, matches, and it may sign certificates.
    pub can_sign: bool,
}

/// A leaf certificate as the rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// When it is valid.
    pub validity: Validity,
    /// Signed by the CA at hand, names every required host, and its private key matches.
    pub sound: bool,
}

/// What to do with the certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Nothing to do.
    Keep,
    /// The CA stands but is missing in what clients trust: publish it before any leaf of it is served.
    Publish,
    /// Sign a new leaf with the CA at hand.
    Renew(Reason),
    /// Make a new CA and a leaf of it: nothing there can be kept.
    Reissue(Reason),
}

/// Why certificates are made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none, or it cannot be read.
    Missing,
    /// Wrong signer, wrong names or wrong key, or a CA that cannot sign.
    Unsound,
    /// Less than a third of the lifetime is left.
    Due,
    /// Past its end, or before its beginning.
    NotValid,
}

impl Reason {
    /// The reason in logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unsound => "unsound",
            Self::Due => "due",
            Self::NotValid => "not-valid",
        }
    }
}

/// What to do at `now` with `leaf` and `ca` as they stand (`None` = absent or unreadable), while clients trust `published`.
///
/// An empty `published` means that nothing was published yet or that nobody looked; it asks for nothing.
pub fn next(now: Timestamp, leaf: Option<&Leaf>, ca: Option<&Ca>, published: &[Fingerprint]) -> Rotation {
    let Some(ca) = ca else {
        return Rotation::Reissue(Reason::Missing);
    };
    if !ca.can_sign {
        return Rotation::Reissue(Reason::Unsound);
    }
    if !ca.validity.covers(now) {
        return Rotation::Reissue(Reason::NotValid);
    }
    if !published.is_empty() && !published.contains(&ca.fingerprint) {
        return Rotation::Publish;
    }
    match leaf {
        None => Rotation::Renew(Reason::Missing),
        Some(leaf) if !leaf.sound => Rotation::Renew(Reason::Unsound),
        Some(leaf) if !leaf.validity.covers(now) => Rotation::Renew(Reason::NotValid),
        Some(leaf) if leaf.validity.renewal_due(now) => Rotation::Renew(Reason::Due),
        Some(_) => Rotation::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const DAY: i64 = 86_400;
    const OURS: Fingerprint = [1; 32];
    const OTHER: Fingerprint = [2; 32];

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(day * DAY).expect("a day within jiff's range")
    }

    fn days(from: i64, to: i64) -> Validity {
        Validity { not_before: at(from), not_after: at(to) }
    }

    #[expect(clippy::unnecessary_wraps, reason = "cases read as what a Secret holds, which may be nothing")]
    fn ca(from: i64, to: i64) -> Option<Ca> {
        Some(Ca { validity: days(from, to), fingerprint: OURS, can_sign: true })
    }

    #[expect(clippy::unnecessary_wraps, reason = "cases read as what a Secret holds, which may be nothing")]
    fn leaf(from: i64, to: i64) -> Option<Leaf> {
        Some(Leaf { validity: days(from, to), sound: true })
    }

    #[rstest]
    #[case::fresh(30, leaf(0, 90), ca(0, 3650), &[], Rotation::Keep)]
    #[case::exactly_a_third_left_stays(60, leaf(0, 90), ca(0, 3650), &[], Rotation::Keep)]
    #[case::less_than_a_third_left_is_renewed(61, leaf(0, 90), ca(0, 3650), &[], Rotation::Renew(Reason::Due))]
    #[case::expired_leaf(90, leaf(0, 90), ca(0, 3650), &[], Rotation::Renew(Reason::NotValid))]
    #[case::leaf_of_the_future(5, leaf(10, 100), ca(0, 3650), &[], Rotation::Renew(Reason::NotValid))]
    #[case::no_leaf(30, None, ca(0, 3650), &[], Rotation::Renew(Reason::Missing))]
    #[case::unsound_leaf(30, leaf(0, 90).map(|l| Leaf { sound: false, ..l }), ca(0, 3650), &[], Rotation::Renew(Reason::Unsound))]
    #[case::nothing_at_all(30, None, None, &[], Rotation::Reissue(Reason::Missing))]
    #[case::leaf_without_its_ca(30, leaf(0, 90), None, &[], Rotation::Reissue(Reason::Missing))]
    #[case::ca_that_cannot_sign(30, leaf(0, 90), ca(0, 3650).map(|c| Ca { can_sign: false, ..c }), &[], Rotation::Reissue(Reason::Unsound))]
    #[case::expired_ca(3650, leaf(3600, 3690), ca(0, 3650), &[], Rotation::Reissue(Reason::NotValid))]
    #[case::old_ca_is_kept_while_it_can_sign(3649, leaf(3600, 3690), ca(0, 3650), &[], Rotation::Keep)]
    #[case::published(30, leaf(0, 90), ca(0, 3650), &[OTHER, OURS], Rotation::Keep)]
    #[case::published_lags(30, leaf(0, 90), ca(0, 3650), &[OTHER], Rotation::Publish)]
    #[case::publish_goes_before_renewal(80, leaf(0, 90), ca(0, 3650), &[OTHER], Rotation::Publish)]
    fn decides(
        #[case] day: i64,
        #[case] leaf: Option<Leaf>,
        #[case] ca: Option<Ca>,
        #[case] published: &[Fingerprint],
        #[case] want: Rotation,
    ) {
        assert_eq!(next(at(day), leaf.as_ref(), ca.as_ref(), published), want);
    }

    proptest! {
        /// Whatever is kept can be served: a rotation never leaves an invalid leaf in place.
        #[test]
        fn what_is_kept_is_valid(now in 0i64..5000, from in 0i64..5000, len in -10i64..5000, ca_len in 0i64..5000, sound: bool) {
            let leaf = Leaf { validity: days(from, from + len), sound };
            let ca = Ca { validity: days(0, ca_len), fingerprint: OURS, can_sign: true };
            if next(at(now), Some(&leaf), Some(&ca), &[OURS]) == Rotation::Keep {
                prop_assert!(leaf.sound && leaf.validity.covers(at(now)) && ca.validity.covers(at(now)));
            }
        }

        /// Once due, a leaf stays due: a missed tick only delays the renewal.
        #[test]
        fn due_stays_due(now in 0i64..200, later in 0i64..200) {
            let validity = days(0, 90);
            if validity.renewal_due(at(now)) {
                prop_assert!(validity.renewal_due(at(now + later)));
            }
        }
    }
}
