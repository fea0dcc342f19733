//! Players whom the product counts as lost: by its metrics and its events.

use super::Arena;
use crate::eventually::eventually;
use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use spawnery_api::names::event;
use std::{collections::BTreeMap, time::Duration};

/// What should happen within a second; beside a build it takes longer.
const LIMIT: Duration = Duration::from_secs(30);
/// The counter, as it stands in metrics.
const COUNTER: &str = "spawnery_players_lost_total{cause=\"";

/// Lost players by cause, summed over all reconcilers whose metrics these are. Causes to which nobody was lost are left out.
pub fn losses(metrics: &str) -> BTreeMap<String, u64> {
    let mut losses = BTreeMap::new();
    for line in metrics.lines() {
        let Some((cause, value)) = line.strip_prefix(COUNTER).and_then(|rest| rest.split_once("\"} ")) else {
            continue;
        };
        if let Some(players) = value.parse().ok().filter(|players: &u64| *players > 0) {
            *losses.entry(cause.to_owned()).or_default() += players;
        }
    }
    losses
}

/// An event about lost players.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldLoss {
    /// The Server that it is about.
    pub server: String,
    /// What it says.
    pub note: String,
    /// How often that happened.
    pub times: i32,
}

/// What the events of a namespace tell of lost players.
///
/// # Errors
/// When the API server does not say.
pub async fn told_losses(client: kube::Client, namespace: &str) -> Result<Vec<ToldLoss>> {
    let events: Api<Event> = Api::namespaced(client, namespace);
    let told = events.list(&ListParams::default()).await?.items.into_iter();
    let told = told.filter(|told| told.reason.as_deref() == Some(event::PLAYERS_LOST));
    Ok(told
        .map(|told| ToldLoss {
            server: told.regarding.and_then(|server| server.name).unwrap_or_default(),
            note: told.note.unwrap_or_default(),
            times: told.series.map_or(1, |series| series.count),
        })
        .collect())
}

impl Arena {
    /// Lost players by cause, as the leader counts them since it leads.
    ///
    /// # Errors
    /// When nobody leads, or the leader does not say.
    pub async fn losses(&self) -> Result<BTreeMap<String, u64>> {
        let metrics = self.leader().await?.metrics().await?;
        ensure!(metrics.contains(COUNTER), "the leader counts no losses at all");
        Ok(losses(&metrics))
    }

    /// Waits until so many are counted as lost to this cause, and makes sure that nobody is to any other.
    ///
    /// # Errors
    /// Says who is counted otherwise.
    pub async fn wait_lost(&self, cause: &str, players: usize) -> Result<()> {
        let want = BTreeMap::from([(cause.to_owned(), u64::try_from(players)?)]);
        eventually(LIMIT, "the loss to be counted", || async {
            let losses = self.losses().await?;
            ensure!(losses == want, "counted: {losses:?}, wanted: {want:?}");
            Ok(())
        })
        .await
    }

    /// Waits until events have told of lost players so often, and returns what they say.
    ///
    /// # Errors
    /// When they tell of more, or of less.
    pub async fn wait_told(&self, times: i32) -> Result<Vec<ToldLoss>> {
        eventually(LIMIT, "the loss to be told", || async {
            let told = told_losses(self.stack().cluster().client().await?, self.namespace()).await?;
            ensure!(told.iter().map(|told| told.times).sum::<i32>() == times, "{told:?}");
            Ok(told)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::losses;

    #[test]
    fn replicas_are_summed_and_zeros_left_out() {
        let metrics = "spawnery_players_lost_total{cause=\"NodeLost\"} 2\n\
             spawnery_players_lost_total{cause=\"Deadline\"} 0\n\
             spawnery_reconciles_total{controller=\"server\"} 9\n\
             spawnery_players_lost_total{cause=\"NodeLost\"} 3\n";
        assert_eq!(losses(metrics).into_iter().collect::<Vec<_>>(), [("NodeLost".to_owned(), 5)]);
    }
}
