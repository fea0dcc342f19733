//! A view as lines of text: a table for a terminal, changes for a log.

use super::view::{NodeRow, PodRow, View};
use std::collections::BTreeMap;

/// Verdicts that the table shows.
const VERDICTS: usize = 4;
/// Longer lines would wrap, and a wrapped line cannot be erased.
const WIDTH: usize = 118;

/// The table, with the last lines that the drain said.
pub(crate) fn table(view: &View, drain: &[String]) -> Vec<String> {
    let mut lines = vec![String::new(), row("NODE", "POD", "STATE", "PLAYERS", "DOOR")];
    for node in &view.nodes {
        let mut title = format!("{}{}", node.name, if node.cordoned { " (cordoned)" } else { "" });
        let pods: Vec<&PodRow> = view.pods.iter().filter(|pod| pod.node == node.name).collect();
        if pods.is_empty() {
            lines.push(row(&title, "-", "", "", ""));
        }
        for pod in pods {
            lines.push(row(&std::mem::take(&mut title), &pod.name, &pod.state(), &players(pod), &door(pod)));
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
        lines.extend(drain.iter().skip(drain.len().saturating_sub(VERDICTS)).map(|line| format!("  {line}")));
    }
    lines.iter().flat_map(|line| wrap(line)).collect()
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
    let parts = [pod.state(), players(pod), door(pod)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{} on {node}: {}", pod.name, parts.join(", "))
}

fn players(pod: &PodRow) -> String {
    match pod.reported {
        Some(reported) if pod.slots > 0 => format!("{} of {} ({reported} reported)", pod.witnessed, pod.slots),
        Some(_) | None => String::new(),
    }
}

fn door(pod: &PodRow) -> String {
    match (pod.is_server, pod.door.as_str()) {
        (true, "") | (false, _) => String::new(),
        (true, door) => format!("door {}", lower(door)),
    }
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
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
    format!("{node:<20} {pod:<14} {state:<20} {players:<24} {door}").trim_end().to_owned()
}

/// Breaks a line where it would be too long, at spaces.
fn wrap(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let current = lines.last().map_or(0, |line| line.chars().count());
        if current > 0 && current + word.trim_end().chars().count() > WIDTH {
            lines.push("    ".to_owned());
        }
        if let Some(last) = lines.last_mut() {
            last.push_str(word);
        }
    }
    lines
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
        let lines = table(&view(vec![server("lobby-a", "games-1", 3)], true), &["evicting pod".to_owned()]);
        let text = lines.join("\n");
        assert!(text.contains("games-1 (cordoned)   lobby-a        Ready, occupied      3 of 50 (3 reported)     door open"), "{text}");
        assert!(text.contains("games-2              -"), "{text}");
        assert!(text.ends_with("KUBECTL DRAIN\n  evicting pod"), "{text}");
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
    fn long_lines_are_broken_at_spaces() {
        let long = "word ".repeat(50);
        let lines = wrap(&long);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.trim_end().chars().count() <= WIDTH), "{lines:?}");
        assert_eq!(lines.iter().flat_map(|line| line.split_whitespace()).count(), 50);
    }
}
