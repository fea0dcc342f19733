//! What proxies are told, and what controllers are.

use rstest::rstest;

use super::scene::{OURS, Scene, proxy, uid, wall};
use crate::door::directory::{Directory, Next};
use crate::door::{ChangeKind, DoorView, Listing, Out, ProxyFacts, Revision, WantDoor};
use crate::ledger::Role;

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
    scene.all_obey(&["p", "s"]);
    assert_eq!(scene.door("s"), "Empty");
}

#[test]
fn a_proxy_that_is_not_listed_yet_may_hold_a_door() {
    let mut scene = Scene::bare();
    scene.want("s", WantDoor::Closed, true);
    assert_eq!(scene.door("s"), "Closing: waits for the list of proxies");
    scene.realm.listed(scene.now());
    assert_eq!(scene.door("s"), "Closed: waits for s");
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
    scene.want_all(&names, WantDoor::Open);
    assert_eq!(scene.messages("p").len(), 500);
    scene.want_all(&names, WantDoor::Closed);
    scene.want_all(&names, WantDoor::Open);
    scene.want_all(&names, WantDoor::Closed);
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
    let listing = |name: &str, address: &str| Listing {
        name: name.into(),
        address: address.into(),
        group: "lobby".into(),
        uid: uid(name),
    };
    let first = directory.revision();
    for (name, address) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")] {
        directory.put(listing(name, address)).unwrap();
    }
    assert_eq!(directory.after(first), Next::Everything);
    let sent = Revision(first.0 + 1);
    let mut names = Vec::new();
    let mut at = sent;
    while let Next::Register(revision, server) = directory.after(at) {
        names.push((server.name, server.address));
        at = revision;
    }
    assert_eq!(
        names,
        [("b".into(), "1".into()), ("a".into(), "2".into()), ("c".into(), "1".into())] as [(String, String); 3]
    );
    assert_eq!(at, directory.revision());
}
