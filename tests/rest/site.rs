//! The web site: its document, its files and their headers, and what it shows without scripts. What
//! pages show in a browser is tested in `tests/site`.

use std::collections::{BTreeMap, BTreeSet};

use orrery::domain::Network;
use reqwest::Url;

use orrery_testkit::server::{Server, TempStore};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' \
                      data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGES: [&str; 14] = [
    "/",
    "/search?q=x",
    "/ledger/5",
    "/tx/00",
    "/event/1",
    "/contract/CX",
    "/account/GX",
    "/programs",
    "/programs/1",
    "/webhooks",
    "/webhooks/1",
    "/sql",
    "/status",
    "/trust",
];

fn empty() -> (Server, TempStore) {
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    (Server::start(&store), store)
}

fn page(server: &Server, path: &str) -> String {
    let answer = server.get_public(path);
    assert_eq!(answer.status, 200, "{path}");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    String::from_utf8(answer.body).unwrap()
}

/// Values of an attribute, in document order.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    html.split(&begin).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

/// Returns the paths that a page links to or loads, seen from its address.
fn linked(html: &str, path: &str) -> BTreeSet<String> {
    let address = Url::parse("http://orrery.test/").unwrap().join(path).unwrap();
    let local = |link: &&str| !link.starts_with('#') && *link != "data:,";
    let links = attributes(html, "href").into_iter().chain(attributes(html, "src")).filter(local);
    links.map(|link| address.join(link).unwrap().path().to_owned()).collect()
}

/// Returns the addresses of modules that a module imports.
fn imported(module: &str, path: &str) -> Vec<String> {
    let address = Url::parse("http://orrery.test/").unwrap().join(path).unwrap();
    let named = module.split(" from \"").chain(module.split("import(\"")).skip(1);
    let names =
        named.filter(|rest| rest.starts_with('.')).map(|rest| rest.split('"').next().unwrap());
    names.map(|name| address.join(name).unwrap().path().to_owned()).collect()
}

#[test]
fn every_page_has_the_same_links_and_files_at_any_depth() {
    let (server, _store) = empty();
    let first = linked(&page(&server, "/"), "/");
    assert!(
        ["/", "/sql", "/status", "/rest/health"].iter().all(|it| first.contains(*it)),
        "{first:?}"
    );
    for path in PAGES {
        for path in [path.to_owned(), path.replacen('?', "/?", 1)] {
            assert_eq!(linked(&page(&server, &path), &path), first, "{path}");
        }
        if !path.contains('?') && path != "/" {
            let path = format!("{path}/");
            assert_eq!(linked(&page(&server, &path), &path), first, "{path}");
        }
    }
}

#[test]
fn the_site_uses_only_its_own_files_and_no_inline_scripts() {
    let (server, _store) = empty();
    let html = page(&server, "/");
    // The content security policy blocks inline scripts and styles, so the page must contain none.
    assert_eq!(html.matches("<script").count(), html.matches("></script>").count());
    assert!(!html.contains("<style") && !html.contains(" style="), "{html}");
    let handlers = html.split_whitespace().filter(|it| it.starts_with("on") && it.contains('='));
    assert_eq!(handlers.count(), 0, "{html}");

    let mut queue: Vec<_> =
        linked(&html, "/").into_iter().filter(|path| path.starts_with("/site/")).collect();
    assert!(queue.len() >= 3, "styles and a module: {queue:?}");
    let mut seen = BTreeSet::new();
    while let Some(path) = queue.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let answer = server.get_public(&path);
        assert_eq!(answer.status, 200, "{path}");
        let headers = [
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "public, max-age=31536000, immutable"),
        ];
        for (name, value) in headers {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        let is_style = path.ends_with(".css");
        let media_type = if is_style { "text/css" } else { "text/javascript" };
        assert_eq!(answer.header("content-type"), Some(&*format!("{media_type}; charset=utf-8")));
        queue.extend(imported(&String::from_utf8(answer.body).unwrap(), &path));
    }
    assert!(seen.len() > 30, "{seen:?}");
    assert!(seen.iter().any(|path| path.ends_with("/pages/transaction.js")), "{seen:?}");
}

/// A browser that keeps a file for good must never get another file at its address.
#[test]
fn files_of_another_build_are_not_found_and_not_kept() {
    let (server, _store) = empty();
    let file = linked(&page(&server, "/"), "/");
    let file = file.iter().find(|path| path.ends_with("/app.js")).unwrap();
    let build = file.split('/').nth(2).unwrap();
    for path in [
        file.replace(build, "0123456789abcdef"),
        file.replace("/app.js", "/mod.rs"),
        file.replace("/app.js", "/../secrets"),
        file.replace("/app.js", "/%2e%2e/app.js"),
        file.replace("/app.js", ""),
        "/site/app.js".to_owned(),
    ] {
        let answer = server.get_public(&path);
        assert_ne!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
        answer.error(404, "not_found");
    }
    let mut connection = server.connect();
    let whole = connection.request("GET", file, &[]);
    let packed = connection.request("GET", file, &[("accept-encoding", "gzip")]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < whole.body.len());
}

#[test]
fn pages_handle_other_methods_like_all_routes() {
    let (server, _store) = empty();
    let mut connection = server.connect();
    for path in PAGES {
        let whole = connection.request("GET", path, &[]);
        let head = connection.request("HEAD", path, &[]);
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-type"), whole.header("content-type"));
        let answer = connection.request("POST", path, &[("content-length", "0")]);
        answer.error(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some("GET, HEAD, OPTIONS"), "{path}");
        assert_eq!(connection.request("OPTIONS", path, &[]).status, 204, "{path}");
    }
    for path in ["/app.js", "/ledger", "/tx", "/tx/0/1", "/site"] {
        connection.request("GET", path, &[]).error(404, "not_found");
    }
    assert_eq!(connection.request("GET", "/?token=x", &[]).status, 200);
}

#[test]
fn every_page_contains_health_as_escaped_text() {
    let store = TempStore::new(&Network::from_passphrase("a <b>\"private\"</b> & 'own' network"));
    let server = Server::start(&store);
    server.health.up_with("source", "it's at <https://example.org/?a=1&b=2>");
    for path in ["/", "/status", "/tx/00"] {
        let html = page(&server, path);
        assert!(html.contains("<strong>up</strong> <span>Everything works.</span>"), "{html}");
        assert!(html.contains("it&#39;s at &lt;https://example.org/?a=1&amp;b=2&gt;"), "{html}");
        assert!(
            html.contains("a &lt;b&gt;&quot;private&quot;&lt;/b&gt; &amp; &#39;own&#39; network")
        );
        assert!(html.contains("<dd id=\"service_latest_ledger\">–</dd>"), "{html}");
    }
    server.health.down("source", "<script>alert(1)</script> <!-- health --> {up}");
    let html = page(&server, "/");
    assert!(html.contains("<strong>down</strong>"), "{html}");
    assert!(
        html.contains("&lt;script&gt;alert(1)&lt;/script&gt; &lt;!-- health --&gt; {up}"),
        "{html}"
    );
    assert_eq!(html.matches("<script").count(), 1);
}

/// Browsers get a page with the search field, and all other clients, and the addresses of programs,
/// JSON as before.
#[test]
fn wrong_addresses_are_a_page_in_a_browser_and_json_elsewhere() {
    let (server, _store) = empty();
    let mut connection = server.connect();
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for path in ["/contracts/CX", "/nonsense", "/a/b/c/d", "/index.html", "/%3Cscript%3E"] {
        let answer = connection.request("GET", path, &browser);
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(answer.header("content-security-policy"), Some(POLICY));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("vary"), Some("Accept"));
        let html = String::from_utf8(answer.body).unwrap();
        assert!(html.contains("<title>No such page · Orrery</title>"), "{html}");
        assert!(html.contains("id=\"search\""), "{html}");
        assert!(!html.contains("<script>"), "{html}");
        for file in linked(&html, path).iter().filter(|file| file.starts_with("/site/")) {
            assert_eq!(server.get_public(file).status, 200, "{path}: {file}");
        }
        connection.request("GET", path, &[]).error(404, "not_found");
        connection
            .request("POST", path, &[browser[0], ("content-length", "0")])
            .error(404, "not_found");
        assert_eq!(connection.request("HEAD", path, &browser).body.len(), 0);
    }
    for path in ["/rest/nonsense", "/rest", "/site/app.js", "/metrics/x", "/rpc/x"] {
        connection.request("GET", path, &browser).error(404, "not_found");
    }
}

#[test]
fn documents_are_pages_of_the_site() {
    let (server, _store) = empty();
    let browser = [("accept", "text/html")];
    for path in [
        "/docs",
        "/docs/",
        "/docs/install",
        "/docs/api",
        "/docs/api/events",
        "/docs/http",
        "/docs/architecture/store",
    ] {
        let answer = server.get_public(path);
        assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{path}");
        let html = page(&server, path);
        for link in linked(&html, path).iter().filter(|link| !link.contains("://")) {
            assert_eq!(server.get_public(link).status, 200, "{path}: {link}");
        }
        assert!(html.contains("href=\"#main\"") && html.contains("<main id=\"main\""), "{path}");
    }
    let missing = server.connect().request("GET", "/docs/nothing", &browser);
    assert_eq!(missing.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(missing.status, 404);
    server.get_public("/docs/nothing").error(404, "not_found");
    // The footer of every page leads to them.
    let first = linked(&page(&server, "/"), "/");
    assert!(first.contains("/docs") && first.contains("/docs/api"), "{first:?}");
}

#[test]
fn the_search_index_of_documents_names_places_that_exist() {
    let (server, _store) = empty();
    let html = page(&server, "/docs");
    let script = linked(&html, "/docs").into_iter().find(|it| it.ends_with("/docs.js")).unwrap();
    let index = server.get_public(&script.replace("docs.js", "search.json"));
    assert_eq!(index.header("content-type"), Some("application/json"));
    let places = index.json().as_array().unwrap().clone();
    assert!(places.len() > 200, "{}", places.len());
    let mut pages: BTreeMap<String, String> = BTreeMap::new();
    for place in &places {
        let address = place[0].as_str().unwrap();
        let (path, part) = address.split_once('#').unwrap_or((address, ""));
        let path = format!("/docs/{path}");
        let html = pages.entry(path.clone()).or_insert_with(|| page(&server, &path));
        let has_part = part.is_empty() || html.contains(&format!(" id=\"{part}\""));
        assert!(has_part, "{address}");
    }
}

/// The token of a demo is for people on its machine: not for scripts of other pages, nor for anybody
/// who comes through a proxy.
#[test]
fn documents_show_the_token_of_a_demo_only_on_its_machine() {
    let store = TempStore::new(&Network::from_name_or_passphrase("local"));
    let server =
        Server::start_with(&store, |deps| deps.example_token = Some("a.demo.token".into()));
    let shown = |headers: &[(&str, &str)]| {
        let answer = server.connect().request("GET", "/docs/install", headers);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        String::from_utf8(answer.body).unwrap().contains("a.demo.token")
    };
    assert!(shown(&[]));
    for header in
        [("origin", "http://localhost:5173"), ("x-forwarded-for", "10.0.0.1"), ("via", "1.1 proxy")]
    {
        assert!(!shown(&[header]), "{header:?}");
    }
    let (other, _store) = empty();
    assert!(!page(&other, "/docs/install").contains("export ORRERY_JWT="));
}
