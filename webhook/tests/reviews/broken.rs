//! Bodies that are no reviews: a defined answer for each, and no panic for any.

use crate::world::{World, evictions, network, pod};
use axum::body::Body;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::Value;

fn paths() -> [String; 3] {
    ["/validate".to_owned(), "/mutate-pods".to_owned(), evictions("timeout=400ms")]
}

fn review() -> String {
    include_str!("data/eviction-v1.json").to_owned()
}

async fn world() -> World {
    World::with(vec![network(), pod("lobby-abcd", &[])]).await
}

#[rstest]
#[case::not_json(Some("application/json"), "{".into(), 400, "BadRequest")]
#[case::empty(Some("application/json"), String::new(), 400, "BadRequest")]
#[case::no_content_type(None, review(), 415, "UnsupportedMediaType")]
#[case::yaml(Some("application/yaml"), review(), 415, "UnsupportedMediaType")]
#[case::v1beta1(Some("application/json"), review().replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), 400, "BadRequest")]
#[case::another_kind(Some("application/json"), review().replace("AdmissionReview", "Review"), 400, "BadRequest")]
#[case::no_uid(Some("application/json"), review().replace("\"uid\"", "\"id\""), 400, "BadRequest")]
#[case::nine_megabytes(Some("application/json"), review() + &" ".repeat(9 << 20), 413, "RequestEntityTooLarge")]
#[case::deep(Some("application/json"), "[".repeat(100_000), 400, "BadRequest")]
#[tokio::test(start_paused = true)]
async fn get_a_defined_answer(
    #[case] content_type: Option<&str>,
    #[case] body: String,
    #[case] code: u16,
    #[case] reason: &str,
) {
    let world = world().await;
    for path in paths() {
        let (got, answer) = world.post(&path, content_type, body.clone()).await;
        assert_eq!(got, code, "{path}");
        let status: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((status["kind"].as_str(), status["reason"].as_str()), (Some("Status"), Some(reason)), "{path}");
        assert!(!status["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let world = world().await;
    for path in paths() {
        let begin = tokio::time::Instant::now();
        let never = futures::stream::pending::<Result<axum::body::Bytes, std::io::Error>>();
        assert_eq!(world.post(&path, Some("application/json"), Body::from_stream(never)).await.0, 408);
        assert!(begin.elapsed().as_secs() <= 5, "{:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn other_paths_and_methods_are_refused() {
    let world = world().await;
    assert_eq!(world.post("/", Some("application/json"), review()).await.0, 404);
    assert_eq!(world.post("/probe", Some("application/json"), review()).await.0, 405);
    assert_eq!(world.post("/evictions", Some("application/json"), review()).await.0, 404);
}

/// Cuts, overwrites and repeats parts of a recorded review.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let edits = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..12);
    edits.prop_map(|edits| {
        let mut bytes = review().into_bytes();
        for (at, byte, how) in edits {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match how {
                0 => bytes.truncate(at.max(1)),
                1 => bytes.insert(at, byte),
                2 => bytes.extend_from_within(at..),
                _ => {
                    if let Some(target) = bytes.get_mut(at) {
                        *target = byte;
                    }
                }
            }
        }
        bytes
    })
}

/// The recorded review with one value replaced by another.
fn odd_values() -> impl Strategy<Value = Vec<u8>> {
    let replacement = prop_oneof![
        Just("null"),
        Just("true"),
        Just("-1"),
        Just("1e999"),
        Just("\"\\u0000\""),
        Just("[]"),
        Just("{}"),
        Just("[[[[]]]]"),
    ];
    (0_usize..40, replacement).prop_map(|(nth, replacement)| {
        let text = review();
        let starts: Vec<usize> = text.match_indices("\": ").map(|(at, _)| at + 3).collect();
        let start = starts[nth % starts.len()];
        let end = text[start..].find([',', '}']).map_or(text.len(), |len| start + len);
        format!("{}{replacement}{}", &text[..start], &text[end..]).into_bytes()
    })
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..300), mangled(), odd_values()]
}

#[test]
fn any_bytes_get_a_defined_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let world = runtime.block_on(world());
    let paths = paths();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(1_000));
    let outcome = runner.run(&(bodies(), 0_usize..3), |(body, path)| {
        let (code, answer) = runtime.block_on(world.post(&paths[path], Some("application/json"), body));
        prop_assert!([200, 400, 413].contains(&code), "{}", code);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let defined = if code == 200 { answer["response"]["uid"].is_string() } else { answer["kind"] == "Status" };
        prop_assert!(defined, "{}", answer);
        Ok(())
    });
    outcome.unwrap();
}
