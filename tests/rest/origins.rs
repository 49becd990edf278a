//! Which web pages may read what, and by which names a service on its own machine is asked.

use std::sync::Arc;

use futures_util::FutureExt;
use orrery::api::{Access, ApiSettings};
use orrery::domain::{Network, NotFunded};
use orrery::settings::{CorsOrigin, Proxies};
use orrery_testkit::http::Answer;
use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";

/// What the network's JavaScript client sends besides the headers that every page may.
const OF_CLIENT: &str = "x-client-name,x-client-version";

fn private() -> Network {
    Network::from_name_or_passphrase("local")
}

/// A service of a network with a friendbot.
fn server(network: &Network, origins: &[&str], proxies: &[&str]) -> (Server, TempStore) {
    let store = TempStore::new(network);
    let server = Server::start_with(&store, |deps| {
        let refused = |_| async { Err(NotFunded::Refused("there are no coins")) }.boxed();
        deps.friendbot = Some(Arc::new(refused));
        let origin = |&origin: &&str| CorsOrigin::try_from(origin.to_owned()).unwrap();
        deps.settings.http.cors_origins = origins.iter().map(origin).collect();
        let subnet = |it: &&str| Proxies(it.parse().unwrap());
        deps.settings.http.trusted_proxies = proxies.iter().map(subnet).collect();
    });
    (server, store)
}

fn ask(server: &Server, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += &format!("host: {}\r\n", server.address);
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut connection = server.connect();
    connection.send(format!("{head}\r\n").as_bytes()).unwrap();
    connection.answer(method == "HEAD")
}

/// Paths of all routes that need no token, with example values.
fn public_paths() -> Vec<String> {
    let settings = ApiSettings::default();
    let public = orrery::api::routes(&settings)
        .filter(|route| matches!(route.access(), Access::Public | Access::Probe));
    let segment = |segment: &str| match segment {
        "{contractId}" | "{address}" => CONTRACT.to_owned(),
        "{credentialId}" => "ab".repeat(32),
        "{*rest}" => "nothing".to_owned(),
        _ if segment.starts_with('{') => "1".to_owned(),
        _ => segment.to_owned(),
    };
    let mut paths: Vec<_> = public
        .map(|route| route.template.split('/').map(segment).collect::<Vec<_>>().join("/"))
        .collect();
    paths.dedup();
    assert!(paths.len() > 15 && paths.contains(&"/friendbot".to_owned()), "{paths:?}");
    paths
}

/// As on `/rpc`: clients send headers of their own to all of them.
#[test]
fn preflights_of_public_routes_permit_the_headers_that_clients_send() {
    for (network, page) in
        [(pubnet::network(), "https://app.example"), (private(), "http://localhost:5173")]
    {
        let (server, _store) = server(&network, &[], &[]);
        for path in public_paths() {
            let preflight = [
                ("origin", page),
                ("access-control-request-method", "GET"),
                ("access-control-request-headers", OF_CLIENT),
            ];
            let answer = ask(&server, "OPTIONS", &path, &preflight);
            assert_eq!(answer.status, 204, "{path}");
            assert!(answer.header("access-control-allow-origin").is_some(), "{path}");
            let headers = answer.header("access-control-allow-headers").unwrap();
            assert!(headers == OF_CLIENT || headers == "*", "{path}: {headers}");
        }
    }
}

#[test]
fn pages_of_other_origins_read_a_private_network_only_where_the_operator_says_so() {
    let (near, far) = ("http://localhost:5173", "https://evil.example");
    let (closed, _one) = server(&private(), &["https://wallet.example"], &[]);
    let (open, _two) = server(&private(), &["*"], &[]);
    let (public, _three) = server(&pubnet::network(), &[], &[]);
    for path in public_paths() {
        let allowed = |server: &Server, origin: &str| {
            let answer = ask(server, "GET", &path, &[("origin", origin)]);
            answer.header("access-control-allow-origin").map(str::to_owned)
        };
        for origin in [near, "http://127.0.0.1:8000", "http://[::1]:3000", "https://wallet.example"]
        {
            assert_eq!(allowed(&closed, origin).as_deref(), Some(origin), "{path}");
        }
        for origin in [far, "null", "http://localhost.evil.example", "http://192.0.2.1"] {
            assert_eq!(allowed(&closed, origin), None, "{path} {origin}");
        }
        for server in [&open, &public] {
            assert_eq!(allowed(server, far).as_deref(), Some("*"), "{path}");
        }
    }
    let answer = ask(&closed, "GET", "/rest/health", &[]);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "no page asks");
    // An answer that depends on the origin must not be kept for another one.
    let answer = ask(&closed, "GET", "/rest/health", &[("origin", far)]);
    assert!(answer.headers.iter().any(|it| *it == ("vary".to_owned(), "Origin".to_owned())));
    let preflight = [("origin", far), ("access-control-request-method", "POST")];
    let answer = ask(&closed, "OPTIONS", "/rpc", &preflight);
    assert_eq!(answer.header("access-control-allow-methods"), None);
}

/// A browser sends some requests before it knows whether the page may read the response.
#[test]
fn pages_of_other_origins_cannot_make_the_friendbot_pay() {
    let (server, _store) = server(&private(), &[], &[]);
    let target = format!("/friendbot?addr={CONTRACT}");
    let own = format!("http://{}", server.address);
    for headers in [
        &[][..],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "same-origin"), ("origin", own.as_str())],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:5173")],
    ] {
        for method in ["GET", "POST"] {
            let answer = ask(&server, method, &target, headers);
            assert_eq!(answer.json()["detail"], "there are no coins", "{method} {headers:?}");
        }
    }
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
    ] {
        for method in ["GET", "POST"] {
            let sentence = ask(&server, method, &target, headers).error(403, "forbidden");
            assert!(sentence.contains("http.cors_origins"), "{sentence}");
        }
    }
}

/// A page can make a name of its own resolve to the machine of its reader.
#[test]
fn a_service_on_its_own_machine_is_asked_by_the_names_of_that_machine() {
    const HOSTS: [&str; 4] = ["127.0.0.1:8484", "LOCALHOST", "app.localhost:1", "[::1]:8484"];
    let forwarded = ("x-forwarded-for", "192.0.2.1");
    for network in [private(), pubnet::network()] {
        let (closed, _one) = server(&network, &["https://orrery.example:8443"], &[]);
        let (proxied, _two) = server(&network, &[], &["127.0.0.1/32"]);
        let (open, _three) = server(&network, &["*"], &[]);
        for path in public_paths().iter().map(String::as_str).chain(["/rest/events/by-ledger"]) {
            let status = |server: &Server, headers: &[(&str, &str)]| {
                ask(server, "GET", path, headers).status
            };
            for host in HOSTS.into_iter().chain(["orrery.example", "ORRERY.example:1"]) {
                assert_ne!(status(&closed, &[("host", host)]), 421, "{path} {host}");
            }
            for host in ["evil.example", "127.0.0.1.nip.io:8484", "localhost.evil.example", ""] {
                assert_eq!(status(&closed, &[("host", host)]), 421, "{path} {host}");
            }
            let far = ("host", "evil.example");
            assert_ne!(status(&open, &[far]), 421, "{path}");
            assert_ne!(status(&proxied, &[far, forwarded]), 421, "{path}");
            assert_eq!(status(&proxied, &[far]), 421, "{path}");
            // On a private network any page could say that it is a proxy.
            let unnamed_proxy = status(&closed, &[far, forwarded]);
            assert_eq!(unnamed_proxy != 421, network.is_public(), "{path}");
        }
        let answer = ask(&closed, "GET", "/rest/health", &[("host", "evil.example:8484")]);
        let sentence = answer.error(421, "unknown_host");
        assert!(sentence.contains("'evil.example'") && sentence.contains("http.trusted_proxies"));
    }
}
