//! Reading requests field by field, so that a refusal can name the field.

use std::collections::{BTreeMap, HashMap};

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::session::{OnServer, Tally};

/// Most players or slots that the channel can carry (its integers are signed and have 32 bits).
const MOST: u64 = i32::MAX as u64;

/// A JSON body.
#[derive(Debug)]
pub struct Body(Value);

impl Body {
    /// Reads `bytes` as JSON.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(bytes)
            .map(Self)
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {error}")))
    }

    /// The body as an object with no other fields than `known`.
    pub fn root(&self, known: &[&str]) -> Result<Fields<'_>, Refusal> {
        Fields::of(&self.0, String::new(), known)
    }
}

/// An object of a body.
#[derive(Debug)]
pub struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, path: String, known: &[&str]) -> Result<Self, Refusal> {
        let Value::Object(map) = value else {
            let field = if path.is_empty() { "the body" } else { path.as_str() };
            return Err(Refusal::field(field, Some(value), &format!("an object with {}", known.join(", "))));
        };
        let fields = Self { path, map };
        // A field that is misspelled would otherwise be a count that nobody hears of.
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(unknown) => Err(fields.refuse(unknown, &format!("no such field; only {}", known.join(", ")))),
            None => Ok(fields),
        }
    }

    fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A refusal of field `key`, where only `accepted` would do.
    pub fn refuse(&self, key: &str, accepted: &str) -> Refusal {
        Refusal::field(&self.name(key), self.map.get(key), accepted)
    }

    /// A whole number from 0 to `most`.
    pub fn whole(&self, key: &str, most: u64) -> Result<u64, Refusal> {
        let value = self.map.get(key).and_then(Value::as_u64).filter(|value| *value <= most);
        value.ok_or_else(|| self.refuse(key, &format!("a whole number from 0 to {most}")))
    }

    /// As [`Self::whole`], or nothing when the field is absent or `null`.
    pub fn maybe_whole(&self, key: &str, most: u64) -> Result<Option<u64>, Refusal> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.whole(key, most).map(Some),
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self, key: &str) -> Result<bool, Refusal> {
        self.map.get(key).and_then(Value::as_bool).ok_or_else(|| self.refuse(key, "true or false"))
    }

    /// An object with no other fields than `known`.
    pub fn object(&self, key: &str, known: &[&str]) -> Result<Self, Refusal> {
        let Some(value) = self.map.get(key) else {
            return Err(self.refuse(key, &format!("an object with {}", known.join(", "))));
        };
        Fields::of(value, self.name(key), known)
    }

    /// A count that the channel can carry.
    fn number(&self, key: &str) -> Result<u32, Refusal> {
        // Within 32 bits by `MOST`.
        self.whole(key, MOST).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
    }
}

/// A count as a body says it.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    /// `None`: the game cannot tell.
    pub tally: Option<Tally>,
    /// Grows from body to body, if the game numbers them.
    pub serial: Option<u64>,
}

/// Reads `players`, `slots`, `servers` and `serial`; `slots` may be left out where the pod's are known.
pub fn counted(fields: &Fields<'_>, known_slots: Option<u32>) -> Result<Counted, Refusal> {
    let serial = fields.maybe_whole("serial", u64::MAX)?;
    match fields.map.get("players") {
        None => {
            return Err(fields.refuse("players", &format!("a whole number from 0 to {MOST}, or null for unknown")));
        }
        Some(Value::Null) => return Ok(Counted { tally: None, serial }),
        Some(_) => {}
    }
    let players = fields.number("players")?;
    let slots = match (fields.map.contains_key("slots"), known_slots) {
        (false, Some(known)) => known,
        _ => fields.number("slots")?,
    };
    let servers = if fields.map.contains_key("servers") { servers(fields)? } else { BTreeMap::new() };
    Ok(Counted { tally: Some(Tally::new(players, slots).with_servers(servers)), serial })
}

fn servers(fields: &Fields<'_>) -> Result<BTreeMap<String, OnServer>, Refusal> {
    let Some(Value::Object(map)) = fields.map.get("servers") else {
        return Err(fields.refuse("servers", "an object of server names with players and connecting each"));
    };
    let path = fields.name("servers");
    let all = Fields { path, map };
    map.keys()
        .map(|name| {
            let on = all.object(name, &["players", "connecting"])?;
            let number = |key| {
                if on.map.contains_key(key) { on.number(key) } else { Ok(0) }
            };
            Ok((name.clone(), OnServer { players: number("players")?, connecting: number("connecting")? }))
        })
        .collect()
}

/// Reads a query string whose values are whole numbers.
pub fn query(text: &str, known: &[&str]) -> Result<HashMap<String, u64>, Refusal> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let shown = Value::from(value);
            if !known.contains(&key) {
                return Err(Refusal::field(
                    key,
                    Some(&shown),
                    &format!("no such parameter; only {}", known.join(", ")),
                ));
            }
            let number = value.parse().map_err(|_| Refusal::field(key, Some(&shown), "a whole number"))?;
            Ok((key.to_owned(), number))
        })
        .collect()
}
