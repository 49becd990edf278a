//! Values of `Authorization: Bearer`: only the issued tokens are accepted, and no error repeats the
//! token.

use std::sync::LazyLock;

use orrery::auth::{IssueRequest, Issued, PublicKey, PublicKeyAlgorithm, Scope, Tokens};
use orrery::domain::Network;
use tempfile::TempDir;

// A key made for these tests: Ed25519, SubjectPublicKeyInfo (RFC 8410).
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAzdZStLGmpmK9Ad0MfprMy20g8pnh/P3/08H14SUrdRE=
-----END PUBLIC KEY-----";

struct Bench {
    tokens: Tokens,
    issued: Vec<Issued>,
    _directory: TempDir,
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let key = PublicKey {
        kid: "partner".into(),
        algorithm: PublicKeyAlgorithm::EdDsa,
        pem: PUBLIC.into(),
        sub_prefix: "partner-".into(),
    };
    let network = Network::from_name_or_passphrase("testnet");
    let tokens = Tokens::open_with_keys(directory.path(), &network, &[key]).unwrap();
    let scoped = IssueRequest { scopes: vec![Scope::Read], ..IssueRequest::for_owner("ana") };
    let issued = [IssueRequest::for_owner("ana"), scoped].map(|one| tokens.issue(&one).unwrap());
    Bench { tokens, issued: issued.into(), _directory: directory }
});

pub fn seeds() -> Vec<Vec<u8>> {
    BENCH.issued.iter().map(|issued| issued.token.clone().into_bytes()).collect()
}

pub fn check(bytes: &[u8]) {
    // The router, too, takes only text from the header.
    let Ok(token) = std::str::from_utf8(bytes) else { return };
    match BENCH.tokens.verify(token) {
        Ok(claims) => {
            let issued = BENCH.issued.iter().find(|issued| issued.token == token);
            assert_eq!(issued.map(|issued| &issued.claims), Some(&*claims), "{token}");
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n') && text.len() < 400, "{text}");
            let signature = token.rsplit('.').next().unwrap_or_default();
            assert!(signature.len() < 20 || !text.contains(signature), "{text}");
        }
    }
}
