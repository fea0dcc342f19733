//! A page of the documentation as what it is to its reader: commands to type, section by section.

use crate::target;
use anyhow::{Context as _, Result, ensure};
use std::fs;

/// What a block of commands begins and ends with.
const FENCE: &str = "```";
/// The language of blocks that hold commands; others show what is seen.
const COMMANDS: &str = "sh";

/// A page with commands.
#[derive(Debug, Clone)]
pub struct Page {
    sections: Vec<Section>,
}

/// What stands below one heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// All its commands, as a shell takes them; empty when it has none.
    pub script: String,
}

impl Page {
    /// Reads a page of `docs/`.
    ///
    /// # Errors
    /// When there is none, or a block in it does not end.
    pub fn read(name: &str) -> Result<Self> {
        let path = target::workspace().join("docs").join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} cannot be followed", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut sections: Vec<Section> = Vec::new();
        // The language of the block that we are in.
        let mut block: Option<&str> = None;
        for line in text.lines() {
            match (block, line.trim_end().strip_prefix(FENCE)) {
                (None, Some(language)) => block = Some(language),
                (Some(_), Some(_)) => block = None,
                (Some(COMMANDS), None) => {
                    let section = sections.last_mut().context("commands before the first heading")?;
                    section.script.push_str(line);
                    section.script.push('\n');
                }
                (Some(_), None) => {}
                (None, None) => {
                    if let Some(title) = line.strip_prefix("## ") {
                        sections.push(Section { title: title.trim().to_owned(), script: String::new() });
                    }
                }
            }
        }
        ensure!(block.is_none(), "the last block has no end");
        Ok(Self { sections })
    }

    /// The section with this heading, which must have commands.
    ///
    /// # Errors
    /// When there is none; says which there are.
    pub fn section(&self, title: &str) -> Result<&Section> {
        let found = self.sections.iter().find(|section| section.title == title && !section.script.is_empty());
        found.with_context(|| format!("no commands under {title:?}; there are some under {:?}", self.titles()))
    }

    /// The headings of all sections with commands.
    pub fn titles(&self) -> Vec<&str> {
        self.sections
            .iter()
            .filter(|section| !section.script.is_empty())
            .map(|section| section.title.as_str())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\n## One\nWords.\n```sh\na \\\n  b\n```\n```text\nshown\n```\nmore\n```sh\nc\n```\n## Two\nwords\n## Three\n```sh\nd\n```\n";

    #[test]
    fn commands_are_taken_section_by_section_and_what_is_shown_is_not() {
        let page = Page::parse(PAGE).unwrap();
        assert_eq!(page.section("One").unwrap().script, "a \\\n  b\nc\n");
        assert_eq!(page.titles(), ["One", "Three"]);
    }

    #[test]
    fn a_section_without_commands_is_none() {
        let error = Page::parse(PAGE).unwrap().section("Two").unwrap_err();
        assert!(error.to_string().contains(r#"["One", "Three"]"#), "{error}");
    }

    #[test]
    fn a_block_without_end_is_an_error() {
        assert!(Page::parse("## One\n```sh\na\n").is_err());
    }

    #[test]
    fn commands_belong_to_a_section() {
        assert!(Page::parse("```sh\na\n```\n").is_err());
    }
}
