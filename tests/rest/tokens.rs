//! Authorisation: tokens, plans, scopes, revocation and rate limits.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery::auth::{IssueRequest, Plan, Scope, Tokens};
use orrery::domain::Network;
use orrery::settings::Proxies;
use serde_json::{Value, json};

use orrery_testkit::http::Answer;
use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore, now};

/// Has an invalid parameter: tokens are checked before parameters.
const TARGET: &str = "/rest/events/by-ledger?limit=x";

fn server() -> (Server, TempStore) {
    let store = TempStore::new(&pubnet::network());
    (Server::start(&store), store)
}

fn assert_unauthorized(answer: &Answer, why: &str) {
    assert_eq!(answer.status, 401, "{why}: {answer:?}");
    answer.error(401, "unauthorized");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{why}");
}

/// Builds a token with any signature, or none.
fn made_up(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (header, claims) = (header.to_string(), claims.to_string());
    format!("{}.{}.{}", part(header.as_bytes()), part(claims.as_bytes()), part(signature))
}

fn claims(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = json!({
        "sub": "ana", "exp": now() + 1000, "iat": now(), "iss": "orrery",
        "aud": pubnet::network().id().to_string(), "jti": "x", "plan": "pro",
    });
    change(&mut claims);
    claims
}

#[test]
fn invalid_tokens_return_401_before_other_checks() {
    let (server, store) = server();
    let good = server.token.clone();
    let [header, payload, signature]: [&str; 3] =
        good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let elsewhere = TempStore::new(&pubnet::network());
    let secrets = |store: &TempStore| store.directory.path().join("secrets");
    let issue =
        |tokens: &Tokens, request: &IssueRequest, at| tokens.issue_at(request, at).unwrap().token;
    let ana = IssueRequest::for_owner("ana");
    let other_key = Tokens::open(&secrets(&elsewhere), &pubnet::network()).unwrap();
    let testnet = Network::from_name_or_passphrase("testnet");
    let other_network = Tokens::open(&secrets(&store), &testnet).unwrap();
    let day = IssueRequest { days: 1, ..ana.clone() };
    let revoked = server.tokens.issue(&ana).unwrap();
    server.tokens.revoke(&revoked.claims.jti).unwrap();

    let mut wrong: Vec<String> = vec![
        String::new(),
        ".".into(),
        "..".into(),
        "...".into(),
        "x".into(),
        "null".into(),
        good[1..].into(),
        good[..good.len() - 1].into(),
        format!("{good}A"),
        format!("{good}="),
        format!("{good}.{signature}"),
        format!("{header}.{payload}"),
        format!("{header}.{payload}."),
        format!("{payload}.{header}.{signature}"),
        format!("{header}..{signature}"),
        format!(".{payload}.{signature}"),
        format!("{good} {good}"),
        format!("{good},{good}"),
        format!("{good}{}", "A".repeat(8 * 1024)),
        "A".repeat(8 * 1024 + 1),
        "A".repeat(30_000),
        revoked.token,
        issue(&other_key, &ana, now()),
        issue(&other_network, &ana, now()),
        issue(&server.tokens, &day, now() - 86_400 - 61),
        issue(&server.tokens, &ana, now() + 300),
    ];
    for alg in ["none", "None", "nOnE", "HS384", "HS512", "RS256", "ES256", "EdDSA", ""] {
        for signature in [&b""[..], b"x", &[0; 32]] {
            wrong.push(made_up(&json!({"alg": alg, "typ": "JWT"}), &claims(|_| ()), signature));
        }
    }
    for header in
        [json!({}), json!([]), json!(null), json!({"alg": "HS256", "kid": "../../etc/passwd"})]
    {
        wrong.push(made_up(&header, &claims(|_| ()), &[0; 32]));
    }
    for claim in ["sub", "exp", "iat", "iss", "aud", "jti", "plan"] {
        let without = claims(|claims| drop(claims.as_object_mut().unwrap().remove(claim)));
        wrong.push(made_up(&json!({"alg": "HS256"}), &without, &[0; 32]));
    }
    assert!(wrong.len() >= 60, "{}", wrong.len());
    let mut connection = server.connect();
    for token in wrong {
        let authorization = format!("Bearer {token}");
        let answer = connection.request("GET", TARGET, &[("authorization", &authorization)]);
        assert_unauthorized(&answer, &token);
        assert!(!String::from_utf8_lossy(&answer.body).contains(signature), "tokens are not shown");
    }
    server.get(TARGET).error(400, "bad_parameter");
}

#[test]
fn the_header_must_be_one_bearer_token() {
    let (server, _store) = server();
    let token = &server.token;
    let bearer = format!("Bearer {token}");
    let (basic, bare, glued) = (format!("Basic {token}"), token.clone(), format!("Bearer{token}"));
    let mut connection = server.connect();
    for headers in [
        vec![],
        vec![("authorization", "")],
        vec![("authorization", "Bearer")],
        vec![("authorization", "Bearer ")],
        vec![("authorization", &basic)],
        vec![("authorization", &bare)],
        vec![("authorization", &glued)],
        vec![("authorization", &bearer), ("authorization", &bearer)],
        vec![("x-authorization", &bearer)],
        vec![("authorization", "Bearer \u{e9}")],
    ] {
        assert_unauthorized(&connection.request("GET", TARGET, &headers), "header");
    }
    for good in [bearer.clone(), bearer.replace("Bearer", "bearer"), bearer.replace(' ', "  ")] {
        let answer =
            connection.request("GET", "/rest/events/by-ledger", &[("authorization", &good)]);
        assert_eq!(answer.status, 200);
    }
    let answer =
        server.get_public(&format!("/rest/events/by-ledger?token={token}&access_token={token}"));
    assert_unauthorized(&answer, "a token in the query is none");
}

#[test]
fn every_query_route_needs_a_token() {
    let (server, _store) = server();
    for path in [
        "events/by-ledger",
        "events/by-contract/x",
        "events/by-contracts",
        "events/by-ledger/contracts",
        "events/by-tx/x",
        "txs/by-ledger",
        "txs/by-contract/x",
        "txs/by-contracts",
        "txs/by-ledger/contracts",
        "txs/by-hash/x",
    ] {
        assert_unauthorized(&server.get_public(&format!("/rest/{path}")), path);
        let head = server.connect().request("HEAD", &format!("/rest/{path}/"), &[]);
        assert_eq!((head.status, head.body.len()), (401, 0));
    }
}

#[test]
fn plans_and_scopes_decide_access() {
    let (mainnet, _store) = server();
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    let testnet = Server::start(&store);
    for (plan, scopes, on_mainnet, on_testnet) in [
        (Plan::Dev, vec![], 403, 200),
        (Plan::Builder, vec![], 200, 200),
        (Plan::Pro, vec![], 200, 200),
        (Plan::Protocol, vec![], 200, 200),
        (Plan::Pro, vec![Scope::Read], 200, 200),
        (Plan::Pro, vec![Scope::Deploy, Scope::Read], 200, 200),
        (Plan::Pro, vec![Scope::Deploy, Scope::Webhooks, Scope::Admin], 403, 403),
        (Plan::Dev, vec![Scope::Read], 403, 200),
    ] {
        for (server, expected) in [(&mainnet, on_mainnet), (&testnet, on_testnet)] {
            let request =
                IssueRequest { plan, scopes: scopes.clone(), ..IssueRequest::for_owner("a") };
            let token = server.tokens.issue(&request).unwrap().token;
            let answer = server.get_with("/rest/txs/by-ledger", &token);
            assert_eq!(answer.status, expected, "{plan} {scopes:?}");
            if expected == 403 {
                answer.error(403, "forbidden");
            }
        }
    }
}

#[test]
fn a_revocation_takes_effect_without_a_restart() {
    let (server, store) = server();
    let issued = server.tokens.issue(&IssueRequest::for_owner("ana")).unwrap();
    let authorization = format!("Bearer {}", issued.token);
    let headers = [("authorization", authorization.as_str())];
    let mut connection = server.connect();
    assert_eq!(connection.request("GET", "/rest/events/by-ledger", &headers).status, 200);
    let beside = Tokens::open(&store.directory.path().join("secrets"), &pubnet::network()).unwrap();
    beside.revoke(&issued.claims.jti).unwrap();
    let answer = connection.request("GET", "/rest/events/by-ledger", &headers);
    assert_unauthorized(&answer, "revoked");
}

#[test]
fn an_unreadable_revocation_list_refuses_all_tokens() {
    let (server, store) = server();
    std::fs::remove_file(store.directory.path().join("secrets/tokens.jsonl")).unwrap();
    // The server may use the list that it read last for a moment.
    let answer = std::iter::repeat_with(|| server.get("/rest/events/by-ledger"))
        .find(|answer| answer.status != 200)
        .unwrap();
    answer.error(503, "not_ready");
    assert!(answer.header("retry-after").is_some());
}

fn limited(per_second: u32, burst: u32) -> (Server, TempStore) {
    let store = TempStore::new(&pubnet::network());
    (
        Server::start_with(&store, |deps| {
            (deps.settings.limits.requests_per_second, deps.settings.limits.burst) =
                (per_second, burst);
        }),
        store,
    )
}

fn assert_limited(answer: &Answer) {
    answer.error(429, "too_many_requests");
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&seconds));
}

#[test]
fn each_owner_has_its_own_rate_limit() {
    let (server, _store) = limited(1, 5);
    for _ in 0..5 {
        assert_eq!(server.get("/rest/events/by-ledger").status, 200);
    }
    assert_limited(&server.get("/rest/events/by-ledger"));
    let token = |owner| server.tokens.issue(&IssueRequest::for_owner(owner)).unwrap().token;
    assert_limited(&server.get_with("/rest/events/by-ledger", &token("tests")));
    assert_eq!(server.get_with("/rest/events/by-ledger", &token("other")).status, 200);
    assert_eq!(server.get_public("/rest/openapi.json").status, 200, "the address is not counted");
}

#[test]
fn invalid_tokens_and_public_routes_but_not_probes_count_per_address() {
    let (server, _store) = limited(1, 4);
    for _ in 0..2 {
        assert_unauthorized(&server.get_public("/rest/events/by-ledger"), "no token");
        assert_eq!(server.get_public("/rest/openapi.json").status, 200);
    }
    assert_limited(&server.get_public("/rest/events/by-ledger"));
    assert_limited(&server.get_public("/rest/openapi.json"));
    assert_eq!(server.get("/rest/events/by-ledger").status, 200, "a token is not the address");
    for _ in 0..20 {
        for path in ["/rest/health", "/rest/health/live", "/rest/health/ready"] {
            assert_eq!(server.get_public(path).status, 200);
        }
    }
}

#[test]
fn rate_limits_use_the_address_forwarded_by_a_trusted_proxy() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        (deps.settings.limits.requests_per_second, deps.settings.limits.burst) = (1, 1);
        deps.settings.http.trusted_proxies = vec![Proxies("127.0.0.1/32".parse().unwrap())];
    });
    let ask = |forwarded: &str| {
        let headers = [("x-forwarded-for", forwarded)];
        server.connect().request("GET", "/rest/openapi.json", &headers).status
    };
    assert_eq!([ask("10.0.0.1"), ask("10.0.0.1"), ask("10.0.0.2")], [200, 429, 200]);
    assert_eq!(ask("6.6.6.6, 10.0.0.1"), 429, "addresses claimed by the client are ignored");
    assert_eq!(ask("10.0.0.3, 127.0.0.1"), 200);
    assert_eq!([ask("nonsense"), ask("")], [200, 429], "then the proxy's own address counts");
}
