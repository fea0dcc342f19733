use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn pod() -> PodFacts {
    PodFacts {
        managed: true,
        uid: "u1".into(),
        terminal: false,
        terminating: false,
        sealed: false,
        occupied: false,
        recorded: None,
    }
}

fn occupied() -> PodFacts {
    PodFacts { occupied: true, ..pod() }
}

fn request() -> RequestFacts {
    RequestFacts { patience: Duration::from_secs(3), ..RequestFacts::default() }
}

fn of_uid(uid: &str) -> RequestFacts {
    RequestFacts { uid: Some(uid.into()), ..request() }
}

fn dry() -> RequestFacts {
    RequestFacts { dry_run: true, ..request() }
}

const FRESH: CacheFacts = CacheFacts { fresh: true, managed_namespace: true };
const STALE: CacheFacts = CacheFacts { fresh: false, managed_namespace: true };
const STALE_ELSEWHERE: CacheFacts = CacheFacts { fresh: false, managed_namespace: false };

fn deny(why: Why) -> Verdict {
    let hold = (why == Why::Open).then_some(HOLD);
    Verdict::Deny(Denial { why, record: true, hold, descheduler: false })
}

fn deny_quietly(why: Why) -> Verdict {
    Verdict::Deny(Denial { why, record: false, hold: None, descheduler: false })
}

#[rstest]
#[case::not_ours(PodFacts { managed: false, ..occupied() }, request(), FRESH, Verdict::Allow(Allow::NotOurs))]
#[case::terminal(PodFacts { terminal: true, ..occupied() }, request(), FRESH, Verdict::Allow(Allow::Terminal))]
#[case::terminating(PodFacts { terminating: true, ..occupied() }, request(), FRESH, Verdict::Allow(Allow::Terminating))]
#[case::uid_of_another_pod(occupied(), of_uid("u0"), FRESH, Verdict::Allow(Allow::OtherPod))]
#[case::uid_of_this_pod(occupied(), of_uid("u1"), FRESH, deny(Why::Occupied))]
#[case::sealed(PodFacts { sealed: true, ..pod() }, request(), FRESH, Verdict::Allow(Allow::Sealed))]
#[case::sealed_by_deadline_though_occupied(PodFacts { sealed: true, ..occupied() }, request(), FRESH, Verdict::Allow(Allow::Sealed))]
#[case::sealed_in_an_old_cache_is_still_final(PodFacts { sealed: true, ..pod() }, request(), STALE, Verdict::Allow(Allow::Sealed))]
#[case::sealed_dry_run(PodFacts { sealed: true, ..pod() }, dry(), FRESH, Verdict::Allow(Allow::Sealed))]
#[case::occupied(occupied(), request(), FRESH, deny(Why::Occupied))]
#[case::occupied_in_an_old_cache(occupied(), request(), STALE, deny(Why::Occupied))]
#[case::occupied_though_the_network_is_gone(occupied(), request(), STALE_ELSEWHERE, deny(Why::Occupied))]
#[case::empty_and_open(pod(), request(), FRESH, deny(Why::Open))]
#[case::empty_and_open_in_an_old_cache(pod(), request(), STALE, deny(Why::Open))]
#[case::dry_run_occupied(occupied(), dry(), FRESH, deny_quietly(Why::Occupied))]
#[case::dry_run_empty(pod(), dry(), FRESH, Verdict::Allow(Allow::DryRunEmpty))]
fn judges_a_known_pod(
    #[case] pod: PodFacts,
    #[case] request: RequestFacts,
    #[case] cache: CacheFacts,
    #[case] want: Verdict,
) {
    assert_eq!(judge(Some(&pod), &request, cache), want);
}

#[rstest]
#[case::fresh_cache(request(), FRESH, Verdict::Allow(Allow::Unknown))]
#[case::old_cache(request(), STALE, deny_quietly(Why::Unsure))]
#[case::old_cache_dry_run(dry(), STALE, deny_quietly(Why::Unsure))]
#[case::old_cache_in_a_namespace_without_network(request(), STALE_ELSEWHERE, Verdict::Allow(Allow::Unknown))]
fn judges_an_unknown_pod(#[case] request: RequestFacts, #[case] cache: CacheFacts, #[case] want: Verdict) {
    assert_eq!(judge(None, &request, cache), want);
}

#[rstest]
#[case::first_request(None, None, true)]
#[case::ours_is_on_its_way(None, Some(1), false)]
#[case::ours_does_not_show(None, Some(59), false)]
#[case::ours_got_lost(None, Some(60), true)]
#[case::shown_and_young(Some(59), None, false)]
#[case::shown_by_another_replica(Some(10), Some(300), false)]
#[case::shown_and_old(Some(60), None, true)]
#[case::shown_and_old_but_we_just_repeated_it(Some(61), Some(1), false)]
#[case::shown_and_old_and_ours_is_old(Some(60), Some(60), true)]
fn records(#[case] shown_seconds: Option<u64>, #[case] queued_seconds: Option<u64>, #[case] want: bool) {
    let pod = PodFacts { recorded: shown_seconds.map(Duration::from_secs), ..occupied() };
    let request = RequestFacts { queued: queued_seconds.map(Duration::from_secs), ..request() };
    let Verdict::Deny(denial) = judge(Some(&pod), &request, FRESH) else { panic!("an occupied pod was let go") };
    assert_eq!(denial.record, want);
}

#[rstest]
#[case::plenty(10_000, Some(1_500))]
#[case::exactly(2_000, Some(1_500))]
#[case::short(1_200, Some(700))]
#[case::nothing_left(500, None)]
#[case::late(0, None)]
fn holds_until_shortly_before_the_caller_gives_up(#[case] patience_ms: u64, #[case] want_ms: Option<u64>) {
    let request = RequestFacts { patience: Duration::from_millis(patience_ms), ..request() };
    let Verdict::Deny(denial) = judge(Some(&pod()), &request, FRESH) else { panic!("an open pod was let go") };
    assert_eq!(denial.hold, want_ms.map(Duration::from_millis));
}

#[rstest]
#[case::plain(false, false)]
#[case::descheduler(true, true)]
fn speaks_to_the_descheduler(#[case] descheduler: bool, #[case] want: bool) {
    let request = RequestFacts { descheduler, ..request() };
    let Verdict::Deny(denial) = judge(Some(&occupied()), &request, FRESH) else { panic!("an occupied pod was let go") };
    assert_eq!(denial.message().contains(DESCHEDULER_PHRASE), want);
    assert!(denial.message().starts_with(Why::Occupied.message()));
}

#[test]
fn messages_are_stable_and_never_read_like_a_missing_right() {
    for why in [Why::Occupied, Why::Open, Why::Unsure] {
        let message = why.message();
        assert!(!message.contains("is forbidden:"), "{message}");
        assert!(!message.chars().any(|c| c.is_ascii_digit() || c == '\n'), "{message}");
    }
}

fn any_pod() -> impl Strategy<Value = PodFacts> {
    let seconds = proptest::option::of((0_u64..200).prop_map(Duration::from_secs));
    (any::<[bool; 5]>(), "[uv]", seconds).prop_map(
        |([managed, terminal, terminating, sealed, occupied], uid, recorded)| PodFacts {
            managed,
            uid,
            terminal,
            terminating,
            sealed,
            occupied,
            recorded,
        },
    )
}

fn any_request() -> impl Strategy<Value = RequestFacts> {
    (proptest::option::of("[uv]"), any::<[bool; 2]>(), proptest::option::of(0_u64..200), 0_u64..40_000).prop_map(
        |(uid, [dry_run, descheduler], queued, patience)| RequestFacts {
            uid,
            dry_run,
            descheduler,
            queued: queued.map(Duration::from_secs),
            patience: Duration::from_millis(patience),
        },
    )
}

fn any_cache() -> impl Strategy<Value = CacheFacts> {
    any::<[bool; 2]>().prop_map(|[fresh, managed_namespace]| CacheFacts { fresh, managed_namespace })
}

proptest! {
    /// A running pod of ours that the request means is evicted for real by the seal and by nothing else.
    #[test]
    fn only_the_seal_releases(pod in any_pod(), request in any_request(), cache in any_cache()) {
        let pod = PodFacts { managed: true, terminal: false, terminating: false, ..pod };
        let request = RequestFacts { dry_run: false, uid: request.uid.map(|_| pod.uid.clone()), ..request };
        let allowed = matches!(judge(Some(&pod), &request, cache), Verdict::Allow(_));
        prop_assert_eq!(allowed, pod.sealed);
    }

    /// A dry run leaves nothing behind, and nobody waits for it.
    #[test]
    fn a_dry_run_changes_nothing(pod in proptest::option::of(any_pod()), request in any_request(), cache in any_cache()) {
        let request = RequestFacts { dry_run: true, ..request };
        if let Verdict::Deny(denial) = judge(pod.as_ref(), &request, cache) {
            prop_assert!(!denial.record && denial.hold.is_none());
        }
    }

    /// A held answer always leaves the margin.
    #[test]
    fn a_hold_ends_in_time(pod in any_pod(), request in any_request(), cache in any_cache()) {
        if let Verdict::Deny(Denial { hold: Some(hold), .. }) = judge(Some(&pod), &request, cache) {
            prop_assert!(hold <= HOLD && hold + HOLD_MARGIN <= request.patience);
        }
    }
}
