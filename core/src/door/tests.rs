//! Doors of one namespace, step by step.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rstest::rstest;

use super::directory::Directory;
use super::{ChangeKind, DoorView, Introduction, Out, ProxyFacts, Realm, Revision, ServerWant, WantDoor};
use crate::ledger::{Capabilities, Generation, PodUid, Report, Role, Rules, ServerCount};

const OURS: Capabilities = Capabilities {
    directory_revisions: true,
    report_now: true,
    server_occupancy: true,
    door: false,
    keep_alive: true,
};
const UPSTREAM: Capabilities = Capabilities {
    directory_revisions: false,
    report_now: false,
    server_occupancy: false,
    door: false,
    keep_alive: false,
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn uid(name: &str) -> PodUid {
    PodUid::from(name)
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn want(name: &str, door: WantDoor, was_routable: bool) -> ServerWant {
    ServerWant {
        uid: uid(name),
        namespace: "game".into(),
        name: name.into(),
        group: "lobby".into(),
        address: format!("{name}:25565"),
        was_routable,
        door,
    }
}

fn proxy(name: &str) -> ProxyFacts {
    ProxyFacts {
        uid: uid(name),
        namespace: "game".into(),
        name: name.into(),
        group: "edge".into(),
        fallback_groups: vec!["lobby".into()],
        terminal: false,
        started: true,
        container_since: None,
        routable: true,
        host_port: false,
    }
}

/// A realm at second `at`, counted from when it began to lead.
struct Scene {
    realm: Realm,
    t0: Instant,
    at: u64,
    generation: u64,
}

impl Scene {
    /// Server `s` is open, proxies `p` and `q` were told so and have confirmed it; nobody is anywhere.
    fn new(proxies: Capabilities, server: Capabilities) -> Self {
        let mut scene = Self::bare();
        for name in ["p", "q"] {
            scene.realm.observe_proxy(proxy(name), scene.now(), wall(0));
        }
        scene.realm.listed(scene.now());
        scene.want("s", WantDoor::Closed, false);
        scene.want("s", WantDoor::Open, true);
        scene.join("s", Role::Server, server);
        scene.count("s", 0, 0);
        for name in ["p", "q"] {
            scene.join(name, Role::Proxy, proxies);
            scene.through(name, 0, 0);
            scene.obey(name);
        }
        scene
    }

    fn bare() -> Self {
        let t0 = Instant::now();
        let realm = Realm::new("game", Rules::default(), Some(t0), false);
        Self { realm, t0, at: 0, generation: 0 }
    }

    fn now(&self) -> Instant {
        self.t0 + secs(self.at)
    }

    fn want(&mut self, name: &str, door: WantDoor, was_routable: bool) {
        self.realm.want(want(name, door, was_routable), self.now());
    }

    fn join(&mut self, name: &str, role: Role, can: Capabilities) {
        self.generation += 1;
        let generation = Generation(self.generation);
        let group = if role == Role::Proxy { "edge" } else { "lobby" };
        let who = Introduction { uid: uid(name), name: name.into(), group: group.into(), role };
        self.realm.join(&who, generation, self.now());
        self.realm.hello(&who.uid, generation, role == Role::Server, can, self.now());
    }

    fn session(&self, name: &str) -> Generation {
        self.realm.ledger().get(&uid(name)).and_then(|entry| entry.session()).expect("connected")
    }

    fn cut(&mut self, name: &str) {
        let generation = self.session(name);
        self.realm.leave(&uid(name), generation, self.now());
    }

    fn count(&mut self, name: &str, players: i32, nonce: u64) {
        let report = Report { players, slots: 20, nonce, servers: Vec::new() };
        self.realm.report(&uid(name), self.session(name), &report, self.now()).unwrap();
    }

    fn through(&mut self, name: &str, connecting: i32, nonce: u64) {
        let servers = vec![ServerCount { server: "s".into(), players: 0, connecting }];
        let report = Report { players: connecting, slots: 500, nonce, servers };
        self.realm.report(&uid(name), self.session(name), &report, self.now()).unwrap();
    }

    fn messages(&mut self, name: &str) -> Vec<Out> {
        let generation = self.session(name);
        let now = self.now();
        std::iter::from_fn(|| self.realm.next(&uid(name), generation, now)).collect()
    }

    fn confirm(&mut self, name: &str, revision: Revision) {
        self.realm.directory_applied(&uid(name), self.session(name), revision, self.now());
    }

    /// The agent takes all its messages and answers each as an agent of ours on an empty pod.
    fn obey(&mut self, name: &str) {
        for out in self.messages(name) {
            match out {
                Out::FullSync { revision, .. } | Out::Register { revision, .. } | Out::Unregister { revision, .. } => {
                    self.confirm(name, revision);
                }
                Out::ReportNow { nonce } => self.count(name, 0, nonce),
                Out::Door { open, revision } => {
                    let generation = self.session(name);
                    self.realm.door_applied(&uid(name), generation, open, revision, self.now());
                }
                Out::Drain { .. } | Out::SetReady(_) => {}
            }
        }
    }

    fn door(&self, name: &str) -> String {
        match name {
            "s" | "t" => self.realm.server(&uid(name), self.now()).door.to_string(),
            _ => self.realm.proxy(&uid(name), self.now()).door.to_string(),
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.at += seconds;
        self.realm.tick(self.now());
    }
}

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

#[rstest]
#[case::closing(0)]
#[case::closed(1)]
#[case::empty(2)]
fn a_door_that_is_not_sealed_opens_again(#[case] rounds: usize) {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    for _ in 0..rounds {
        ["p", "q", "s"].iter().for_each(|name| scene.obey(name));
    }
    scene.want("s", WantDoor::Open, true);
    assert_eq!(scene.door("s"), "Open");
    assert!(!scene.realm.claim_seal(&uid("s"), false, scene.now()));
    assert!(matches!(scene.messages("p").as_slice(), [Out::Register { .. }, ..] | [Out::ReportNow { .. }, ..]));
    scene.want("s", WantDoor::Closed, true);
    assert_eq!(scene.door("s"), "Closing: waits for p and 1 more", "earlier confirmations count for nothing");
}

#[test]
fn an_answer_to_a_request_from_before_the_last_confirmation_is_none() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    ["p", "q", "p", "q", "s"].iter().for_each(|name| scene.obey(name));
    assert_eq!(scene.door("s"), "Empty");
    scene.want("s", WantDoor::Open, true);
    scene.want("s", WantDoor::Closed, true);
    ["p", "q"].iter().for_each(|name| scene.obey(name));
    scene.count("s", 0, 1);
    scene.count("p", 0, 1);
    assert_eq!(scene.door("s"), "Closed: waits for p and 1 more", "q has obeyed both");
    scene.count("s", 0, 999);
    assert_eq!(scene.door("s"), "Closed: waits for p and 1 more", "a nonce that was not sent");
}

#[test]
fn somebody_who_slipped_in_is_seen_before_the_seal() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    scene.through("p", 1, 0);
    ["p", "q"].iter().for_each(|name| scene.obey(name));
    ["p", "q"].iter().for_each(|name| scene.obey(name));
    assert!(scene.realm.server(&uid("s"), scene.now()).occupied);
    for out in scene.messages("s") {
        if let Out::ReportNow { nonce } = out {
            scene.count("s", 1, nonce);
        }
    }
    scene.through("p", 0, 0);
    assert!(scene.door("s").starts_with("Closed"), "{}", scene.door("s"));
    scene.count("s", 0, 0);
    ["p", "q", "s"].iter().for_each(|name| scene.obey(name));
    assert_eq!(scene.door("s"), "Empty");
    scene.count("s", 1, 0);
    assert!(scene.door("s").starts_with("Closed"), "any join seen resets");
    assert!(!scene.realm.claim_seal(&uid("s"), false, scene.now()));
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
    ["p", "q", "p", "q"].iter().for_each(|name| scene.obey(name));
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
    assert_eq!(scene.door("t"), "Closed", "unless somebody is counted on it");
}

#[test]
fn a_server_whose_agent_is_silent_is_not_empty() {
    let mut scene = Scene::new(OURS, OURS);
    scene.cut("s");
    scene.want("s", WantDoor::Closed, true);
    ["p", "q", "p", "q"].iter().for_each(|name| scene.obey(name));
    scene.pass(3600);
    assert_eq!(scene.door("s"), "Closed: waits for p and 2 more", "lost answers are asked for again");
    ["p", "q", "p", "q"].iter().for_each(|name| scene.obey(name));
    assert_eq!(scene.door("s"), "Closed: waits for s");
    scene.join("s", Role::Server, OURS);
    scene.obey("s");
    assert_eq!(scene.door("s"), "Empty");
}

#[rstest]
#[case::heard_nothing_of_it(true, "Closing: waits for p")]
#[case::it_never_ran(false, "Empty")]
fn a_new_leader_does_not_trust_what_proxies_were_told_before(#[case] started: bool, #[case] want: &str) {
    let mut scene = Scene::bare();
    scene.realm.observe_proxy(ProxyFacts { started, ..proxy("p") }, scene.now(), wall(0));
    scene.want("s", WantDoor::Closed, true);
    scene.realm.listed(scene.now());
    scene.join("s", Role::Server, OURS);
    assert!(scene.door("s").starts_with("Closing"), "its start may not have been seen yet");
    scene.pass(30);
    scene.obey("s");
    assert_eq!(scene.door("s"), want);
    scene.join("p", Role::Proxy, OURS);
    scene.obey("p");
    ["p", "s"].iter().for_each(|name| scene.obey(name));
    assert_eq!(scene.door("s"), "Empty");
}

#[test]
fn before_everything_is_listed_no_directory_is_sent_and_no_door_closed() {
    let mut scene = Scene::bare();
    scene.join("p", Role::Proxy, OURS);
    assert_eq!(scene.messages("p"), vec![]);
    scene.want("s", WantDoor::Closed, true);
    assert_eq!(scene.door("s"), "Closing: waits for p and 1 more");
    scene.realm.listed(scene.now());
    assert!(matches!(scene.messages("p").as_slice(), [Out::FullSync { .. }]));
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
    ["p", "q"].iter().for_each(|name| scene.obey(name));
    assert_eq!(scene.door("s"), "Closing: waits for s");
    scene.obey("s");
    ["p", "q", "s"].iter().for_each(|name| scene.obey(name));
    assert_eq!(scene.door("s"), "Empty");
    scene.join("s", Role::Server, door);
    assert_eq!(scene.door("s"), "Closing: waits for s", "a new process has an open door");
}

#[test]
fn drains_reach_every_proxy_now_and_after_it_comes_back() {
    let drain = |groups: &[&str]| Out::Drain {
        from_server: "s".into(),
        to_groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    };
    let mut scene = Scene::new(OURS, OURS);
    scene.realm.drain("s");
    scene.realm.drain("s");
    assert_eq!(scene.messages("p"), vec![drain(&["lobby"])]);
    scene.join("q", Role::Proxy, OURS);
    assert!(matches!(scene.messages("q").as_slice(), [Out::FullSync { .. }, Out::Drain { .. }]));
    scene.realm.resync();
    assert!(matches!(scene.messages("p").as_slice(), [Out::FullSync { .. }, Out::Drain { .. }]));
    scene.realm.stop_drain("s");
    assert_eq!(scene.messages("p"), vec![drain(&[])]);
    scene.realm.resync();
    assert!(matches!(scene.messages("p").as_slice(), [Out::FullSync { .. }]));
}

#[test]
fn a_whole_groups_change_is_sent_one_by_one_and_a_larger_one_as_the_full_list() {
    let mut scene = Scene::new(OURS, OURS);
    let names: Vec<String> = (0..500).map(|index| format!("s{index:03}")).collect();
    names.iter().for_each(|name| scene.want(name, WantDoor::Open, true));
    assert_eq!(scene.messages("p").len(), 500);
    names.iter().for_each(|name| scene.want(name, WantDoor::Closed, true));
    names.iter().for_each(|name| scene.want(name, WantDoor::Open, true));
    names.iter().for_each(|name| scene.want(name, WantDoor::Closed, true));
    let out = scene.messages("q");
    assert!(matches!(out.as_slice(), [Out::FullSync { .. }]), "{} messages", out.len());
    let out = scene.messages("p");
    assert!(matches!(out.as_slice(), [Out::FullSync { .. }]), "{} messages", out.len());
}

#[test]
fn a_change_that_a_later_one_overtakes_is_left_out() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("t", WantDoor::Open, true);
    scene.want("u", WantDoor::Open, true);
    scene.want("t", WantDoor::Closed, true);
    let out = scene.messages("p");
    assert!(
        matches!(out.as_slice(), [Out::Register { server, .. }, Out::Unregister { name, revision }, ..]
            if server.name == "u" && name == "t" && *revision == scene.realm.directory().revision()),
        "{out:?}"
    );
}

#[test]
fn a_confirmation_of_something_never_sent_on_this_stream_is_ignored() {
    let mut scene = Scene::new(OURS, OURS);
    scene.want("s", WantDoor::Closed, true);
    let revision = scene.realm.directory().revision();
    scene.confirm("p", revision);
    scene.confirm("q", Revision(u64::MAX));
    assert_eq!(scene.door("s"), "Closing: waits for p and 1 more");
}

#[test]
fn controllers_are_told_what_changed_and_nothing_else() {
    let mut scene = Scene::new(OURS, OURS);
    scene.realm.take_effects();
    scene.count("s", 0, 0);
    assert_eq!(scene.realm.take_effects().changes, vec![]);
    scene.count("s", 1, 0);
    let kinds: Vec<_> = scene.realm.take_effects().changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, vec![ChangeKind::Count, ChangeKind::Occupied]);
    scene.pass(10);
    let stale = scene.realm.take_effects().changes;
    assert!(stale.iter().any(|change| change.name == "s" && change.kind == ChangeKind::Count));
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

#[test]
fn nothing_is_kept_of_pods_that_are_gone() {
    let mut scene = Scene::new(OURS, OURS);
    scene.realm.drain("s");
    for name in ["s", "p", "q"] {
        scene.realm.forget(&uid(name), scene.now());
        scene.cut(name);
    }
    assert!(scene.realm.is_empty(), "{:?}", scene.realm);
    assert_eq!(scene.realm.server(&uid("s"), scene.now()).door, DoorView::Open);
}

#[test]
fn the_log_forgets_and_still_knows_what_was_overtaken() {
    let mut directory = Directory::new(3);
    let listing = |name: &str, address: &str| super::Listing {
        name: name.into(),
        address: address.into(),
        group: "lobby".into(),
        uid: uid(name),
    };
    let first = directory.revision();
    for (name, address) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")] {
        directory.put(listing(name, address)).unwrap();
    }
    assert_eq!(directory.after(first), super::directory::Next::Everything);
    let sent = Revision(first.0 + 1);
    let mut names = Vec::new();
    let mut at = sent;
    while let super::directory::Next::Register(revision, server) = directory.after(at) {
        names.push((server.name, server.address));
        at = revision;
    }
    assert_eq!(names, [("b".into(), "1".into()), ("a".into(), "2".into()), ("c".into(), "1".into())] as [(String, String); 3]);
    assert_eq!(at, directory.revision());
}
