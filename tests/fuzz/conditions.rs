//! Conditions, and paths of names: any text is refused with a place in it, or it is read the same again and
//! evaluated in bounded time, over values with which every operator has something to do.

use std::time::{Duration, Instant};

use orrery::conditions::{Condition, Fields, Name, Path, Value};
use serde_json::json;

/// Longest text, in bytes.
const LONGEST: usize = 4096;

struct Row(serde_json::Value);

impl Fields for Row {
    fn field(&self, name: &Name) -> Option<Value<'_>> {
        // Every name has a value, so that no part of a condition is left out.
        let members = self.0.as_object()?;
        let known = members.iter().find(|(key, _)| name.is(key)).map(|(_, value)| value);
        let any = || members.values().nth(name.folded().len() % members.len());
        known.or_else(any).map(Value::of_json)
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "amount >= 1000000000 and (to = 'G' or sep0011_asset like 'USDC:%')",
        "not a in (1, 2, null) or lower(t) not like '_%é' and d.x[1] is not null",
        "- a * (b + 2) - abs(c) != 115792089237316195423570985008687907853269984665640564039457584007913129639935",
        "\"a \"\"b\" = true or list[2].values[1] <= - - 3",
        "a == b <> c || d / e between 1 and 2 is true -- x",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok((path, length)) = Path::parse_beginning(text) {
        let written = path.to_string();
        assert_eq!(Path::parse(&written), Ok(path.clone()), "{text}");
        assert_eq!(Path::parse(&text[..length]), Ok(path), "{text}");
    }
    match Condition::parse(text) {
        Ok(condition) => {
            assert!(text.len() <= LONGEST && condition.text() == text);
            let long = "ab_%é".repeat(2_000);
            let row = Row(json!({
                "a": 1, "b": -5, "c": u64::MAX, "t": long, "to": "G", "flag": true, "none": null,
                "list": ["x", 2], "d": { "x": [null, "y"] },
            }));
            let begun = Instant::now();
            let first = condition.holds(&row);
            assert!(begun.elapsed() < Duration::from_secs(5), "{text}");
            assert_eq!(Condition::parse(text).unwrap().holds(&row), first, "{text}");
        }
        Err(problem) => {
            let characters = text.chars().count();
            assert!((1..=characters + 1).contains(&problem.position), "{text}: {problem}");
            assert!(!problem.what.is_empty() && problem.what.len() < 400, "{text}: {problem}");
        }
    }
}
