use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::super::answer::Answer;
use super::super::areas::areas;
use super::super::identity::Access;
use super::super::route::Work;
use super::super::{ApiSettings, Deps};
use super::*;

/// Outcome of a lookup: its kind, the template, and the values in the template's braces.
type Outcome = (&'static str, &'static str, Vec<String>);

fn names(template: &'static str) -> impl Iterator<Item = &'static str> {
    template.split('/').filter_map(in_braces)
}

fn outcome(router: &Router, method: &Method, path: &str) -> Outcome {
    match router.find(method, path) {
        Match::Handle(route, values) => {
            let values = names(route.template).map(|name| values.get(name).to_owned()).collect();
            ("handle", route.template, values)
        }
        Match::Options(resource) => ("options", resource.template, Vec::new()),
        Match::WrongMethod(resource) => ("wrong method", resource.template, Vec::new()),
        Match::Unknown => ("unknown", "", Vec::new()),
    }
}

fn served() -> Router {
    Router::new(&areas(&ApiSettings::default(), false)).unwrap()
}

fn nothing(_: &Deps) -> Result<Answer, ApiError> {
    Ok(Answer::json(Vec::new()))
}

const fn route(method: &'static str, template: &'static str) -> Route {
    Route::new(method, template, Work::memory(Access::Public, nothing))
}

/// Resources of several shapes, with every method. Where two templates match a path, the one with
/// the longer literal prefix comes first.
static MADE: [Route; 13] = [
    route("GET", "/rest/webhooks/list"),
    route("POST", "/rest/webhooks/new"),
    route("GET", "/rest/webhooks/{id}"),
    route("PATCH", "/rest/webhooks/{id}"),
    route("PUT", "/rest/webhooks/{id}"),
    route("DELETE", "/rest/webhooks/{id}"),
    route("GET", "/rest/webhooks/{id}/deliveries"),
    route("GET", "/rest/webhooks/{id}/deliveries/{delivery}"),
    route("POST", "/rest/webhooks/{id}/deliveries/{delivery}/replay"),
    route("GET", "/rest/passkey-indexer"),
    route("GET", "/rest/passkey-indexer/api/lookup/address/{address}"),
    route("GET", "/rest/passkey-indexer/api/lookup/{credential}"),
    route("TRACE", "/{first}/{second}/{third}/{fourth}/{fifth}"),
];

#[test]
fn paths_match_their_template() {
    let router = served();
    for (path, template, value) in [
        ("/rest/events/by-ledger", "/rest/events/by-ledger", ""),
        ("/rest/events/by-ledger/", "/rest/events/by-ledger", ""),
        ("/rest/events/by-ledger/contracts", "/rest/events/by-ledger/contracts", ""),
        ("/rest/%65vents/by-ledger", "/rest/events/by-ledger", ""),
        ("/rest/events/by-tx/a%2Fb/", "/rest/events/by-tx/{tx_hex}", "a%2Fb"),
        ("/rest/events/by-tx/{tx_hex}", "/rest/events/by-tx/{tx_hex}", "{tx_hex}"),
        ("/rest/txs/%62y-hash/%78", "/rest/txs/by-hash/{tx_hex}", "%78"),
        ("/rest/txs/by-hash/x", "/rest/txs/by-hash/{tx_hex}", "x"),
        ("/rest/health", "/rest/health", ""),
        ("/rest/health/live", "/rest/health/live", ""),
    ] {
        let values = Vec::from_iter((!value.is_empty()).then(|| value.to_owned()));
        for method in [Method::GET, Method::HEAD] {
            let found = outcome(&router, &method, path);
            assert_eq!(found, ("handle", template, values.clone()));
        }
        assert_eq!(outcome(&router, &Method::OPTIONS, path).0, "options");
        // The list of contracts may be long: it is also taken from a body.
        let has_body = template.ends_with("/contracts");
        for method in [Method::POST, Method::DELETE, Method::TRACE, Method::CONNECT] {
            let is_handled = has_body && method == Method::POST;
            let expected = if is_handled { "handle" } else { "wrong method" };
            assert_eq!(outcome(&router, &method, path).0, expected);
        }
    }
}

#[test]
fn methods_select_their_route() {
    let router = served();
    let id = |method, path| outcome(&router, &method, path);
    let values = || vec!["7".to_owned()];
    let program = ("handle", "/rest/retroshade/{id}", values());
    assert_eq!(id(Method::DELETE, "/rest/retroshade/7"), program);
    assert_eq!(id(Method::GET, "/rest/retroshade/7").0, "wrong method");
    assert_eq!(id(Method::GET, "/rest/retroshade/list").0, "handle");
    assert_eq!(id(Method::DELETE, "/rest/retroshade/list").0, "wrong method");
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let found = id(method, "/rest/retroshade/7/backfill");
        assert_eq!(found, ("handle", "/rest/retroshade/{id}/backfill", values()));
    }
    let allow = |path| match router.find(&Method::OPTIONS, path) {
        Match::Options(resource) => resource.allow.clone(),
        _ => panic!("{path} has no options"),
    };
    assert_eq!(allow("/rest/retroshade/7/backfill"), "GET, HEAD, POST, DELETE, OPTIONS");
    assert_eq!(allow("/rest/retroshade/deploy"), "POST, OPTIONS");
}

#[test]
fn templates_may_have_several_parameters_and_any_methods() {
    let router = Router::new(&[&MADE]).unwrap();
    let found = |method, path| outcome(&router, &method, path);
    let webhook = "/rest/webhooks/{id}";
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::DELETE] {
        assert_eq!(found(method, "/rest/webhooks/3"), ("handle", webhook, vec!["3".to_owned()]));
    }
    assert_eq!(found(Method::POST, "/rest/webhooks/3"), ("wrong method", webhook, Vec::new()));
    let Match::Options(resource) = router.find(&Method::OPTIONS, "/rest/webhooks/3") else {
        panic!("it has options");
    };
    assert_eq!(resource.allow, "GET, HEAD, PUT, PATCH, DELETE, OPTIONS");
    let values = vec!["3".to_owned(), "d%2F1".to_owned()];
    let replay = "/rest/webhooks/{id}/deliveries/{delivery}/replay";
    assert_eq!(
        found(Method::POST, "/rest/webhooks/3/%64eliveries/d%2F1/replay/"),
        ("handle", replay, values.clone())
    );
    let delivery = "/rest/webhooks/{id}/deliveries/{delivery}";
    assert_eq!(
        found(Method::GET, "/rest/webhooks/3/deliveries/d%2F1"),
        ("handle", delivery, values)
    );
    let lookup = "/rest/passkey-indexer/api/lookup/{credential}";
    let address = "/rest/passkey-indexer/api/lookup/address/{address}";
    let below = |segments: &str| format!("/rest/passkey-indexer/api/lookup/{segments}");
    let get = |segments: &str| outcome(&router, &Method::GET, &below(segments));
    assert_eq!(get("address"), ("handle", lookup, vec!["address".to_owned()]));
    assert_eq!(get("address/G"), ("handle", address, vec!["G".to_owned()]));
    assert_eq!(get("0xab/G").0, "unknown");
    let all: Vec<_> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
    assert_eq!(found(Method::TRACE, "/a/b/c/d/e"), ("handle", MADE[12].template, all));
}

#[test]
fn other_paths_match_no_route() {
    let router = served();
    for path in [
        "",
        "*",
        "/rest",
        "/rest/",
        "/health",
        "/rest/health//",
        "//rest/health",
        "/rest//health",
        "/rest/Health",
        "/rest/events/by-tx",
        "/rest/events/by-tx/",
        "/rest/events/by-tx/a/b",
        "/rest/events%2Fby-ledger",
        "/rest/events/./by-ledger",
        "/rest/health/../health",
        "/rest/health/live/x",
    ] {
        assert_eq!(outcome(&router, &Method::GET, path).0, "unknown", "{path}");
    }
}

#[test]
fn contradictory_route_tables_are_refused() {
    static TWICE: [Route; 2] = [route("GET", "/x/{id}"), route("GET", "/x/{id}")];
    static OTHER_NAME: [Route; 2] = [route("GET", "/x/{id}"), route("PUT", "/x/{name}")];
    static PART: [Route; 1] = [route("GET", "/x/a{id}")];
    static REST: [Route; 1] = [route("GET", "/x/{id}/{*rest}")];
    static EMPTY: [Route; 1] = [route("GET", "/x/{}")];
    for table in [&TWICE[..], &OTHER_NAME, &PART, &REST, &EMPTY] {
        let Err(ApiError::Start(says)) = Router::new(&[table]).map(drop) else {
            panic!("{} is accepted", table[0].template);
        };
        assert!(says.contains("route '/x/"), "{says}");
    }
}

/// Computes the expected outcome by comparing each template segment by segment: first with the path
/// as sent, then with segments decoded where the template is literal.
fn expected(table: &[&'static Route], method: &Method, path: &str) -> Outcome {
    let path = path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path);
    let segments: Vec<&str> = path.split('/').collect();
    let fits = |template: &str, decode: bool| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == segments.len()
            && !template.ends_with(REST)
            && wanted.iter().zip(&segments).all(|(wanted, given)| {
                let decoded = percent_decode_str(given).decode_utf8_lossy();
                match in_braces(wanted) {
                    Some(_) => !given.is_empty(),
                    None => wanted == given || decode && *wanted == decoded,
                }
            })
    };
    let first = |decode| table.iter().find(|route| fits(route.template, decode));
    let under = || {
        let is_under = |segments: &[&str], before: &str| {
            let wanted: Vec<&str> = before.split('/').collect();
            let decoded = segments.iter().map(|it| percent_decode_str(it).decode_utf8_lossy());
            wanted.len() < segments.len()
                && wanted.iter().zip(decoded).all(|(one, other)| *one == other)
        };
        let before = |route: &Route| route.template.strip_suffix(REST);
        table.iter().find(|route| before(route).is_some_and(|it| is_under(&segments, it)))
    };
    let found = first(false).or_else(|| first(true)).or_else(under);
    let Some(template) = found.map(|route| route.template) else {
        return ("unknown", "", Vec::new());
    };
    let asked = if *method == Method::HEAD { &Method::GET } else { method };
    let has = table.iter().any(|route| route.template == template && asked == route.method);
    let values = template.split('/').zip(&segments).filter(|(wanted, _)| wanted.starts_with('{'));
    if has {
        ("handle", template, values.map(|(_, value)| (*value).to_owned()).collect())
    } else if *method == Method::OPTIONS {
        ("options", template, Vec::new())
    } else {
        ("wrong method", template, Vec::new())
    }
}

/// Generates a path that matches a template, or nearly does.
fn path_like(random: &mut StdRng, table: &[&'static Route]) -> String {
    const VALUES: [&str; 12] = [
        "7", "list", "{id}", "a%2Fb", "%", "%zz", "%FF", "%6Cist", "address", "é", "a=b;c",
        "%2e%2e",
    ];
    let template = table.choose(random).unwrap().template;
    let mut segments: Vec<String> = template.split('/').map(str::to_owned).collect();
    for segment in &mut segments {
        if segment.starts_with('{') {
            *segment = (*VALUES.choose(random).unwrap()).to_owned();
        } else if random.random_bool(0.15) && !segment.is_empty() {
            // Percent-encodes one byte or all of them, with hexadecimal digits in either case.
            let whole = random.random_bool(0.2);
            let at = random.random_range(0..segment.len());
            let spelled = segment.bytes().enumerate().map(|(i, byte)| match byte {
                byte if !whole && i != at => char::from(byte).to_string(),
                byte if random.random_bool(0.5) => format!("%{byte:02x}"),
                byte => format!("%{byte:02X}"),
            });
            *segment = spelled.collect();
        }
    }
    let at = random.random_range(0..segments.len());
    match random.random_range(0..14) {
        0 => segments[at] = String::new(),
        1 => segments.insert(at, String::new()),
        2 => drop(segments.remove(at)),
        3 => segments[at] = segments[at].to_uppercase(),
        4 => segments[at].push_str("%2F"),
        5 => segments[at] = (*VALUES.choose(random).unwrap()).to_owned(),
        6 => segments.push((*VALUES.choose(random).unwrap()).to_owned()),
        7 => segments[at].push('x'),
        _ => {}
    }
    let slashes = [0, 0, 0, 1, 1, 2].choose(random).copied().unwrap();
    segments.join("/") + &"/".repeat(slashes)
}

#[test]
fn the_router_agrees_with_comparing_each_template() {
    let methods = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::from_bytes(b"QUERY").unwrap(),
    ];
    let mut random = StdRng::seed_from_u64(11);
    let served: Vec<&'static Route> =
        areas(&ApiSettings::default(), false).into_iter().flatten().collect();
    let made: Vec<&'static Route> = MADE.iter().collect();
    for (table, router) in [
        (served, Router::new(&areas(&ApiSettings::default(), false)).unwrap()),
        (made, Router::new(&[&MADE]).unwrap()),
    ] {
        let mut seen = HashMap::new();
        for _ in 0..40_000 {
            let path = path_like(&mut random, &table);
            let method = methods.choose(&mut random).unwrap();
            let found = outcome(&router, method, &path);
            assert_eq!(found, expected(&table, method, &path), "{method} {path}");
            *seen.entry(found.0).or_insert(0) += 1;
        }
        for word in ["handle", "options", "wrong method", "unknown"] {
            assert!(seen[word] > 1_000, "{word} comes up too seldom: {seen:?}");
        }
    }
}

#[test]
fn a_catch_all_route_matches_the_remaining_paths_below_it() {
    static LEFT: [Route; 3] =
        [route("GET", "/a"), route("GET", "/a/b/{c}"), route("GET", "/a/{*rest}")];
    let router = Router::new(&[&LEFT]).unwrap();
    let template = |path| outcome(&router, &Method::GET, path).1;
    for (path, expected) in [
        ("/a", "/a"),
        ("/a/", "/a"),
        ("/a/b", "/a/{*rest}"),
        ("/a/b/1", "/a/b/{c}"),
        ("/a/b/1/2", "/a/{*rest}"),
        ("/a/x/y/z/", "/a/{*rest}"),
        ("/%61/%62/1", "/a/b/{c}"),
        ("/%61/%62", "/a/{*rest}"),
    ] {
        assert_eq!(template(path), expected, "{path}");
    }
    assert_eq!(outcome(&router, &Method::GET, "/b").0, "unknown");
    assert_eq!(outcome(&router, &Method::POST, "/a/x").0, "wrong method");
}
