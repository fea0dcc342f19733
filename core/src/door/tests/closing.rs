//! How a door closes, and what keeps it from being empty.

use rstest::rstest;

use super::scene::{OURS, Scene, UPSTREAM, proxy, uid, wall};
use crate::door::{Out, ProxyFacts, WantDoor};
use crate::ledger::{Capabilities, Role};

#[test]
fn a_door_closes_by_confirmations_and_is_empty_by_answers() {
    let mut scene = Scene::new(OURS, OURS);
    assert_eq!(scene.door("s"), "Open");
    scene.want("s", WantDoor::Closed, true);
    assert_eq!(scene.door("s"), "Closing: waits for p and 1 more");
    scene.obey("p");
    assert_eq!(scene.door("s"), "Closing: waits for q");
    scene.obey("q");
    assert_eq!(scene.door("s"), "Closed: waits for p and 2 more");
    scene.count("s", 0, 0);
    assert_eq!(scene.door("s"), "Closed: waits for p and 2 more", "a report of its own accord is no answer");
    for name in ["p", "q"] {
        scene.obey(name);
    }
    assert_eq!(scene.door("s"), "Closed: waits for s");
    scene.obey("s");
    assert_eq!(scene.door("s"), "Empty");
    assert!(scene.realm.claim_seal(&uid("s"), false, scene.now()));
    assert_eq!(scene.door("s"), "Sealing");
    scene.want("s", WantDoor::Open, true);
    assert_eq!(scene.door("s"), "Sealing", "no way back");
    scene.realm.mark_sealed(&uid("s"), scene.now());
    scene.want("s", WantDoor::Open, true);
    assert_eq!(scene.door("s"), "Sealed");
    assert_eq!(scene.realm.directory().listings().count(), 0);
}

#[test]
fn whoever_holds_its_pod_up_is_told_of_the_seal_on_each_stream() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    scene.all_obey(&["p", "q", "p", "q", "s"]);
    assert!(scene.realm.claim_seal(&uid("s"), false, scene.now()));
    scene.realm.take_effects();
    assert_eq!(scene.messages("s"), [], "a seal that is being written may still be refused");
    scene.realm.mark_sealed(&uid("s"), scene.now());
    assert!(scene.realm.take_effects().wake.contains(&uid("s")));
    assert_eq!(scene.messages("s"), [Out::Release]);
    assert_eq!(scene.messages("s"), []);
    scene.cut("s");
    scene.join("s", Role::Server, OURS);
    assert_eq!(scene.messages("s"), [Out::Release]);
    scene.cut("s");
    scene.join("s", Role::Server, UPSTREAM);
    assert_eq!(scene.messages("s"), [], "an agent that does not wait for it is not told");
}

#[rstest]
#[case::closing(0)]
#[case::closed(1)]
#[case::empty(2)]
fn a_door_that_is_not_sealed_opens_again(#[case] rounds: usize) {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    for _ in 0..rounds {
        scene.all_obey(&["p", "q", "s"]);
    }
    scene.want("s", WantDoor::Open, true);
    assert_eq!(scene.door("s"), "Open");
    assert!(!scene.realm.claim_seal(&uid("s"), false, scene.now()));
    assert!(matches!(scene.messages("p").as_slice(), [Out::Register { .. } | Out::ReportNow { .. }, ..]));
    scene.want("s", WantDoor::Closed, true);
    assert_eq!(scene.door("s"), "Closing: waits for p and 1 more", "earlier confirmations count for nothing");
}

#[test]
fn an_answer_to_a_request_from_before_the_last_confirmation_is_none() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    scene.all_obey(&["p", "q", "p", "q", "s"]);
    assert_eq!(scene.door("s"), "Empty");
    scene.want("s", WantDoor::Open, true);
    scene.want("s", WantDoor::Closed, true);
    scene.all_obey(&["p", "q"]);
    scene.count("s", 0, 1);
    scene.count("p", 0, 1);
    assert_eq!(scene.door("s"), "Closed: waits for p and 2 more", "the answer is to an earlier request");
    scene.count("s", 0, 999);
    assert_eq!(scene.door("s"), "Closed: waits for p and 2 more", "a request that was not made");
}

#[test]
fn somebody_who_slipped_in_is_seen_before_the_seal() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    scene.through("p", 1, 0);
    scene.all_obey(&["p", "q", "q"]);
    assert!(scene.realm.server(&uid("s"), scene.now()).occupied);
    for out in scene.messages("s") {
        if let Out::ReportNow { nonce } = out {
            scene.count("s", 1, nonce);
        }
    }
    scene.through("p", 0, 0);
    assert!(scene.door("s").starts_with("Closed"), "{}", scene.door("s"));
    scene.count("s", 0, 0);
    scene.all_obey(&["p", "q", "s"]);
    assert_eq!(scene.door("s"), "Empty");
    scene.count("s", 1, 0);
    assert!(scene.door("s").starts_with("Closed"), "any join seen resets");
    assert!(!scene.realm.claim_seal(&uid("s"), false, scene.now()));
}

#[rstest]
#[case::as_long_as_its_process_may_live(0, false, 1)]
#[case::until_its_process_surely_ended(60, false, 0)]
#[case::until_its_pod_is_over(0, true, 0)]
fn what_a_proxy_saw_counts(#[case] restarted_after: u64, #[case] terminal: bool, #[case] want: u32) {
    let mut scene = Scene::new(OURS, OURS);
    scene.through("p", 1, 0);
    scene.cut("p");
    scene.pass(restarted_after);
    let at = wall(i64::try_from(scene.at).unwrap());
    let facts = ProxyFacts { terminal, container_since: Some(at), ..proxy("p") };
    scene.realm.observe_proxy(facts, scene.now(), at);
    assert_eq!(scene.realm.server(&uid("s"), scene.now()).last_players, want);
}

/// What releases, and what does not release, the door that `q` holds after `p` has confirmed.
#[rstest]
#[case::nothing("", true)]
#[case::cut("cut", true)]
#[case::cut_for_long("cut pass", true)]
#[case::dialled_only("cut dial", true)]
#[case::took_the_full_list("cut dial obey", false)]
#[case::confirmed_then_cut("obey cut", false)]
#[case::terminal("cut terminal", false)]
#[case::terminal_with_a_stream("terminal", false)]
#[case::gone("cut forget", false)]
#[case::gone_with_a_stream_up("forget", true)]
#[case::gone_and_the_stream_ended("forget cut", false)]
#[case::restarted_when_clocks_may_differ("cut restart", true)]
#[case::restarted_surely_later("cut pass restart", false)]
#[case::restarted_and_dialled("cut pass restart dial", false)]
fn what_releases_a_door(#[case] happens: &str, #[case] held: bool) {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    scene.obey("p");
    for what in happens.split_whitespace() {
        match what {
            "cut" => scene.cut("q"),
            "pass" => scene.pass(60),
            "dial" => scene.join("q", Role::Proxy, OURS),
            "obey" => scene.obey("q"),
            "forget" => scene.realm.forget(&uid("q"), scene.now()),
            "terminal" => scene.realm.observe_proxy(ProxyFacts { terminal: true, ..proxy("q") }, scene.now(), wall(0)),
            _ => {
                let at = wall(i64::try_from(scene.at).unwrap());
                let facts = ProxyFacts { container_since: Some(at), ..proxy("q") };
                scene.realm.observe_proxy(facts, scene.now(), at);
            }
        }
    }
    assert_eq!(scene.door("s").starts_with("Closing"), held, "{}", scene.door("s"));
}

#[rstest]
#[case::too_early(9, true)]
#[case::late_enough(10, false)]
fn an_upstream_proxy_confirms_by_a_report_long_enough_after_the_write(#[case] after: u64, #[case] held: bool) {
    let mut scene = Scene::new(UPSTREAM, OURS);
    scene.want("s", WantDoor::Closed, true);
    for name in ["p", "q"] {
        assert!(matches!(scene.messages(name).as_slice(), [Out::Unregister { .. }]));
    }
    scene.pass(after);
    assert!(scene.door("s").starts_with("Closing"), "time alone confirms nothing");
    scene.count("p", 0, 0);
    scene.count("q", 0, 0);
    assert_eq!(scene.door("s").starts_with("Closing"), held, "{}", scene.door("s"));
}

#[rstest]
#[case::too_early(4, "Closed: waits for s")]
#[case::late_enough(5, "Empty")]
fn an_upstream_server_is_empty_by_a_report_an_interval_after_the_last_confirmation(
    #[case] after: u64,
    #[case] want: &str,
) {
    let mut scene = Scene::new(OURS, UPSTREAM);
    scene.want("s", WantDoor::Closed, true);
    scene.all_obey(&["p", "q", "p", "q"]);
    scene.pass(after);
    scene.count("s", 0, 0);
    assert_eq!(scene.door("s"), want);
}

#[test]
fn a_server_that_was_never_routable_is_empty_without_reports() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("t", WantDoor::Closed, false);
    assert_eq!(scene.door("t"), "Empty");
    scene.join("t", Role::Server, OURS);
    scene.count("t", 1, 0);
    assert_eq!(scene.door("t"), "Closed: waits for everybody to leave", "unless somebody is counted on it");
}

#[test]
fn a_server_whose_agent_is_silent_is_not_empty() {
    let mut scene = Scene::new(OURS, OURS);
    scene.cut("s");
    scene.want("s", WantDoor::Closed, true);
    scene.all_obey(&["p", "q", "p", "q"]);
    scene.pass(3600);
    assert_eq!(scene.door("s"), "Closed: waits for p and 2 more", "lost answers are asked for again");
    scene.all_obey(&["p", "q", "p", "q"]);
    assert_eq!(scene.door("s"), "Closed: waits for s");
    scene.join("s", Role::Server, OURS);
    scene.obey("s");
    assert_eq!(scene.door("s"), "Empty");
}

#[test]
fn a_proxys_door_waits_for_the_endpoints_and_then_for_a_zero() {
    let mut scene = Scene::new(OURS, OURS);
    scene.realm.set_ready(&uid("p"), false, scene.now());
    assert_eq!(scene.messages("p"), vec![Out::SetReady(false)]);
    assert_eq!(scene.door("p"), "Closing: waits for the service's endpoints");
    scene.realm.observe_proxy(ProxyFacts { routable: false, ..proxy("p") }, scene.now(), wall(0));
    scene.pass(4);
    assert!(scene.door("p").starts_with("Closing"));
    scene.pass(1);
    assert_eq!(scene.door("p"), "Closed: waits for p");
    scene.obey("p");
    assert_eq!(scene.door("p"), "Empty");
    scene.realm.set_ready(&uid("p"), true, scene.now());
    assert_eq!(scene.door("p"), "Open");
}

#[test]
fn an_agent_that_can_refuse_newcomers_must_confirm_that_it_does() {
    let door = Capabilities { door: true, ..OURS };
    let mut scene = Scene::new(OURS, door);
    scene.want("s", WantDoor::Closed, true);
    scene.all_obey(&["p", "q"]);
    assert_eq!(scene.door("s"), "Closing: waits for s");
    scene.obey("s");
    scene.all_obey(&["p", "q", "s"]);
    assert_eq!(scene.door("s"), "Empty");
    scene.join("s", Role::Server, door);
    assert_eq!(scene.door("s"), "Closing: waits for s", "a new process has an open door");
}

#[test]
fn a_deadline_seals_whatever_the_door_says() {
    let mut scene = Scene::new(OURS, OURS);
    scene.count("s", 3, 0);
    assert!(scene.realm.claim_seal(&uid("s"), true, scene.now()));
    assert_eq!(scene.door("s"), "Sealing");
    scene.realm.abandon_seal(&uid("s"), scene.now());
    assert!(scene.door("s").starts_with("Closing"), "still closed");
    assert!(matches!(scene.messages("p").as_slice(), [Out::Unregister { .. }]));
}

#[test]
fn a_seal_seen_before_the_pod_is_declared_is_not_lost() {
    let mut scene = Scene::bare();
    scene.realm.mark_sealed(&uid("s"), scene.now());
    scene.want("s", WantDoor::Open, true);
    assert_eq!(scene.door("s"), "Sealed");
    assert_eq!(scene.realm.directory().listings().count(), 0);
}

/// For how long nobody new could get to proxy `p`.
fn shut_for(scene: &Scene) -> u64 {
    scene.realm.proxy(&uid("p"), scene.now()).shut_for.as_secs()
}

#[test]
fn a_proxy_off_its_service_takes_nobody_in_whether_it_hears_us_or_not() {
    let mut scene = Scene::new(Capabilities { door: true, ..OURS }, OURS);
    scene.realm.set_ready(&uid("p"), false, scene.now());
    scene.pass(60);
    assert_eq!(shut_for(&scene), 0, "the kubelet still calls it ready");
    scene.cut("p");
    scene.realm.observe_proxy(ProxyFacts { routable: false, ..proxy("p") }, scene.now(), wall(0));
    scene.pass(5);
    assert_eq!(shut_for(&scene), 0, "somebody may still be on the way");
    scene.pass(20);
    assert_eq!((shut_for(&scene), scene.door("p").as_str()), (20, "Closing: waits for p"));
    scene.realm.observe_proxy(proxy("p"), scene.now(), wall(0));
    scene.realm.observe_proxy(ProxyFacts { routable: false, ..proxy("p") }, scene.now(), wall(0));
    scene.pass(7);
    assert_eq!(shut_for(&scene), 2, "it was ready for a moment");
}

#[test]
fn past_the_service_only_a_proxys_own_word_counts() {
    let mut scene = Scene::new(Capabilities { door: true, ..OURS }, OURS);
    let unready = ProxyFacts { routable: false, host_port: true, ..proxy("p") };
    scene.realm.observe_proxy(unready, scene.now(), wall(0));
    scene.realm.set_ready(&uid("p"), false, scene.now());
    scene.pass(60);
    assert_eq!(shut_for(&scene), 0, "it has not said that it refuses newcomers");
    scene.obey("p");
    scene.pass(20);
    assert_eq!(shut_for(&scene), 20);
    scene.join("p", Role::Proxy, Capabilities { door: true, ..OURS });
    scene.pass(1);
    assert_eq!(shut_for(&scene), 21, "a renewed session is the same process");
    scene.cut("p");
    assert_eq!(shut_for(&scene), 0, "nobody knows what runs there now");
    scene.join("p", Role::Proxy, Capabilities { door: true, ..OURS });
    scene.pass(1);
    assert_eq!(shut_for(&scene), 0, "a new process has an open door");
    scene.obey("p");
    scene.pass(3);
    assert_eq!(shut_for(&scene), 3);
}

/// An unready proxy with a port of its node, whose agent this leader has never heard.
fn unheard() -> Scene {
    let mut scene = Scene::bare();
    scene.realm.observe_proxy(ProxyFacts { routable: false, host_port: true, ..proxy("p") }, scene.now(), wall(0));
    scene.realm.listed(scene.now());
    scene.realm.set_ready(&uid("p"), false, scene.now());
    scene
}

#[test]
fn an_agent_that_never_comes_is_not_waited_for() {
    let mut scene = unheard();
    scene.pass(645);
    assert_eq!(shut_for(&scene), 0, "it may be on its way back from an earlier leader, with players");
    scene.pass(20);
    assert_eq!((shut_for(&scene), scene.door("p").as_str()), (20, "Closed: waits for p"));
    scene.realm.observe_proxy(ProxyFacts { host_port: true, ..proxy("p") }, scene.now(), wall(0));
    assert_eq!(shut_for(&scene), 0, "the kubelet calls it ready");
    // This process has led for long enough to hear whoever starts: only the kubelet's word is waited for.
    let young = ProxyFacts { routable: false, host_port: true, ..proxy("q") };
    scene.realm.observe_proxy(young, scene.now(), wall(0));
    scene.pass(12);
    assert_eq!(scene.realm.proxy(&uid("q"), scene.now()).shut_for.as_secs(), 7);
}

#[test]
fn an_agent_that_comes_late_speaks_for_itself() {
    let mut scene = unheard();
    scene.pass(665);
    scene.join("p", Role::Proxy, Capabilities { door: true, ..OURS });
    assert_eq!(shut_for(&scene), 0, "it has not said that it refuses newcomers");
    scene.obey("p");
    scene.pass(3);
    assert_eq!(shut_for(&scene), 3);
    scene.cut("p");
    scene.pass(640);
    assert_eq!(shut_for(&scene), 0, "it may yet come back");
    scene.pass(10);
    assert!(
        (1..=10).contains(&shut_for(&scene)),
        "it is silent for as long as one that never came: {}",
        shut_for(&scene)
    );
}
