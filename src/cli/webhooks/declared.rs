//! Whether contracts declare an event with the first topic that a subscription is for: with a mistyped one
//! it would wait for ever.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cli::remote::Remote;

/// Number of contracts whose interfaces are asked for.
const MOST_CONTRACTS: usize = 4;
/// Number of first topics that a warning names.
const MOST_NAMES: usize = 8;
/// Letters of the longest symbol.
const LONGEST_SYMBOL: usize = 32;

/// Returns a warning for each contract that declares events, but none with this first topic. A contract
/// whose interface is not known is left out, and so is a topic that is no name.
pub fn warnings(remote: &Remote, contracts: &[String], topic: &str) -> Vec<String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if topic.len() > LONGEST_SYMBOL || !topic.bytes().all(is_name) {
        return Vec::new();
    }
    let interface = |contract| remote.get(&format!("contracts/{contract}")).ok()?.json().ok();
    let known = contracts.iter().take(MOST_CONTRACTS).filter_map(|contract| {
        let interface: Value = interface(contract)?;
        warning(contract, &interface, topic)
    });
    known.collect()
}

fn warning(contract: &str, interface: &Value, topic: &str) -> Option<String> {
    let mut declared = BTreeSet::new();
    for event in interface["events"].as_array()? {
        // An event whose first topic is a parameter may have any.
        declared.insert(event["prefix"][0].as_str()?);
    }
    if declared.is_empty() || declared.contains(topic) || interface["truncated"] == true {
        return None;
    }
    let shown: Vec<&str> = declared.iter().copied().take(MOST_NAMES).collect();
    let more = if declared.len() > MOST_NAMES { ", …" } else { "" };
    Some(format!(
        "{contract} declares no event whose first topic is {topic}: it declares {}{more}; what it emits without a \
         declaration is sent all the same",
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_topic_that_no_event_begins_with_is_warned_of() {
        let of = |prefixes: &[&[&str]]| {
            let events: Vec<Value> = prefixes.iter().map(|it| json!({ "prefix": it })).collect();
            json!({ "events": events, "truncated": false })
        };
        let market = of(&[&["placed"], &["filled", "part"]]);
        assert_eq!(warning("C", &market, "filled"), None);
        let text = warning("C", &market, "filed").unwrap();
        assert!(text.contains("topic is filed: it declares filled, placed;"), "{text}");
        for unknown in [of(&[]), of(&[&["placed"], &[]]), json!({ "events": null })] {
            assert_eq!(warning("C", &unknown, "filed"), None, "{unknown}");
        }
        let many: Vec<String> = (0..9).map(|number| format!("e{number}")).collect();
        let many: Vec<Vec<&str>> = many.iter().map(|name| vec![name.as_str()]).collect();
        let many: Vec<&[&str]> = many.iter().map(Vec::as_slice).collect();
        assert!(warning("C", &of(&many), "filed").unwrap().contains("e7, …;"));
    }
}
