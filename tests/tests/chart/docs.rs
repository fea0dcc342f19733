//! The page on installing says what is true.

use crate::helm::chart;
use anyhow::{Context as _, Result};
use serde_json::Value;
use spawnery_tests::target;
use std::{collections::BTreeMap, fs};

fn page() -> Result<String> {
    let path = target::workspace().join("docs/install.md");
    fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
}

/// Every value by its path, with its default as JSON. What people fill as a whole is one value.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() && !path.ends_with("resources") => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(&path, value, found);
            }
        }
        _ => {
            found.insert(path.to_owned(), value.to_string());
        }
    }
}

/// Rows of the table of values: path, default and meaning, the first two as code.
fn rows(page: &str) -> BTreeMap<String, String> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split("` | `");
        let path = cells.next()?.to_owned();
        let default = cells.next()?.split("` |").next()?.to_owned();
        Some((path, default))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_table_of_values_is_that_of_the_chart() -> Result<()> {
    let path = chart().join("values.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let mut values = BTreeMap::new();
    leaves("", &serde_saphyr::from_str(&text)?, &mut values);
    assert_eq!(rows(&page()?), values, "docs/install.md against charts/spawnery/values.yaml");
    Ok(())
}

/// The command that clears finalizers, as the page has it.
pub(crate) fn finalizers_command() -> Result<String> {
    let page = page()?;
    let block = page.split("<!-- clears finalizers -->").nth(1).context("the page has no such command")?;
    let block = block.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    block.map(str::to_owned).context("the command is in no block")
}
