//! For each rule: with it the cases that name it are refused (`what_is_accepted_and_what_is_refused`), without it and it
//! alone they are accepted. So each rule is needed, and each case tests the rule that it says.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use spawnery_api::v1alpha1::crds;

use crate::cases::{self, Case, Verdict};
use crate::world::{self, Kind, World};

/// One rule of one kind.
struct Rule {
    kind: Kind,
    /// JSON pointer to the list that it is in.
    list: String,
    index: usize,
    message: String,
}

fn rules() -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for kind in Kind::ALL {
        collect(kind, &definition(kind)?, "", &mut rules);
    }
    Ok(rules)
}

fn definition(kind: Kind) -> Result<Value> {
    let crd = crds()?.into_iter().find(|crd| crd.spec.names.kind == kind.name()).context("no such kind")?;
    Ok(serde_json::to_value(crd)?)
}

fn collect(kind: Kind, value: &Value, path: &str, rules: &mut Vec<Rule>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let path = format!("{path}/{key}");
                if key != "x-kubernetes-validations" {
                    collect(kind, value, &path, rules);
                    continue;
                }
                for (index, rule) in value.as_array().into_iter().flatten().enumerate() {
                    let message = rule["message"].as_str().or_else(|| rule["messageExpression"].as_str());
                    let message = message.unwrap_or_default().to_owned();
                    rules.push(Rule { kind, list: path.clone(), index, message });
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(kind, item, &format!("{path}/{index}"), rules);
            }
        }
        _ => {}
    }
}

/// The kind's definition without the rule, in a group of its own, so that all of them can be served at once.
fn without(rule: &Rule, group: &str) -> Result<Value> {
    let mut crd = definition(rule.kind)?;
    let list = crd.pointer_mut(&rule.list).and_then(Value::as_array_mut).context("the rule's list")?;
    list.remove(rule.index);
    let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
    crd["metadata"]["name"] = format!("{plural}.{group}").into();
    crd["spec"]["group"] = group.into();
    if let Some(names) = crd["spec"]["names"].as_object_mut() {
        names.remove("shortNames");
    }
    Ok(crd)
}

fn of_rule<'a>(rule: &Rule, cases: &'a [Case]) -> Vec<&'a Case> {
    let names = |case: &&Case| matches!(case.verdict, Verdict::ByRule(words) if rule.message.contains(words));
    cases.iter().filter(|case| case.kind == rule.kind).filter(names).collect()
}

#[test]
fn every_rule_has_a_case_and_every_case_has_one_rule() -> Result<()> {
    let (cases, rules) = (cases::all(), rules()?);
    ensure!(rules.len() >= 21, "found {} rules only", rules.len());
    for rule in &rules {
        ensure!(!rule.message.is_empty(), "{}: a rule without a message at {}", rule.kind.name(), rule.list);
        ensure!(!of_rule(rule, &cases).is_empty(), "{}: no case for {:?}", rule.kind.name(), rule.message);
    }
    for case in &cases {
        let Verdict::ByRule(words) = case.verdict else { continue };
        let matching: BTreeSet<_> = rules
            .iter()
            .filter(|rule| rule.kind == case.kind && rule.message.contains(words))
            .map(|rule| (&rule.list, rule.index))
            .collect();
        ensure!(matching.len() == 1, "{}: {words:?} names {} rules", case.name, matching.len());
    }
    Ok(())
}

#[tokio::test]
async fn without_its_rule_each_case_is_accepted() -> Result<()> {
    let world = World::start().await?;
    let client = world.cluster.client().await?;
    world
        .cluster
        .with_namespace("mutants", |ns| async move {
            let cases = cases::all();
            for (number, rule) in rules()?.iter().enumerate() {
                let group = format!("mutant-{number}.spawnery.cloud");
                world::install(&client, &without(rule, &group)?).await?;
                let api = world::api(&client, rule.kind, &group, ns.name());
                for (index, case) in of_rule(rule, &cases).into_iter().enumerate() {
                    let got = world::attempt(&api, case, &group, &format!("case-{index}")).await?;
                    ensure!(got.is_ok(), "{}: refused also without {:?}: {got:?}", case.name, rule.message);
                }
            }
            Ok(())
        })
        .await
}
