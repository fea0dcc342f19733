//! The tables as the chart reads them: `files/rights.yaml`, written by crdgen.

use std::fmt::Write as _;

use super::{Component, Right, Scope};

/// The rights of all parts in YAML: by account, scope (`cluster`, `own`) and reason (`needed`, `compat`), as lists of rules
/// with what each is for.
pub fn rights() -> String {
    let mut text = String::new();
    for component in Component::ALL {
        line(&mut text, 0, &format!("{}:", component.account()));
        for (scope, key) in [(Scope::Cluster, "cluster"), (Scope::Own, "own")] {
            line(&mut text, 1, &format!("{key}:"));
            for (table, key) in [(component.rights(), "needed"), (component.compat(), "compat")] {
                let rows: Vec<&Right> = table.iter().filter(|right| right.scope == scope).collect();
                line(&mut text, 2, &format!("{key}:{}", if rows.is_empty() { " []" } else { "" }));
                for row in rows {
                    rule(&mut text, row);
                }
            }
        }
    }
    text
}

fn rule(text: &mut String, right: &Right) {
    line(text, 3, &format!("# {}", right.why));
    line(text, 3, &format!("- apiGroups: {}", list(&[right.group])));
    line(text, 4, &format!("resources: {}", list(right.resources)));
    if !right.names.is_empty() {
        line(text, 4, &format!("resourceNames: {}", list(right.names)));
    }
    line(text, 4, &format!("verbs: {}", list(right.verbs)));
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn line(text: &mut String, depth: usize, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:width$}{content}", "", width = depth * 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_is_written_with_its_reason() {
        let text = rights();
        for component in Component::ALL {
            for right in component.rights().iter().chain(component.compat()) {
                assert!(text.contains(right.why) && text.contains(&list(right.verbs)), "{right:?}");
            }
        }
        assert!(text.starts_with("spawnery-operator:\n  cluster:\n    needed:\n      # "), "{text}");
    }
}
