//! Requests as clients send them, and what they are answered.

use super::*;

struct Sample(BTreeMap<String, Vec<String>>);

impl Lake for Sample {
    fn namespaces(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn tables(&self, namespace: &str) -> Option<Vec<String>> {
        self.0.get(namespace).cloned()
    }

    fn location(&self, namespace: &str, table: &str) -> Option<String> {
        let tables = self.0.get(namespace)?;
        tables.iter().any(|it| it == table).then(|| format!("/lake/{namespace}/\"{table}\".json"))
    }

    fn metadata(&self, location: &str) -> Result<String, String> {
        match location.contains("away") {
            true => Err("the lake is not there".to_owned()),
            false => Ok(r#"{"format-version":2}"#.to_owned()),
        }
    }
}

fn lake() -> Sample {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let many = (0..250).map(|number| format!("t{number:03}")).collect();
    Sample(BTreeMap::from([
        ("chain".to_owned(), names(&["transactions", "events"])),
        ("xlm".to_owned(), names(&["transfer v1", "ä/b", "away"])),
        ("many".to_owned(), many),
        ("of others".to_owned(), names(&["secret"])),
    ]))
}

fn send(method: &str, target: &str, tags: Option<&str>) -> Response {
    let visible = ["chain", "xlm", "many", "gone"].map(str::to_owned).into();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let request = Request { method, path, query, if_none_match: tags };
    answer(&lake(), Visible::Only(&visible), &request)
}

fn get(target: &str) -> (u16, Value) {
    let response = send("GET", target, None);
    assert_eq!(response.headers[0], ("content-type", "application/json".to_owned()));
    (response.status, serde_json::from_str(&response.body).unwrap())
}

fn failed(status: u16, kind: &str, message: &str) -> (u16, Value) {
    (status, json!({"error": {"message": message, "type": kind, "code": status}}))
}

#[test]
fn the_catalogue_says_what_it_answers() {
    let (status, config) = get("/v1/config?warehouse=w&unknown");
    assert_eq!((status, &config["defaults"], &config["overrides"]), (200, &json!({}), &json!({})));
    assert_eq!(config["endpoints"].as_array().unwrap().len(), 6);
}

#[test]
fn namespaces_are_those_that_a_client_may_see() {
    let all = json!({"namespaces": [["chain"], ["many"], ["xlm"]], "next-page-token": null});
    for target in ["/v1/namespaces", "/v1/namespaces?parent=&x=y", "/v1/namespaces?pageToken="] {
        assert_eq!(get(target), (200, all.clone()), "{target}");
    }
    let none = json!({"namespaces": [], "next-page-token": null});
    assert_eq!(get("/v1/namespaces?parent=chain"), (200, none));
    let chain = json!({"namespace": ["chain"], "properties": {}});
    assert_eq!(get("/v1/namespaces/chain"), (200, chain));
    for (name, shown) in [("of%20others", "of others"), ("gone", "gone"), ("a%1Fb", "a\u{1f}b")] {
        let message = format!("Namespace does not exist: {shown}");
        let expected = failed(404, "NoSuchNamespaceException", &message);
        assert_eq!(get(&format!("/v1/namespaces/{name}")), expected);
        assert_eq!(get(&format!("/v1/namespaces/{name}/tables")), expected);
        let head = send("HEAD", &format!("/v1/namespaces/{name}"), None);
        assert_eq!((head.status, &*head.body), (404, ""));
    }
    assert_eq!(send("HEAD", "/v1/namespaces/xlm", None), Response::empty(204));
    let request =
        Request { method: "GET", path: "/v1/namespaces", query: None, if_none_match: None };
    assert!(answer(&lake(), Visible::All, &request).body.contains("of others"));
}

#[test]
fn pages_have_every_name_once() {
    let (mut token, mut seen, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let target = format!("/v1/namespaces/many/tables?pageToken={token}&pageSize=60");
        let (status, page) = get(&target);
        assert_eq!(status, 200);
        let names = page["identifiers"].as_array().unwrap().iter();
        seen.extend(names.map(|it| it["name"].as_str().unwrap().to_owned()));
        pages += 1;
        match page["next-page-token"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((seen, pages), (lake().0["many"].clone(), 5));
    let count = |target: &str| get(target).1["identifiers"].as_array().unwrap().len();
    assert_eq!(count("/v1/namespaces/many/tables"), 250, "who does not ask for pages gets all");
    assert_eq!(count("/v1/namespaces/many/tables?pageToken="), PAGE);
    for (query, message) in [
        ("pageSize=0", "pageSize is not a number above 0"),
        ("pageSize=x", "pageSize is not a number above 0"),
        ("pageToken=xyz", "pageToken is not one that the catalogue gave"),
        ("pageToken=ff", "pageToken is not one that the catalogue gave"),
    ] {
        let answer = get(&format!("/v1/namespaces/many/tables?{query}"));
        assert_eq!(answer, failed(400, "BadRequestException", message));
    }
}

#[test]
fn a_table_is_its_metadata() {
    let path = "/v1/namespaces/xlm/tables/%C3%A4%2Fb";
    let response = send("GET", &format!("{path}?snapshots=refs&unknown=1"), None);
    let body: Value = serde_json::from_str(&response.body).unwrap();
    let expected = json!({"metadata-location": "/lake/xlm/\"ä/b\".json",
                          "metadata": {"format-version": 2}, "config": {}});
    assert_eq!((response.status, body), (200, expected));
    let (name, tag) = response.headers[1].clone();
    assert_eq!(name, "etag");
    for tags in [&*tag, &format!("\"other\", W/{tag}"), "*"] {
        let response = send("GET", path, Some(tags));
        assert_eq!((response.status, &*response.body), (304, ""), "{tags}");
        assert_eq!(response.headers, [("etag", tag.clone())]);
    }
    assert_eq!(send("GET", path, Some("\"other\"")).status, 200);
    assert_eq!(send("HEAD", path, None), Response::empty(204));
    let other = send("GET", "/v1/namespaces/chain/tables/events", Some(&tag));
    assert_eq!(other.status, 200);
}

#[test]
fn what_is_not_there_is_told_in_icebergs_form() {
    for (table, shown) in
        [("chain/tables/Events", "chain.Events"), ("of%20others/tables/secret", "of others.secret")]
    {
        let message = format!("Table does not exist: {shown}");
        let expected = failed(404, "NoSuchTableException", &message);
        assert_eq!(get(&format!("/v1/namespaces/{table}")), expected);
        assert_eq!(send("HEAD", &format!("/v1/namespaces/{table}"), None).status, 404);
    }
    let away = failed(503, "ServiceUnavailableException", "the lake is not there");
    assert_eq!(get("/v1/namespaces/xlm/tables/away"), away);
    let path = failed(404, "NotFoundException", "the catalogue has no such path");
    for target in ["/v1/namespaces/chain/views", "/v1", "", "/v2/config", "/v1/namespaces/chain/"] {
        assert!([404].contains(&send("GET", target, None).status), "{target}");
    }
    assert_eq!(get("/v1/namespaces/chain/views"), path);
    assert_eq!(get("/v1/namespaces/%ff").0, 400);
    for target in ["/v1/namespaces", "/v1/namespaces/chain/tables/events", "/v1/oauth/tokens"] {
        let response = send("POST", target, None);
        assert_eq!(response.status, 406);
        assert!(response.body.contains("UnsupportedOperationException"));
    }
}
