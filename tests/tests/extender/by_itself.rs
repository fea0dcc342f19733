//! Where the cluster's own scheduler puts pods about which it asks nobody: what pods say of their neighbours.
//!
//! All on one cluster, each network in a namespace of its own: pods mean those of their namespace alone.

use super::{GOING, LIMIT, fill, kubectl, spread_nothing};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use spawnery_api::names::label;
use spawnery_tests::{
    eventually,
    stack::{Arena, Crowd, GATEWAY, SmallNetwork, StackOptions},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A proxy that is to go waits until everybody knows, one after another.
const ROLLED_LIMIT: Duration = Duration::from_mins(2);
const NEW_IMAGE: &str = "example.test/gateway:2";

/// The affinity of an owner who wants none, be it ours.
fn nothing() -> Value {
    json!({})
}

/// The affinity of an owner who counts servers, and no people.
fn towards_servers() -> Value {
    let servers = json!({ "matchLabels": { label::ROLE: label::ROLE_SERVER } });
    let term = json!({ "labelSelector": servers, "topologyKey": "kubernetes.io/hostname" });
    json!({ "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 1, "podAffinityTerm": term },
    ] } })
}

/// A network in a namespace of its own.
struct Town<'a> {
    arena: &'a Arena,
    pods: Api<Pod>,
    namespace: String,
    network: SmallNetwork,
}

impl Town<'_> {
    async fn apply(&self) -> Result<()> {
        self.arena.stack().cluster().apply(&self.network.manifests(&self.namespace)).await
    }

    async fn pods(&self, role: &str) -> Result<Vec<Pod>> {
        let params = ListParams::default().labels(&format!("{}={role}", label::ROLE));
        Ok(self.pods.list(&params).await?.items)
    }

    /// The nodes of the lobbies, when there are as many as there shall be.
    async fn lobbies(&self) -> Result<BTreeMap<String, String>> {
        eventually(LIMIT, "lobbies, placed", || async {
            let placed: BTreeMap<_, _> = self.pods(label::ROLE_SERVER).await?.iter().filter_map(node).collect();
            ensure!(placed.len() == usize::try_from(self.network.lobbies)?, "placed are {placed:?}");
            Ok(placed)
        })
        .await
    }

    /// On how many nodes the proxies of an image are, when there are as many as there shall be.
    async fn nodes_with_proxies(&self, image: &str) -> Result<usize> {
        eventually(ROLLED_LIMIT, &format!("proxies of {image}, placed"), || async {
            let of_image = |pod: &Pod| {
                let game = pod.spec.as_ref().and_then(|spec| spec.containers.first());
                game.is_some_and(|game| game.image.as_deref() == Some(image))
            };
            let pods = self.pods(label::ROLE_PROXY).await?;
            let placed: Vec<_> = pods.iter().filter(|pod| of_image(pod)).filter_map(node).collect();
            ensure!(placed.len() == usize::try_from(self.network.proxies)?, "placed are {placed:?}");
            Ok(placed.into_iter().map(|(_, node)| node).collect::<BTreeSet<_>>().len())
        })
        .await
    }

    /// The node of the one lobby with people on it.
    async fn node_with_people(&self) -> Result<String> {
        eventually(LIMIT, "a lobby that is labelled as occupied", || async {
            let pods = self.pods(label::ROLE_SERVER).await?;
            let occupied = pods.iter().find(|pod| pod.labels().contains_key(label::OCCUPIED));
            Ok(occupied.and_then(node).context("there is none")?.1)
        })
        .await
    }
}

/// Name and node of a pod that has one.
fn node(pod: &Pod) -> Option<(String, String)> {
    Some((pod.name_any(), pod.spec.as_ref()?.node_name.clone()?))
}

/// Tells a story in a namespace of its own, of a network whose owner says this about affinity. Returns when its pods are
/// gone: the next one finds all nodes as empty as this one did.
async fn town<T>(
    arena: &Arena,
    name: &str,
    affinity: Option<Value>,
    story: impl AsyncFnOnce(Town<'_>) -> Result<T>,
) -> Result<T> {
    let cluster = arena.stack().cluster();
    let client = cluster.client().await?;
    let resources = json!({ "limits": { "cpu": "2", "memory": "16Gi" } });
    let network = SmallNetwork { lobbies: 0, affinity, resources: Some(resources), ..SmallNetwork::default() };
    let everywhere: Api<Pod> = Api::all(client.clone());
    let (mut told, mut left) = (None, String::new());
    let (end, here) = (&mut told, &mut left);
    cluster
        .with_namespace(name, |namespace| async move {
            let namespace = namespace.name().to_owned();
            here.clone_from(&namespace);
            let pods = Api::namespaced(client, &namespace);
            *end = Some(story(Town { arena, pods, namespace, network }).await?);
            Ok(())
        })
        .await?;
    eventually(LIMIT, &format!("the pods of {left} to be gone"), || async {
        let pods = everywhere.list(&ListParams::default().fields(&format!("metadata.namespace={left}"))).await?;
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "there are {names:?}");
        Ok(())
    })
    .await?;
    told.context("the story was not told")
}

/// On how many nodes three proxies are.
async fn proxies(town: &mut Town<'_>) -> Result<usize> {
    town.network.proxies = 3;
    town.apply().await?;
    town.nodes_with_proxies("example.test/gateway:1").await
}

/// On how many nodes those are that replace them, one after another.
async fn successors(town: &Town<'_>) -> Result<usize> {
    let edit = json!({ "spec": { "image": NEW_IMAGE } }).to_string();
    let namespace = format!("--namespace={}", town.namespace);
    kubectl(town.arena, &["patch", "proxygroup", GATEWAY, &namespace, "--type=merge", "--patch", &edit]).await?;
    town.nodes_with_proxies(NEW_IMAGE).await
}

/// On how many nodes six lobbies are that were made at once.
async fn lobbies(arena: &Arena, name: &str, affinity: Option<Value>, sized: bool) -> Result<usize> {
    town(arena, name, affinity, async |mut town| {
        town.network.lobbies = 6;
        if !sized {
            town.network.resources = Some(json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "2" } }));
        }
        town.apply().await?;
        Ok(town.lobbies().await?.into_values().collect::<BTreeSet<_>>().len())
    })
    .await
}

/// One lobby with people is on one node, three without are on another; whether one more goes to the people.
async fn beside_people(arena: &Arena, name: &str, affinity: Option<Value>) -> Result<bool> {
    town(arena, name, affinity, async |mut town| {
        town.network.lobbies = 1;
        town.network.start(arena.stack(), &town.namespace).await?;
        let mut crowd = Crowd::new();
        crowd.join(arena.stack().runner(), &town.namespace, 3).await?;
        let with_people = town.node_with_people().await?;

        kubectl(arena, &["taint", "node", &with_people, &format!("{GOING}=:NoSchedule")]).await?;
        town.network.lobbies = 4;
        town.apply().await?;
        let before = town.lobbies().await?;
        let empty: BTreeSet<_> = before.values().filter(|node| **node != with_people).collect();
        ensure!(before.values().filter(|node| **node == with_people).count() == 1, "{before:?}");
        ensure!(empty.len() == 1, "the empty ones are not together: {before:?}");
        // Placed as soon as the scheduler knows that the taint is gone.
        arena.stack().cluster().apply(&canary(&town.namespace, &with_people)).await?;
        kubectl(arena, &["taint", "node", &with_people, &format!("{GOING}-")]).await?;
        eventually(LIMIT, "the node to take pods again", || async {
            node(&town.pods.get("canary").await?).context("not yet").map(drop)
        })
        .await?;

        town.network.lobbies = 5;
        town.apply().await?;
        let after = town.lobbies().await?;
        crowd.ensure_unharmed()?;
        Ok(after.values().filter(|node| **node == with_people).count() == 2)
    })
    .await
}

/// A small pod for one node, if that takes any.
fn canary(namespace: &str, node: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "canary", "namespace": namespace },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": node },
            "containers": [{ "name": "sleep", "image": "example.test/sleep:1" }],
        },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_packed_and_proxies_kept_apart_unless_their_owner_says_otherwise() -> Result<()> {
    Arena::run("neighbours", StackOptions::default(), async |arena| {
        spread_nothing(&arena).await?;
        // The scheduler by itself finds the third node by far the best.
        let full = &arena.network().lobby_nodes;
        for node in full {
            fill(&arena, node).await?;
        }
        town(&arena, "apart", None, async |mut town| {
            let apart = proxies(&mut town).await?;
            ensure!(apart == 3, "three proxies are on {apart} nodes");
            let apart = successors(&town).await?;
            ensure!(apart == 3, "the three that replace them are on {apart} nodes");
            Ok(())
        })
        .await?;
        let together = town(&arena, "together", Some(nothing()), async |mut town| proxies(&mut town).await).await?;
        ensure!(together == 1, "the control puts proxies on {together} nodes");

        // And all nodes equally good.
        for node in full {
            kubectl(&arena, &["delete", "pod", &format!("ballast-{node}"), "-n", arena.namespace()]).await?;
        }
        let packed = lobbies(&arena, "packed", None, true).await?;
        ensure!(packed == 1, "six servers are on {packed} nodes");
        let spread = lobbies(&arena, "spread", Some(nothing()), true).await?;
        ensure!(spread > 1, "the control packs servers");
        let unsized_ones = lobbies(&arena, "unsized", None, false).await?;
        ensure!(unsized_ones > 1, "servers that do not say what they need are packed");

        ensure!(beside_people(&arena, "people", None).await?, "a server is where most servers are, and not the people");
        ensure!(!beside_people(&arena, "pods", Some(towards_servers())).await?, "the control knows of people");
        Ok(())
    })
    .await
}
