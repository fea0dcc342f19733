//! Fallback groups of a proxy group.

use super::Finding;

/// Names that stand twice, or that no group can have. Whether a group of a name exists is a matter of references.
pub fn fallbacks(names: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if let Some(problem) = group_name_problem(name) {
            found.push(Finding::FallbackImpossible { index, name: name.clone(), problem });
        } else if let Some(first) = names.iter().take(index).position(|other| other == name) {
            found.push(Finding::FallbackTwice { name: name.clone(), first, second: index });
        }
    }
    found
}

/// Why no object can have this name (RFC 1123 subdomain, and short enough for the label that pods carry); `None` if one can.
pub fn group_name_problem(name: &str) -> Option<&'static str> {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.is_empty() {
        Some("is empty")
    } else if name.len() > 63 {
        Some("has more than 63 characters")
    } else if !name.chars().all(|c| alphanumeric(c) || c == '-' || c == '.') {
        Some("has a character that no name has")
    } else if !name.split('.').all(|part| part.starts_with(alphanumeric) && part.ends_with(alphanumeric)) {
        Some("has a part that does not start and end with a letter or digit")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("lobby", true)]
    #[case::dashes_and_digits("lobby-2", true)]
    #[case::dots("eu.lobby", true)]
    #[case::longest(&"a".repeat(63), true)]
    #[case::longer_than_a_label(&"a".repeat(64), false)]
    #[case::empty("", false)]
    #[case::a_comma_breaks_the_environment("lobby,survival", false)]
    #[case::space("lobby ", false)]
    #[case::upper_case("Lobby", false)]
    #[case::ends_with_dash("lobby-", false)]
    #[case::empty_part("eu..lobby", false)]
    #[case::other_alphabet("löbby", false)]
    fn a_name_that_a_group_can_have(#[case] name: &str, #[case] want: bool) {
        assert_eq!(group_name_problem(name).is_none(), want);
    }

    #[rstest]
    #[case::fine(&["lobby", "survival"], &[])]
    #[case::twice(&["lobby", "survival", "lobby"], &["fallback-twice"])]
    #[case::three_times(&["lobby", "lobby", "lobby"], &["fallback-twice", "fallback-twice"])]
    #[case::impossible(&["Lobby", "lobby"], &["fallback-impossible"])]
    fn finds(#[case] names: &[&str], #[case] want: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert_eq!(fallbacks(&names).iter().map(Finding::label).collect::<Vec<_>>(), want);
    }
}
