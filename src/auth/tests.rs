use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use ring::signature::Ed25519KeyPair;
use serde_json::{Value, json};

use super::*;

const NOW: u64 = 1_800_000_000;

// An Ed25519 key pair for these tests (RFC 8410, PKCS#8).
const ED_PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEIMm3u8izDURTwdCJscEBwFRiikyChcnCu/Sak8a9DcLW";
const ED_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAzdZStLGmpmK9Ad0MfprMy20g8pnh/P3/08H14SUrdRE=
-----END PUBLIC KEY-----";

/// Signs a token with the private key.
fn signed(header: &Header, claims: &Value) -> String {
    let part = |value: &[u8]| URL_SAFE_NO_PAD.encode(value);
    let header = serde_json::to_vec(header).unwrap();
    let message = format!("{}.{}", part(&header), part(claims.to_string().as_bytes()));
    let key = STANDARD.decode(ED_PRIVATE).unwrap();
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).unwrap();
    format!("{message}.{}", part(key.sign(message.as_bytes()).as_ref()))
}

struct Bench {
    directory: tempfile::TempDir,
    tokens: Tokens,
}

fn testnet() -> Network {
    Network::from_name_or_passphrase("testnet")
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = PublicKey {
            kid: "partner".into(),
            algorithm: PublicKeyAlgorithm::EdDsa,
            pem: ED_PUBLIC.into(),
            sub_prefix: String::new(),
        };
        let tokens = Tokens::open_with_keys(directory.path(), &testnet(), &[key]).unwrap();
        Self { directory, tokens }
    }

    fn secret(&self) -> Vec<u8> {
        secret::load_or_create(self.directory.path()).unwrap().to_vec()
    }

    fn claims(&self) -> Value {
        json!({
            "sub": "ana", "exp": NOW + 1000, "iat": NOW, "iss": "orrery",
            "aud": testnet().id().to_string(), "jti": "one", "plan": "pro",
        })
    }

    fn sign(&self, claims: &Value) -> String {
        let key = EncodingKey::from_secret(&self.secret());
        jsonwebtoken::encode(&Header::default(), claims, &key).unwrap()
    }

    fn error(&self, token: &str) -> TokenError {
        self.tokens.verify_at(token, NOW).unwrap_err()
    }
}

#[test]
fn an_issued_token_verifies_until_it_expires() {
    let bench = Bench::new();
    let request =
        IssueRequest { scopes: vec![Scope::Read], days: 1, ..IssueRequest::for_owner("ana") };
    let issued = bench.tokens.issue_at(&request, NOW).unwrap();
    let verify = |now| bench.tokens.verify_at(&issued.token, now);
    assert_eq!(*verify(NOW).unwrap(), issued.claims);
    assert_eq!(issued.claims.exp, NOW + 86_400);
    assert!(verify(issued.claims.exp + LEEWAY_SECONDS).is_ok());
    let late = verify(issued.claims.exp + LEEWAY_SECONDS + 1);
    assert!(
        matches!(late, Err(TokenError::Refused("the token has expired"))),
        "remembered tokens expire too"
    );
    assert!(verify(NOW - LEEWAY_SECONDS).is_ok());
    assert!(matches!(
        verify(NOW - LEEWAY_SECONDS - 1),
        Err(TokenError::Refused("the token is not valid yet"))
    ));
}

#[test]
fn a_trial_token_has_the_builder_plan_for_fourteen_days() {
    let bench = Bench::new();
    let request = IssueRequest { trial: true, days: 900, ..IssueRequest::for_owner("ana") };
    let claims = bench.tokens.issue_at(&request, NOW).unwrap().claims;
    assert_eq!((claims.plan, claims.exp), (Plan::Builder, NOW + 14 * 86_400));
}

#[test]
fn the_list_shows_issued_and_revoked_tokens() {
    let bench = Bench::new();
    let first = bench.tokens.issue(&IssueRequest::for_owner("ana")).unwrap();
    let second = bench.tokens.issue(&IssueRequest::for_owner("ben")).unwrap();
    // Stands for another process, such as the command line.
    let other = Tokens::open(bench.directory.path(), &testnet()).unwrap();
    assert_eq!(other.revoke(&first.claims.jti).unwrap(), Revocation::Revoked);
    assert_eq!(other.revoke(&first.claims.jti).unwrap(), Revocation::AlreadyRevoked);
    assert_eq!(other.revoke("unheard-of").unwrap(), Revocation::NotIssuedHere);
    let list = bench.tokens.list().unwrap();
    let shown: Vec<_> =
        list.iter().map(|entry| (entry.sub.as_str(), entry.revoked_at.is_some())).collect();
    assert_eq!(shown, [("ana", true), ("ben", false)]);
    assert!(matches!(
        bench.tokens.verify(&first.token),
        Err(TokenError::Refused("the token is revoked"))
    ));
    assert!(bench.tokens.verify(&second.token).is_ok());
}

#[test]
fn a_revocation_takes_effect_at_once() {
    let bench = Bench::new();
    let issued = bench.tokens.issue(&IssueRequest::for_owner("ana")).unwrap();
    assert!(bench.tokens.verify(&issued.token).is_ok());
    Tokens::open(bench.directory.path(), &testnet()).unwrap().revoke(&issued.claims.jti).unwrap();
    assert!(matches!(
        bench.tokens.verify(&issued.token),
        Err(TokenError::Refused("the token is revoked"))
    ));
}

#[test]
fn invalid_issue_requests_are_refused() {
    let bench = Bench::new();
    let issue = |request| bench.tokens.issue(&request).unwrap_err().to_string();
    for name in ["", "a\nb", &"x".repeat(257)] {
        assert!(issue(IssueRequest::for_owner(name)).contains("is not a name: give 1 to 256 "));
    }
    for days in [0, 36_501] {
        let request = IssueRequest { days, ..IssueRequest::for_owner("ana") };
        let sentence = format!("a token cannot be valid for {days} days: give 1 to 36500");
        assert_eq!(issue(request), sentence);
    }
}

#[test]
fn tokens_of_another_issuer_require_its_key_and_algorithm() {
    let bench = Bench::new();
    let mut header = Header::new(Algorithm::EdDSA);
    let signed = |header: &Header| signed(header, &bench.claims());
    assert!(
        matches!(
            bench.error(&signed(&header)),
            TokenError::Refused("the token is not signed with the algorithm of its key")
        ),
        "no key named"
    );
    header.kid = Some("partner".into());
    assert!(bench.tokens.verify_at(&signed(&header), NOW).is_ok());
    for kid in ["", "Partner", "../secrets/token-signing-key", "/dev/null"] {
        header.kid = Some(kid.into());
        assert!(
            matches!(
                bench.error(&signed(&header)),
                TokenError::Refused("the token names a key that this service does not know")
            ),
            "{kid}"
        );
    }
    // The text of the public key as an HMAC secret: the classic algorithm confusion.
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("partner".into());
    for text in [ED_PUBLIC.as_bytes(), ED_PUBLIC.trim().as_bytes()] {
        let key = EncodingKey::from_secret(text);
        let token = jsonwebtoken::encode(&header, &bench.claims(), &key).unwrap();
        assert!(matches!(
            bench.error(&token),
            TokenError::Refused("the token is not signed with the algorithm of its key")
        ));
    }
}

#[test]
fn public_keys_must_be_valid_and_have_distinct_ids() {
    let directory = tempfile::tempdir().unwrap();
    let key = |kid: &str, algorithm, pem: &str| PublicKey {
        kid: kid.into(),
        algorithm,
        pem: pem.into(),
        sub_prefix: String::new(),
    };
    let open = |keys: &[PublicKey]| {
        Tokens::open_with_keys(directory.path(), &testnet(), keys).err().map(|e| e.to_string())
    };
    let good = key("a", PublicKeyAlgorithm::EdDsa, ED_PUBLIC);
    assert_eq!(open(std::slice::from_ref(&good)), None);
    assert!(open(&[good.clone(), good]).unwrap().contains("given twice"));
    for (algorithm, pem) in
        [(PublicKeyAlgorithm::EdDsa, "nonsense"), (PublicKeyAlgorithm::Rs256, ED_PUBLIC)]
    {
        assert!(open(&[key("a", algorithm, pem)]).unwrap().contains("cannot be read"));
    }
}

/// A public key (RFC 5280, section 4.1) with a modulus of so many bits, which is no product of primes.
fn rsa_public(bits: usize) -> String {
    let value = |tag: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    };
    let mut modulus = vec![0xff; bits / 8 + 1];
    modulus[0] = ((1_u16 << (bits % 8)) - 1) as u8;
    let key = value(0x30, &[value(0x02, &modulus), value(0x02, &[1, 0, 1])].concat());
    // The identifier of RSA, with its parameters.
    let algorithm = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let key = [value(0x30, &algorithm), value(0x03, &[&[0], &key[..]].concat())].concat();
    let text = STANDARD.encode(value(0x30, &key));
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", lines.join("\n"))
}

/// Of moduli that ring does not take, the start says so, and not only each token.
#[test]
fn rsa_keys_have_a_size_with_which_tokens_are_verified() {
    let directory = tempfile::tempdir().unwrap();
    let open = |pem: String| {
        let (kid, algorithm) = ("partner".to_owned(), PublicKeyAlgorithm::Rs256);
        let key = PublicKey { kid, algorithm, pem, sub_prefix: String::new() };
        Tokens::open_with_keys(directory.path(), &testnet(), &[key]).err().map(|e| e.to_string())
    };
    for bits in [1024, 2048, 8192] {
        assert_eq!(open(rsa_public(bits)), None, "{bits}");
    }
    for bits in [512, 1016, 8193] {
        let expected = format!(
            "the public key 'partner' cannot be read: its modulus has {bits} bits: give an RSA \
             public key of 1024 to 8192 bits"
        );
        assert_eq!(open(rsa_public(bits)), Some(expected));
    }
    // Made by OpenSSL.
    let short = "-----BEGIN PUBLIC KEY-----
MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBALUpRkFvJr/9aKz8JLpTYHYb4dmZ87zR
tuuc3zmGLC4BnW14eyS6d2G9wBj31g5rSSZou7VUy7f6KBJZohAXq58CAwEAAQ==
-----END PUBLIC KEY-----";
    assert!(open(short.to_owned()).unwrap().contains("has 512 bits"));
}

#[test]
fn another_issuer_is_limited_to_owners_with_its_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let public = |kid: &str, sub_prefix: &str| PublicKey {
        kid: kid.into(),
        algorithm: PublicKeyAlgorithm::EdDsa,
        pem: ED_PUBLIC.into(),
        sub_prefix: sub_prefix.into(),
    };
    let keys = [public("partner", "partner-"), public("any", "")];
    let tokens = Tokens::open_with_keys(directory.path(), &testnet(), &keys).unwrap();
    let verify = |kid: &str, sub: &str| {
        let header = Header { kid: Some(kid.into()), ..Header::new(Algorithm::EdDSA) };
        let claims = json!({
            "sub": sub, "exp": NOW + 1000, "iat": NOW, "iss": "orrery",
            "aud": testnet().id().to_string(), "jti": "one", "plan": "pro",
        });
        let token = signed(&header, &claims);
        // Twice, because the second time the token may be cached.
        let first = tokens.verify_at(&token, NOW).map(|claims| claims.sub.clone());
        let second = tokens.verify_at(&token, NOW).map(|claims| claims.sub.clone());
        assert_eq!(first.is_ok(), second.is_ok());
        first
    };
    assert_eq!(verify("partner", "partner-ana").unwrap(), "partner-ana");
    for sub in ["ana", "", "Partner-ana", " partner-ana", "partner"] {
        assert!(
            matches!(
                verify("partner", sub),
                Err(TokenError::Refused("the token's key may not issue tokens for this owner"))
            ),
            "{sub}"
        );
    }
    assert_eq!(verify("any", "ana").unwrap(), "ana");
    // The prefix does not apply to tokens issued here.
    let issued = tokens.issue_at(&IssueRequest::for_owner("ana"), NOW).unwrap();
    assert!(tokens.verify_at(&issued.token, NOW).is_ok());
}

#[test]
fn a_missing_token_list_is_refused() {
    let bench = Bench::new();
    let issued = bench.tokens.issue(&IssueRequest::for_owner("ana")).unwrap();
    bench.tokens.revoke(&issued.claims.jti).unwrap();
    let directory = bench.directory.path();
    let (list, key) = (directory.join("tokens.jsonl"), directory.join("token-signing-key"));
    let lines = std::fs::read(&list).unwrap();
    std::fs::remove_file(&list).unwrap();

    let open = || Tokens::open(directory, &testnet());
    let refused = open().err().unwrap().to_string();
    for part in ["tokens.jsonl is missing", "backup", "create it empty", "token-signing-key"] {
        assert!(refused.contains(part) && !refused.contains('\n'), "{refused}");
    }
    assert!(!list.exists(), "a start that is refused makes none");
    assert_eq!(problems(directory).unwrap(), [refused]);
    assert!(
        bench.tokens.revoke("another").is_err(),
        "a process that has the list open fails as well"
    );
    assert!(!list.exists());

    std::fs::write(&list, &lines).unwrap();
    assert!(matches!(
        open().unwrap().verify(&issued.token),
        Err(TokenError::Refused("the token is revoked"))
    ));
    // The remedies that the error message names.
    std::fs::write(&list, "").unwrap();
    assert!(open().unwrap().verify(&issued.token).is_ok());
    std::fs::remove_file(&list).unwrap();
    std::fs::remove_file(&key).unwrap();
    assert!(matches!(
        open().unwrap().verify(&issued.token),
        Err(TokenError::Refused("the token's signature is wrong"))
    ));
    assert_eq!(problems(directory).unwrap(), [""; 0]);
}

/// A process that was killed on its first start, and several processes that start at once.
#[test]
fn a_first_start_may_be_interrupted_or_concurrent() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tokens.jsonl"), "").unwrap();
    assert!(Tokens::open(directory.path(), &testnet()).is_ok());
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| Tokens::open(directory.path(), &testnet()).map(drop).unwrap());
            }
        });
    }
}

/// Many kinds of invalid tokens. None is accepted, and none causes a panic.
#[test]
fn invalid_tokens_are_refused() {
    let bench = Bench::new();
    let good = bench.sign(&bench.claims());
    assert!(bench.tokens.verify_at(&good, NOW).is_ok());
    let parts: Vec<&str> = good.split('.').collect();
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let with_header = |header: Value| format!("{}.{}.{}", encode(&header), parts[1], parts[2]);

    let mut wrong: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, token: String| wrong.push((name.to_owned(), token));
    add("empty", String::new());
    add("dots", "..".into());
    add("one part", parts[0].into());
    add("two parts", format!("{}.{}", parts[0], parts[1]));
    add("four parts", format!("{good}.x"));
    add("no signature", format!("{}.{}.", parts[0], parts[1]));
    add("padded", format!("{good}="));
    add("blank", format!(" {good}"));
    add("other secret", {
        let key = EncodingKey::from_secret(&[7; 32]);
        jsonwebtoken::encode(&Header::default(), &bench.claims(), &key).unwrap()
    });
    add("swapped claims", format!("{}.{}.{}", parts[0], encode(&json!({"sub": "x"})), parts[2]));
    add("too long", format!("{good}{}", "A".repeat(LONGEST_TOKEN)));
    for alg in ["none", "None", "NONE", "", "HS512", "RS256", "EdDSA", "hs256"] {
        add(alg, with_header(json!({"alg": alg, "typ": "JWT"})));
        let unsigned = json!({"alg": alg, "typ": "JWT"});
        add(alg, format!("{}.{}.", encode(&unsigned), parts[1]));
    }
    add("no alg", with_header(json!({"typ": "JWT"})));
    add("header list", with_header(json!([])));
    add("header garbage", format!("%%%.{}.{}", parts[1], parts[2]));
    add("critical extension", {
        let header = Header { crit: Some(vec!["b64".into()]), ..Header::default() };
        let key = EncodingKey::from_secret(&bench.secret());
        jsonwebtoken::encode(&header, &bench.claims(), &key).unwrap()
    });
    for claim in ["sub", "exp", "iat", "iss", "aud", "jti", "plan"] {
        let mut claims = bench.claims();
        claims.as_object_mut().unwrap().remove(claim);
        add(claim, bench.sign(&claims));
        for value in [Value::Null, json!([]), json!({}), json!(-1), json!(true), json!("")] {
            let mut claims = bench.claims();
            claims[claim] = value;
            add(claim, bench.sign(&claims));
        }
    }
    for (claim, value) in [
        ("exp", json!(NOW - LEEWAY_SECONDS - 1)),
        ("exp", json!(0)),
        ("exp", json!((NOW + 1000).to_string())),
        ("iat", json!(NOW + LEEWAY_SECONDS + 1)),
        ("nbf", json!(NOW + LEEWAY_SECONDS + 1)),
        ("nbf", Value::Null),
        ("iss", json!("somebody")),
        ("iss", json!(["orrery"])),
        ("aud", json!(Network::from_name_or_passphrase("mainnet").id().to_string())),
        ("aud", json!("testnet")),
        ("plan", json!("root")),
        ("scopes", Value::Null),
        ("scopes", json!("read")),
        ("scopes", json!(["everything"])),
    ] {
        let mut claims = bench.claims();
        claims[claim] = value;
        add(claim, bench.sign(&claims));
    }
    let twice = bench.claims().to_string().replacen('{', "{\"plan\":\"dev\",", 1);
    let message = format!("{}.{}", parts[0], URL_SAFE_NO_PAD.encode(twice));
    let key = EncodingKey::from_secret(&bench.secret());
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
    add("claim given twice", format!("{message}.{signature}"));

    for (name, token) in &wrong {
        assert!(bench.tokens.verify_at(token, NOW).is_err(), "{name}: {token}");
    }
    assert!(wrong.len() >= 80, "{}", wrong.len());
}

#[test]
fn every_altered_character_is_detected() {
    let bench = Bench::new();
    let good = bench.sign(&bench.claims());
    for index in 0..good.len() {
        let mut altered = good.clone().into_bytes();
        altered[index] = if altered[index] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).unwrap();
        assert!(bench.tokens.verify_at(&altered, NOW).is_err(), "{index}");
    }
}

/// A reader takes over what its writer has revoked, however much that is, and hands it on before it has a key.
#[test]
fn revocations_are_taken_over_together() {
    let bench = Bench::new();
    let portable: BTreeMap<String, u64> =
        (0..20_000).map(|number| (format!("token-{number}"), NOW - number)).collect();
    let other = tempfile::tempdir().unwrap();
    let directory = other.path().join("secrets");
    assert!(revocations(&directory).unwrap().is_empty());
    take_over(&directory, &BTreeMap::new()).unwrap();
    assert!(!directory.exists(), "nothing is made for nothing");
    take_over(&directory, &portable).unwrap();
    take_over(&directory, &portable).unwrap();
    assert_eq!(revocations(&directory).unwrap(), portable);
    let lines = std::fs::read_to_string(directory.join("tokens.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), portable.len(), "each once");
    assert!(!secret::exists(&directory).unwrap());
    let tokens = Tokens::open(&directory, &testnet()).unwrap();
    assert_eq!(tokens.revoke("token-7").unwrap(), Revocation::AlreadyRevoked);
    let hostile = BTreeMap::from([("\n".to_owned(), 1)]);
    assert!(take_over(&directory, &hostile).is_err());
    // A key without a list is an error, and not a list without entries.
    std::fs::remove_file(directory.join("tokens.jsonl")).unwrap();
    assert!(revocations(&directory).is_err());
    assert!(revocations(bench.directory.path()).unwrap().is_empty());
}
