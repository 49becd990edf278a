//! Messages of the API in the words of the command line: verbs instead of routes, options instead of
//! members of a body and parameters of a query.

/// Routes, with `#` for a number, and the verbs for the same.
const VERBS: [(&str, &str); 7] = [
    ("/rest/retroshade/list", "orrery list"),
    ("/rest/retroshade/tables", "orrery tables"),
    ("/rest/retroshade/subscribe", "orrery subscribe"),
    ("/rest/webhooks/list", "orrery webhooks list"),
    ("/rest/webhooks/#/deliveries", "orrery webhooks deliveries #"),
    ("/rest/webhooks/#/enable", "orrery webhooks enable #"),
    ("/rest/webhooks/#/replay", "orrery webhooks replay #"),
];

/// Members and parameters that have another name than their option.
const OPTIONS: [(&str, &str); 7] = [
    ("code", "code-path"),
    ("contracts", "contract"),
    ("contract_ids", "contract"),
    ("delivery_id", "delivery"),
    ("project_name", "project"),
    ("webhook_endpoint", "endpoint"),
    ("webhook_secret", "secret-file"),
];
/// Those that have the same name, but for underscores.
const SAME: [&str; 24] = [
    "address",
    "allow_unfit",
    "at",
    "cursor",
    "end_previous",
    "format",
    "from",
    "from_ledger",
    "key",
    "last",
    "limit",
    "max_rows",
    "message",
    "name",
    "replace",
    "source",
    "spec",
    "status",
    "to",
    "topic1",
    "topic2",
    "topic3",
    "topic4",
    "transactions",
];

/// Returns a message of the API as the command line says it.
pub fn of(sentence: &str) -> String {
    let in_body = sentence.strip_prefix("the request body is malformed: ");
    let in_query = sentence.strip_prefix("parameter ");
    // Values that only the programs check begin the sentence.
    let in_sentence = sentence.starts_with('\'').then_some(sentence);
    let text = match in_body.or(in_query).or(in_sentence) {
        Some(about_value) => with_options(about_value),
        None => sentence.to_owned(),
    };
    with_verbs(&text)
}

fn with_options(text: &str) -> String {
    let renamed = OPTIONS.iter().map(|(name, option)| (*name, (*option).to_owned()));
    let same = SAME.iter().map(|name| (*name, name.replace('_', "-")));
    renamed.chain(same).fold(text.to_owned(), |text, (name, option)| {
        text.replacen(&format!("'{name}'"), &format!("--{option}"), 1)
    })
}

fn with_verbs(text: &str) -> String {
    let text = text.replace("POST /rest/", "/rest/");
    let words = text.split(' ').map(|word| {
        let bare = word.trim_start_matches('(').trim_end_matches([')', ',', '.', ':', ';']);
        match verb(bare) {
            Some(verb) => word.replacen(bare, &format!("`{verb}`"), 1),
            None => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn verb(path: &str) -> Option<String> {
    VERBS.iter().find_map(|(route, verb)| {
        let Some((before, after)) = route.split_once('#') else {
            return (*route == path).then(|| (*verb).to_owned());
        };
        let number = path.strip_prefix(before)?.strip_suffix(after)?;
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| verb.replace('#', number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_become_verbs_and_members_options() {
        for (api, expected) in [
            (
                "there is no program 99: see /rest/retroshade/list for yours",
                "there is no program 99: see `orrery list` for yours",
            ),
            (
                "subscription 1 has no delivery 'foo': see /rest/webhooks/1/deliveries",
                "subscription 1 has no delivery 'foo': see `orrery webhooks deliveries 1`",
            ),
            (
                "subscription 7 is disabled: enable it with POST /rest/webhooks/7/enable first",
                "subscription 7 is disabled: enable it with `orrery webhooks enable 7` first",
            ),
            ("to read it, see /rest/retroshade/tables.", "to read it, see `orrery tables`."),
            ("to read it (POST /rest/retroshade/subscribe)", "to read it (`orrery subscribe`)"),
            (
                "the request body is malformed: 'contract_ids': 'x' is not a contract ID",
                "--contract: 'x' is not a contract ID",
            ),
            (
                "the request body is malformed: 'from' 9 is after 'to' 3: swap them",
                "--from 9 is after --to 3: swap them",
            ),
            (
                "parameter 'from_ledger' is 'x': give a ledger",
                "--from-ledger is 'x': give a ledger",
            ),
            ("the limit 'from' stays as it is", "the limit 'from' stays as it is"),
            ("see /rest/webhooks/x/enable", "see /rest/webhooks/x/enable"),
        ] {
            assert_eq!(of(api), expected);
        }
    }
}
