//! The cluster's name server: CoreDNS, as a Deployment like everywhere.

use super::network::DNS_SERVICE;
use crate::{Cluster, eventually};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use std::{net::Ipv4Addr, time::Duration};
use tokio::net::UdpSocket;

/// Its image.
pub(super) const IMAGE: &str = "local.test/coredns:1";
/// Two pods are Ready two seconds after the nodes are; more beside a build.
const READY_LIMIT: Duration = Duration::from_mins(2);

/// Creates it; [`ready`] waits for it.
pub(super) async fn create(cluster: &Cluster) -> Result<()> {
    cluster.apply(include_str!("coredns.yaml")).await.context("could not create CoreDNS")
}

/// An answer takes a millisecond. A packet may be lost while kube-proxy writes its rules.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Waits until names are answered.
pub(super) async fn ready(cluster: &Cluster) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client().await?, "kube-system");
    eventually(READY_LIMIT, "CoreDNS to be Ready", || async {
        let status = deployments.get("coredns").await?.status.unwrap_or_default();
        ensure!(status.ready_replicas.unwrap_or_default() > 0, "{:?}", status.conditions);
        Ok(())
    })
    .await?;
    // The pods answer; now packets must find them.
    let name = "kubernetes.default.svc.cluster.local";
    eventually(READY_LIMIT, "an answer to a name", || resolve(name)).await.map(drop)
}

/// The address that the cluster's name server has for a whole name. To be called inside of the cluster's network.
///
/// # Errors
/// When there is no answer within a second, or none with one address.
pub async fn resolve(name: &str) -> Result<Ipv4Addr> {
    // One question: an id, "recursion desired", the name in counted parts, type A, class IN.
    let mut question = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for part in name.split('.') {
        question.push(u8::try_from(part.len()).context("a part of a name has 63 letters at most")?);
        question.extend_from_slice(part.as_bytes());
    }
    question.extend_from_slice(&[0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind("0.0.0.0:0").await.context("no socket")?;
    socket.connect((DNS_SERVICE, 53)).await.context("no way to the name server")?;
    socket.send(&question).await.context("could not ask")?;
    let mut answer = [0; 512];
    let length = tokio::time::timeout(ANSWER_LIMIT, socket.recv(&mut answer)).await.context("no answer in a second")?;
    let answer = answer.get(..length.context("no answer")?).unwrap_or_default();
    ensure!(answer.get(6..8) == Some(&[0, 1]), "{name} has not one answer");
    // The record is the last thing in the packet, and its data is the last thing in the record.
    let data: [u8; 4] = *answer.last_chunk().context("a short answer")?;
    Ok(data.into())
}
