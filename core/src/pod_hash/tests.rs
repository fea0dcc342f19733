use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;

fn fragment(value: &Value) -> Fragment {
    Fragment::of(value).unwrap()
}

fn full_basics() -> Basics {
    Basics {
        network: "main".into(),
        image: "ghcr.io/example/paper:1.21".into(),
        forwarding_secret: "velocity-forwarding".into(),
        image_pull_secrets: BTreeSet::from(["registry".into()]),
        resources: Some(fragment(&json!({"limits": {"memory": "2Gi"}, "requests": {"cpu": "500m"}}))),
        node_selector: BTreeMap::from([("pool".into(), "games".into())]),
        tolerations: BTreeSet::from([fragment(&json!({"key": "games", "operator": "Exists"}))]),
        affinity: Some(fragment(&json!({"nodeAffinity": {"x": [1, 2]}}))),
        config_overlay: Some(OverlayInput {
            name: "lobby-overlay".into(),
            contents: Some(ContentDigest::of_files([("server.properties", b"motd=hi".as_slice())])),
        }),
    }
}

fn bare_basics() -> Basics {
    Basics {
        network: "main".into(),
        image: "paper:1".into(),
        forwarding_secret: "forwarding".into(),
        ..Basics::default()
    }
}

fn full_server() -> ServerInputs {
    ServerInputs {
        basics: full_basics(),
        max_players: 20,
        termination_grace_period_seconds: 90,
        mounts: BTreeMap::from([
            (
                "world".into(),
                MountInput {
                    mount_path: "/data/world".into(),
                    source: MountSource::ConfigMap(fragment(&json!({"name": "world"}))),
                },
            ),
            (
                "ops".into(),
                MountInput {
                    mount_path: "/data/ops".into(),
                    source: MountSource::Secret(fragment(&json!({"secretName": "ops"}))),
                },
            ),
        ]),
    }
}

fn full_proxy() -> ProxyInputs {
    ProxyInputs {
        basics: full_basics(),
        player_limit: 500,
        online_mode: true,
        motd: Some(ContentDigest::of_text("Welcome")),
        host_port: Some(25565),
    }
}

/// The committed vectors, by name. A change here rolls every pod of every user: never edit one, only add.
fn golden_inputs() -> Vec<(&'static str, PodInputs)> {
    vec![
        ("server-full", PodInputs::Server(full_server())),
        (
            "server-bare",
            PodInputs::Server(ServerInputs {
                basics: bare_basics(),
                max_players: 10,
                termination_grace_period_seconds: 60,
                mounts: BTreeMap::new(),
            }),
        ),
        ("proxy-full", PodInputs::Proxy(full_proxy())),
        (
            "proxy-bare",
            PodInputs::Proxy(ProxyInputs {
                basics: bare_basics(),
                player_limit: 500,
                online_mode: true,
                motd: None,
                host_port: None,
            }),
        ),
        (
            "overlay-missing",
            PodInputs::Proxy(ProxyInputs {
                basics: Basics {
                    config_overlay: Some(OverlayInput { name: "gone".into(), contents: None }),
                    ..bare_basics()
                },
                player_limit: 1,
                online_mode: false,
                motd: None,
                host_port: None,
            }),
        ),
    ]
}

#[derive(serde::Deserialize)]
struct Golden {
    name: String,
    inputs: String,
    hash: String,
}

#[test]
fn golden_vectors_hold() {
    let golden: Vec<Golden> = serde_json::from_str(include_str!("../../golden/pod_hash.json")).unwrap();
    let inputs = golden_inputs();
    assert_eq!(golden.len(), inputs.len(), "every vector is checked");
    for (golden, (name, inputs)) in golden.iter().zip(inputs) {
        assert_eq!(golden.name, name);
        assert_eq!(inputs.annotation(), golden.inputs, "canonical JSON of {name}");
        assert_eq!(inputs.hash().as_str(), golden.hash, "hash of {name}");
        assert_eq!(of_annotation(&golden.inputs).unwrap().as_str(), golden.hash, "hash of the annotation of {name}");
        assert_eq!(serde_json::from_str::<PodInputs>(&golden.inputs).unwrap(), inputs, "{name} reads back");
    }
}

#[rstest]
#[case::order_of_keys(r#"{"role":"proxy","a":1}"#, r#"{"a":1,"role":"proxy"}"#)]
#[case::spaces("{ \"a\" : 1 }", r#"{"a":1}"#)]
#[case::a_null_is_unset(r#"{"a":1,"b":null,"c":{"d":null}}"#, r#"{"a":1,"c":{}}"#)]
fn what_says_the_same_hashes_the_same(#[case] left: &str, #[case] right: &str) {
    assert_eq!(of_annotation(left).unwrap(), of_annotation(right).unwrap());
}

#[rstest]
#[case::value(r#"{"a":1}"#, r#"{"a":2}"#)]
#[case::kind_of_value(r#"{"a":1}"#, r#"{"a":"1"}"#)]
#[case::empty_is_not_unset(r#"{"a":{}}"#, r"{}")]
#[case::order_of_a_list(r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#)]
#[case::unknown_fields_count(r#"{"a":1}"#, r#"{"a":1,"fromTheFuture":true}"#)]
fn what_differs_hashes_differently(#[case] left: &str, #[case] right: &str) {
    assert_ne!(of_annotation(left).unwrap(), of_annotation(right).unwrap());
}

#[rstest]
#[case::not_json("{")]
#[case::empty("")]
#[case::a_list("[]")]
#[case::a_string("\"x\"")]
#[case::digest_too_short(r#"{"sha256":"abc"}"#)]
#[case::digest_of_another_type(r#"{"sha256":1}"#)]
#[case::upper_case(&format!(r#"{{"sha256":"{}"}}"#, "A".repeat(64)))]
#[case::too_long(&format!(r#"{{"a":"{}"}}"#, "x".repeat(ANNOTATION_MAX_BYTES)))]
#[case::too_deep(&"[".repeat(4_000))]
fn unreadable_inputs_are_an_error(#[case] text: &str) {
    assert!(of_annotation(text).is_err());
}

#[test]
fn long_inputs_are_attached_as_their_digest() {
    let mut server = full_server();
    for i in 0..200 {
        let mount = MountInput {
            mount_path: format!("/data/extra/{i}"),
            source: MountSource::ConfigMap(fragment(&json!({"name": format!("extra-{i}")}))),
        };
        server.mounts.insert(format!("extra-{i}"), mount);
    }
    let inputs = PodInputs::Server(server);
    let annotation = inputs.annotation();
    assert!(annotation.len() <= ANNOTATION_MAX_BYTES && annotation.starts_with(r#"{"sha256":""#), "{annotation}");
    assert_eq!(of_annotation(&annotation).unwrap(), inputs.hash());
}

#[rstest]
#[case::hash("0123456789abcdef", true)]
#[case::upper("0123456789ABCDEF", false)]
#[case::short("0123", false)]
#[case::empty("", false)]
fn parses_a_hash(#[case] text: &str, #[case] want: bool) {
    assert_eq!(text.parse::<PodHash>().is_ok(), want);
}

#[test]
fn moving_a_byte_between_files_changes_their_digest() {
    let digest =
        |files: &[(&str, &str)]| ContentDigest::of_files(files.iter().map(|(name, text)| (*name, text.as_bytes())));
    assert_ne!(digest(&[("a", "bc")]), digest(&[("ab", "c")]));
    assert_ne!(digest(&[("a", ""), ("b", "")]), digest(&[("a", "b")]));
    assert_eq!(digest(&[("a", "1"), ("b", "2")]), digest(&[("b", "2"), ("a", "1")]));
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,6}"
}

fn any_fragment() -> impl Strategy<Value = Fragment> {
    proptest::collection::btree_map(name(), 0_u32..3, 1..3).prop_map(|map| Fragment::of(&map).unwrap())
}

fn any_overlay() -> impl Strategy<Value = OverlayInput> {
    (name(), proptest::option::of(name()))
        .prop_map(|(name, text)| OverlayInput { name, contents: text.map(|text| ContentDigest::of_text(&text)) })
}

fn any_basics() -> impl Strategy<Value = Basics> {
    let placement = (
        proptest::option::of(any_fragment()),
        proptest::collection::btree_map(name(), name(), 0..3),
        proptest::collection::btree_set(any_fragment(), 0..3),
        proptest::option::of(any_fragment()),
    );
    (
        name(),
        name(),
        name(),
        proptest::collection::btree_set(name(), 0..3),
        placement,
        proptest::option::of(any_overlay()),
    )
        .prop_map(|(network, image, forwarding_secret, image_pull_secrets, placement, config_overlay)| {
            let (resources, node_selector, tolerations, affinity) = placement;
            Basics {
                network,
                image,
                forwarding_secret,
                image_pull_secrets,
                resources,
                node_selector,
                tolerations,
                affinity,
                config_overlay,
            }
        })
}

fn any_mount() -> impl Strategy<Value = MountInput> {
    (name(), any::<bool>(), any_fragment()).prop_map(|(path, secret, fragment)| MountInput {
        mount_path: format!("/{path}"),
        source: if secret { MountSource::Secret(fragment) } else { MountSource::ConfigMap(fragment) },
    })
}

fn any_server() -> impl Strategy<Value = ServerInputs> {
    (any_basics(), 0_u32..5, 0_u64..5, proptest::collection::btree_map(name(), any_mount(), 0..3)).prop_map(
        |(basics, max_players, termination_grace_period_seconds, mounts)| ServerInputs {
            basics,
            max_players,
            termination_grace_period_seconds,
            mounts,
        },
    )
}

fn any_proxy() -> impl Strategy<Value = ProxyInputs> {
    let motd = proptest::option::of(name().prop_map(|text| ContentDigest::of_text(&text)));
    (any_basics(), 0_u32..5, any::<bool>(), motd, proptest::option::of(1_u16..5)).prop_map(
        |(basics, player_limit, online_mode, motd, host_port)| ProxyInputs {
            basics,
            player_limit,
            online_mode,
            motd,
            host_port,
        },
    )
}

fn any_inputs() -> impl Strategy<Value = PodInputs> {
    prop_oneof![any_server().prop_map(PodInputs::Server), any_proxy().prop_map(PodInputs::Proxy)]
}

/// Every value that differs from `into` in exactly one of these fields, taken from `from`. The pattern names all fields, so
/// a new one does not compile until it is here.
macro_rules! with_one_field_of {
    ($from:expr, $into:expr => $kind:ident { $($field:ident),+ }) => {{
        let $kind { $($field),+ } = $from;
        vec![$($kind { $field, ..$into.clone() }),+]
    }};
}

fn basics_with_one_field_of(from: Basics, into: &Basics) -> Vec<Basics> {
    with_one_field_of! { from, into => Basics {
        network, image, forwarding_secret, image_pull_secrets, resources, node_selector, tolerations, affinity, config_overlay
    } }
}

fn servers_with_one_field_of(from: ServerInputs, into: &ServerInputs) -> Vec<PodInputs> {
    let basics = basics_with_one_field_of(from.basics.clone(), &into.basics);
    let mut all = with_one_field_of! { from, into => ServerInputs {
        basics, max_players, termination_grace_period_seconds, mounts
    } };
    all.extend(basics.into_iter().map(|basics| ServerInputs { basics, ..into.clone() }));
    all.into_iter().map(PodInputs::Server).collect()
}

fn proxies_with_one_field_of(from: ProxyInputs, into: &ProxyInputs) -> Vec<PodInputs> {
    let basics = basics_with_one_field_of(from.basics.clone(), &into.basics);
    let mut all = with_one_field_of! { from, into => ProxyInputs {
        basics, player_limit, online_mode, motd, host_port
    } };
    all.extend(basics.into_iter().map(|basics| ProxyInputs { basics, ..into.clone() }));
    all.into_iter().map(PodInputs::Proxy).collect()
}

proptest! {
    /// Changing any one field changes the hash, and a field that stays equal does not.
    #[test]
    fn any_field_of_a_server_counts(from in any_server(), into in any_server()) {
        let whole = PodInputs::Server(into.clone());
        for changed in servers_with_one_field_of(from, &into) {
            prop_assert_eq!(changed.hash() == whole.hash(), changed == whole, "{:?} and {:?}", changed, whole);
        }
    }

    /// The same for proxies.
    #[test]
    fn any_field_of_a_proxy_counts(from in any_proxy(), into in any_proxy()) {
        let whole = PodInputs::Proxy(into.clone());
        for changed in proxies_with_one_field_of(from, &into) {
            prop_assert_eq!(changed.hash() == whole.hash(), changed == whole, "{:?} and {:?}", changed, whole);
        }
    }

    /// The webhook, which sees the annotation only, computes what the reconciler computed; and inputs read back.
    #[test]
    fn annotation_and_inputs_agree(inputs in any_inputs()) {
        prop_assert_eq!(of_annotation(&inputs.annotation()).unwrap(), inputs.hash());
        prop_assert_eq!(serde_json::from_str::<PodInputs>(&inputs.annotation()).unwrap(), inputs);
    }

    /// Whatever is attached, nothing panics.
    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}") {
        let _ = of_annotation(&text);
    }
}
