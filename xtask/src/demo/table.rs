//! A view as lines of text: a table for a terminal, changes for a log.

use super::{
    screen::wrap,
    view::{NodeRow, PodRow, View},
};
use std::collections::BTreeMap;

/// Verdicts that the table shows.
const VERDICTS: usize = 4;
/// What kubectl says before each try.
const EVICTING: &str = "evicting pod ";

/// The table, with what the drain said last, in lines of at most so many columns.
pub(crate) fn table(view: &View, drain: &[String], columns: usize) -> Vec<String> {
    let mut lines = vec![String::new(), row("NODE", "POD", "STATE", "PLAYERS", "DOOR")];
    for node in &view.nodes {
        let mut title = format!("{}{}", node.name, if node.cordoned { " (cordoned)" } else { "" });
        let pods: Vec<&PodRow> = view.pods.iter().filter(|pod| pod.node == node.name).collect();
        if pods.is_empty() {
            lines.push(row(&title, "-", "", "", ""));
        }
        for pod in pods {
            lines.push(row(&std::mem::take(&mut title), &pod.name, &pod.state(), &players(pod), &pod.door));
        }
    }
    for pod in view.pods.iter().filter(|pod| pod.node.is_empty()) {
        lines.push(row("(no node yet)", &pod.name, &pod.state(), "", ""));
    }
    lines.push(String::new());
    lines.push(format!("PLAYERS  {}", people(view)));
    if !drain.is_empty() {
        lines.push(String::new());
        lines.push("KUBECTL DRAIN".to_owned());
        lines.extend(verdicts(drain).iter().map(|line| format!("  {line}")));
    }
    lines.iter().flat_map(|line| wrap(line, columns)).collect()
}

/// What is different in `new`, one line each.
pub(crate) fn changes(old: &View, new: &View) -> Vec<String> {
    let mut changes = Vec::new();
    let cordons = |view: &View| -> BTreeMap<String, NodeRow> {
        view.nodes.iter().map(|node| (node.name.clone(), node.clone())).collect()
    };
    let before = cordons(old);
    for node in &new.nodes {
        if before.get(&node.name).is_none_or(|old| old != node) {
            changes.push(format!("node {}: {}", node.name, if node.cordoned { "cordoned" } else { "open for pods" }));
        }
    }
    for pod in &new.pods {
        let line = describe(pod);
        if old.pod(&pod.name).map(describe).as_ref() != Some(&line) {
            changes.push(line);
        }
    }
    for pod in old.pods.iter().filter(|pod| new.pod(&pod.name).is_none()) {
        changes.push(format!("{}: gone from {}", pod.name, pod.node));
    }
    if old.people != new.people {
        changes.push(format!("players: {}", people(new)));
    }
    changes
}

fn describe(pod: &PodRow) -> String {
    let node = if pod.node.is_empty() { "no node" } else { &pod.node };
    let door = Some(pod.door.to_lowercase()).filter(|door| !door.is_empty()).map(|door| format!("door {door}"));
    let parts = [pod.state(), players(pod), door.unwrap_or_default()];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{} on {node}: {}", pod.name, parts.join(", "))
}

fn players(pod: &PodRow) -> String {
    match pod.reported {
        Some(reported) if pod.slots > 0 => format!("{} of {} ({reported} reported)", pod.witnessed, pod.slots),
        Some(_) | None => String::new(),
    }
}

fn people(view: &View) -> String {
    let people = &view.people;
    let counts = [
        (people.joining, "joining"),
        (people.playing, "playing"),
        (people.left, "left by themselves"),
        (people.refused, "not let in"),
        (people.lost, "LOST"),
    ];
    let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { "nobody".to_owned() } else { parts.join(", ") }
}

fn row(node: &str, pod: &str, state: &str, players: &str, door: &str) -> String {
    format!("{node:<19} {pod:<13} {state:<16} {players:<24} {door}").trim_end().to_owned()
}

/// What the drain said, each refusal that came again counted instead of repeated.
fn verdicts(said: &[String]) -> Vec<String> {
    let mut verdicts: Vec<(String, usize)> = Vec::new();
    for line in said.iter().filter(|line| !line.starts_with(EVICTING)) {
        match verdicts.iter_mut().find(|(verdict, _)| verdict == line) {
            Some((_, times)) => *times += 1,
            None => verdicts.push((line.clone(), 1)),
        }
    }
    let shown = verdicts.iter().skip(verdicts.len().saturating_sub(VERDICTS));
    shown.map(|(verdict, times)| if *times > 1 { format!("{times} × {verdict}") } else { verdict.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, node: &str, players: i32) -> PodRow {
        PodRow {
            name: name.into(),
            node: node.into(),
            is_server: true,
            ready: true,
            occupied: players > 0,
            phase: "Ready".into(),
            door: "Open".into(),
            reported: Some(players),
            slots: 50,
            witnessed: usize::try_from(players).unwrap(),
            ..PodRow::default()
        }
    }

    fn view(pods: Vec<PodRow>, cordoned: bool) -> View {
        let node = |name: &str, cordoned| NodeRow { name: name.into(), cordoned };
        View { nodes: vec![node("games-1", cordoned), node("games-2", false)], pods, ..View::default() }
    }

    #[test]
    fn shows_each_pod_at_its_node() {
        let lines =
            table(&view(vec![server("lobby-a", "games-1", 3)], true), &["node/games-1 cordoned".to_owned()], 120);
        let text = lines.join("\n");
        assert!(
            text.contains("games-1 (cordoned)  lobby-a       Ready, occupied  3 of 50 (3 reported)     Open"),
            "{text}"
        );
        assert!(text.contains("games-2             -"), "{text}");
        assert!(text.ends_with("KUBECTL DRAIN\n  node/games-1 cordoned"), "{text}");
    }

    #[test]
    fn tells_each_change_once() {
        let old = view(vec![server("lobby-a", "games-1", 0)], false);
        let new = view(vec![server("lobby-b", "games-2", 0)], true);
        assert_eq!(changes(&old, &old), Vec::<String>::new());
        assert_eq!(
            changes(&old, &new),
            [
                "node games-1: cordoned",
                "lobby-b on games-2: Ready, 0 of 50 (0 reported), door open",
                "lobby-a: gone from games-1"
            ]
        );
    }

    #[test]
    fn counts_what_the_drain_says_again() {
        let said = ["node cordoned", "evicting pod a/b", "error: later", "evicting pod a/b", "error: later"];
        let said: Vec<String> = said.map(str::to_owned).to_vec();
        assert_eq!(verdicts(&said), ["node cordoned", "2 × error: later"]);
    }
}
