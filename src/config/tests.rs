use std::path::Path;

use super::load::default_values;
use super::*;
use crate::domain::{LedgerSeq, StartPoint};
use crate::settings::section::Describe;
use crate::settings::{SourceAddress, SourceKind};

pub(super) fn load_text(text: &str) -> Result<Settings, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orrery.toml");
    std::fs::write(&path, text).unwrap();
    Settings::load(Layers { file: Some(path), ..Layers::default() })
}

fn load_environment(variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let environment = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Settings::load(Layers { environment, ..Layers::default() })
}

#[test]
fn the_reference_file_matches_the_defaults() {
    let text = include_str!("../../schema/config.reference.toml");
    let settings = load_text(text).unwrap();
    assert_eq!(settings.config, Config::default());
    for key in default_values().keys() {
        assert!(matches!(settings.origin(key), Origin::File(..)), "{key} is not in the file");
        assert!(Config::describe(Some(key)).is_some(), "{key} has no description");
    }
}

#[test]
fn a_ledger_to_start_from_needs_no_quotes() {
    for written in ["62000000", "'62000000'"] {
        let settings = load_text(&format!("[source]\nstart = {written}\n")).unwrap();
        let start = settings.config.source.start.0;
        assert_eq!(start, Some(StartPoint::At(LedgerSeq(62_000_000))), "{written}");
    }
}

#[test]
fn later_layers_override_earlier_ones_and_are_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("o.toml");
    std::fs::write(&file, "network = 'local'\n[limits]\nburst = 1\nrequests_per_second = 2\n")
        .unwrap();
    let settings = Settings::load(Layers {
        file: Some(file.clone()),
        environment: vec![
            ("ORRERY_LIMITS_BURST".into(), "3".into()),
            ("ORRERY_NETWORK".into(), "testnet".into()),
            ("ORRERY_TEST_DATA".into(), "/somewhere".into()),
            ("PATH".into(), "/bin".into()),
        ],
        flags: vec![("network", "--network", "mainnet".into())],
    })
    .unwrap();
    assert_eq!(settings.config.network().unwrap().name(), "mainnet");
    assert_eq!(
        settings.config.limits,
        Limits { requests_per_second: 2, burst: 3, ..Limits::default() }
    );
    assert_eq!(settings.origin("network"), Origin::Flag("--network"));
    assert_eq!(settings.origin("limits.requests_per_second"), Origin::File(file, 4));
    assert_eq!(
        settings.origin("limits.burst"),
        Origin::Environment("ORRERY_LIMITS_BURST".to_owned())
    );
    assert_eq!(settings.origin("log.level"), Origin::Default);

    let printed = settings.to_string();
    assert!(printed.contains("\nburst = 3 "), "{printed}");
    assert!(printed.contains("# environment variable ORRERY_LIMITS_BURST"), "{printed}");
    assert_eq!(load_text(&printed).unwrap().config, settings.config);
}

#[test]
fn every_type_is_parsed_from_the_environment() {
    let contract = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
    let config = load_environment(&[
        ("ORRERY_INDEX_CLASSIC_EVENTS", "true"),
        ("ORRERY_INDEX_CONTRACTS", contract),
        ("ORRERY_HTTP_LISTEN", "[::1]:80"),
        ("ORRERY_HTTP_CORS_ORIGINS", "https://a.example, http://localhost:3000"),
        ("ORRERY_AUTH_PUBLIC_KEYS", "a:EdDSA:/etc/a.pem,b:RS256:b.pem:partner-"),
        ("ORRERY_SOURCE_KIND", "lake"),
        ("ORRERY_SOURCE_PATH", "/srv/lake"),
        ("ORRERY_SOURCE_GAPS", "s3://bucket/x, core, rpc:https://a.example"),
        ("ORRERY_SOURCE_START", "62000000"),
        ("ORRERY_STATUS_GENERIC_URL", "https://hook.example/x"),
        (
            "ORRERY_TRUST_VALIDATORS",
            "{ 'a.example' = ['GCGB2S2KGYARPVIA37HYZXVRM2YZUEXA6S33ZU5BUDC6THSB62LZSTYH'] }",
        ),
        ("ORRERY_DATA_DIR", "/var/lib/orrery"),
    ])
    .unwrap()
    .config;
    assert!(config.index.classic_events);
    assert_eq!(config.index.contracts[0].to_string(), contract);
    assert_eq!(config.http.listen.port(), 80);
    assert_eq!(config.http.cors_origins[1].as_str(), "http://localhost:3000");
    assert_eq!(config.auth.public_keys[1].algorithm, crate::auth::PublicKeyAlgorithm::Rs256);
    let shown = config.auth.public_keys.iter().cloned().map(String::from);
    assert_eq!(shown.collect::<Vec<_>>(), ["a:EdDSA:/etc/a.pem", "b:RS256:b.pem:partner-"]);
    assert_eq!(config.auth.public_keys[1].sub_prefix, "partner-");
    assert_eq!(config.source.kind, SourceKind::Lake);
    assert_eq!(config.source.gaps[0], SourceAddress::At(SourceKind::Lake, "s3://bucket/x".into()));
    assert_eq!(config.source.gaps[1], SourceAddress::Kind(SourceKind::Core));
    assert_eq!(config.source.start.0, Some(StartPoint::At(LedgerSeq(62_000_000))));
    assert_eq!(config.status.generic_url.as_option(), Some("https://hook.example/x"));
    assert_eq!(config.trust.validators.0.keys().collect::<Vec<_>>(), ["a.example"]);
    assert_eq!(config.data_dir, Path::new("/var/lib/orrery"));
}

#[test]
fn secrets_are_used_and_never_displayed() {
    let text = "[source]\nkind = 'rpc'\nrpc_url = 'https://a.example/secret1'\n\
                rpc_headers = ['Authorization: secret2']\ns3_access_key_id = 'id'\n\
                s3_secret_access_key = 'secret3'\n[status]\ntelegram_bot = '1:secret4:-5'\n\
                discord_webhook = 'https://d.example/secret5'\n";
    let settings = load_text(text).unwrap();
    assert_eq!(settings.config.source.rpc_headers[0].value.reveal(), "secret2");
    assert_eq!(settings.config.status.telegram_bot.as_option(), Some("1:secret4:-5"));
    for shown in [settings.to_string(), format!("{:?}", settings.config)] {
        assert!(!shown.contains("secret1") && !shown.contains("secret5"), "{shown}");
        assert!(!["secret2", "secret3", "secret4"].iter().any(|s| shown.contains(s)), "{shown}");
    }
    assert!(settings.to_string().contains("rpc_url = \"(hidden)\""));
    assert!(
        settings.to_string().contains("slack_webhook = \"\""),
        "unset secrets are shown as empty"
    );
}

#[test]
fn core_has_its_own_storage_directory() {
    let config = load_text("data_dir = '/d'\n[source]\nkind = 'core'").unwrap().config;
    assert_eq!(config.core_storage(), Path::new("/d/core"));
    let config = load_environment(&[("ORRERY_CORE_STORAGE", "/srv/core")]).unwrap().config;
    assert_eq!(config.core_storage(), Path::new("/srv/core"));
    assert_eq!(config.core.binary, Path::new("stellar-core"));
}

#[test]
fn unknown_keys_are_errors_with_a_suggestion() {
    for (text, sentence) in [
        (
            "[index]\nclasic_events = true",
            "line 2: there is no setting index.clasic_events (did you mean index.classic_events?)",
        ),
        ("[http]\nburst = 1", "there is no setting http.burst (did you mean limits.burst?)"),
        ("netwrok = 'testnet'", "line 1: there is no setting netwrok (did you mean network?)"),
        ("[http]\nport = 1", "there is no setting http.port (did you mean http.listen?)"),
        ("port = 1", "there is no setting port (did you mean http.listen?)"),
        ("[server]\nhost = 'a'", "there is no setting server.host (did you mean http.listen?)"),
        ("[quux]\nxyzzy = 1", "there is no setting quux.xyzzy"),
        ("http = 1", "there is no setting http"),
    ] {
        let error = load_text(text).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
}

/// The variables that Kubernetes sets for a service called `orrery`, and a misspelt setting.
#[test]
fn unknown_variables_cause_a_warning_with_a_suggestion() {
    let settings = load_environment(&[
        ("ORRERY_PORT", "tcp://10.0.0.1:8484"),
        ("ORRERY_PORT_8484_TCP_ADDR", "10.0.0.1"),
        ("ORRERY_SERVICE_HOST", "10.0.0.1"),
        ("ORRERY_LOG_LEVL", "debug"),
        ("ORRERY_LIMITS_BURST", "7"),
    ])
    .unwrap();
    assert_eq!(settings.config.limits.burst, 7, "settings beside them hold");
    assert_eq!(settings.config.log, Config::default().log);
    assert_eq!(settings.warnings.len(), 4, "{:?}", settings.warnings);
    assert!(settings.warnings.iter().any(|warning| warning
        == "the environment variable ORRERY_LOG_LEVL is not a setting and is ignored (did you mean \
            ORRERY_LOG_LEVEL?)"));
    assert!(settings.warnings[2].contains("ORRERY_SERVICE_HOST"), "{:?}", settings.warnings);
    let port = load_environment(&[("ORRERY_HTTP_PORT", "8080")]).unwrap();
    assert!(port.warnings[0].contains("did you mean ORRERY_HTTP_LISTEN?"), "{:?}", port.warnings);
    // A variable that names a setting is still an error when its value is invalid.
    assert!(load_environment(&[("ORRERY_HTTP_LISTEN", "tcp://10.0.0.1:8484")]).is_err());
    assert!(load_environment(&[("ORRERY_LIMITS_BURST", "70")]).unwrap().warnings.is_empty());
}

#[test]
fn addresses_with_passwords_are_not_displayed() {
    let address = "https://me:hunter2@lake.example/x";
    for text in [
        format!("[source]\ngaps = ['lake:{address}']"),
        format!("[source]\nkind = 'lake'\npath = '{address}'"),
    ] {
        let settings = load_text(&text).unwrap();
        assert!(!settings.to_string().contains("hunter2"), "{settings}");
    }
    let error = load_text(&format!("[source]\ngaps = ['{address}']")).unwrap_err().to_string();
    assert!(error.contains("source.gaps cannot be (hidden)"), "{error}");
    let reason = SourceAddress::try_from(address.to_owned()).unwrap_err();
    assert!(reason.contains("lake: or rpc:") && !reason.contains("hunter2"), "{reason}");
}

#[test]
fn errors_name_the_line_the_value_and_what_is_allowed() {
    for (text, sentence) in [
        (
            "[log]\n\nformat = 'xml'",
            "line 3: log.format cannot be \"xml\": give auto, human or json",
        ),
        ("[limits]\nburst = -1", "line 2: limits.burst cannot be -1: give a whole number"),
        ("[limits]\nburst = 'many'", "limits.burst cannot be \"many\""),
        ("[retention]\nevents = 4294967296", "retention.events cannot be 4294967296"),
        ("[http]\nlisten = 'here'", "give an IP address and a port"),
        ("[http]\ntrusted_proxies = ['10.0.0.0/33']", "give a list of IP addresses and subnets"),
        ("[http]\ncors_origins = ['https://a.example/path']", "http.cors_origins cannot be"),
        ("[http]\ncors_origins = ['http://*.a.example']", "http.cors_origins cannot be"),
        ("[source]\nstart = 0", "source.start cannot be 0: give tip, genesis"),
        ("[source]\nstart = -5", "source.start cannot be -5: give tip, genesis"),
        ("[index]\ncontracts = ['CABC']", "index.contracts cannot be [\"CABC\"]"),
        ("[index]\nfee_events = 1", "index.fee_events cannot be 1: give true or false"),
        (
            "[auth]\npublic_keys = ['x:HS256:key']",
            "give a list of KID:EdDSA:FILE or KID:RS256:FILE",
        ),
        ("[auth]\npublic_keys = ['x:EdDSA:/a:/b']", "auth.public_keys cannot be"),
        ("[auth]\npublic_keys = ['x:EdDSA:a.pem:']", "auth.public_keys cannot be"),
        ("[log]\nlevel = 'info'\nlevel = 'warn'", "line 3"),
        ("[log", "line 1"),
        ("network = testnet", "line 1: put the value in quotation marks: network = \"…\""),
        ("network = mainnet # ours", "quotation marks: network = \"…\""),
        ("[http]\nlisten = 127.0.0.1:80", "line 2: put the value in quotation marks: listen ="),
        ("[log]\nlevel = info", "line 2: put the value in quotation marks: level ="),
        ("data_dir = /var/lib", "quotation marks: data_dir ="),
        (
            "network = 'testnett'",
            "cannot be \"testnett\" (did you mean \"testnet\"?): give testnet",
        ),
        ("network = 'Mainet'", "(did you mean \"mainnet\"?)"),
        ("network = 'quux'", "network cannot be \"quux\": give testnet"),
        ("[log]\nlevel = 'warning'", "(did you mean \"warn\"?): give error, warn"),
        ("[http]\nmetrics = 'al'", "(did you mean \"all\"?): give loopback"),
        ("[source]\nkind = 'laek'", "(did you mean \"lake\"?): give auto"),
        ("[source]\npath = '/srv'", "source.path is set, but source.kind is auto: give lake"),
        ("[source]\nrpc_url = 'http://a'", "source.rpc_url is set, but source.kind is auto"),
        (
            "[source]\nkind = 'rpc'\npath = 'http://a'",
            "source.path is set, but source.kind is rpc, whose address is source.rpc_url: give lake",
        ),
        ("[source]\nrpc_headers = ['a: b']", "source.rpc_headers are set without source.rpc_url"),
        ("[source]\nkind = 'core'\npath = '/srv'", "source.kind is core"),
        (
            "[core]\nhttp_port = 65536",
            "core.http_port cannot be 65536: give a port from 1 to 65535, or 0",
        ),
        ("[core]\nhttpport = 1", "did you mean core.http_port?"),
        ("[source]\nkind = 'none'\ngaps = ['rpc']", "which leaves no gaps"),
        ("[source]\ngaps = ['sandbox']", "source.gaps holds sandbox"),
        ("[source]\ngaps = ['laek']", "source.gaps cannot be [\"laek\"]: give a list of auto"),
        ("[source]\nstart = 'latest'", "source.start cannot be \"latest\": give tip, genesis"),
        ("[source]\ns3_access_key_id = 'x'", "belong together"),
        ("[source]\nlake_ledgers_per_batch = 1", "belong together"),
        ("[source]\nstart_ledger = 5", "there is no setting source.start_ledger"),
        (
            "[source]\nrpc_url = 'ftp://secret'",
            "source.rpc_url cannot be (hidden): give an address",
        ),
        ("[status]\nslack_webhook = 'secret'", "status.slack_webhook cannot be (hidden)"),
        ("[status]\ntelegram_bot = '123:secret'", "status.telegram_bot is incomplete"),
        ("[http]\nconnections = 0", "http.connections cannot be 0"),
    ] {
        let error = load_text(text).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
        assert!(
            !error.contains('\n') && !error.replace("secret_access", "").contains("secret"),
            "{error}"
        );
    }
    let error = load_environment(&[("ORRERY_LIMITS_BURST", "x")]).unwrap_err().to_string();
    assert!(
        error.starts_with("environment variable ORRERY_LIMITS_BURST: limits.burst cannot be \"x\""),
        "{error}"
    );
    let missing = Layers { file: Some("/nowhere/orrery.toml".into()), ..Layers::default() };
    let error = Settings::load(missing).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the configuration file /nowhere/orrery.toml"),
        "{error}"
    );
}

#[test]
fn what_surrounds_a_value_by_mistake_is_refused() {
    for (name, key) in [
        ("ORRERY_DATA_DIR", "data_dir"),
        ("ORRERY_EXPORT_TO", "export.to"),
        ("ORRERY_SOURCE_PATH", "source.path"),
        ("ORRERY_CORE_STORAGE", "core.storage"),
        ("ORRERY_NETWORK_PASSPHRASE", "network_passphrase"),
        ("ORRERY_EXPORT_S3_SECRET_ACCESS_KEY", "export.s3_secret_access_key"),
    ] {
        for (value, reason) in [
            ("\"/srv/secret\"", "is in quotation marks"),
            ("'/srv/secret'", "is in quotation marks"),
            ("/srv/secret\r", "holds a line end"),
            ("/srv/secret\n", "holds a line end"),
            ("/srv/\u{1b}[31msecret", "another control character"),
            (" /srv/secret", "begins or ends with a blank"),
            ("/srv/secret ", "begins or ends with a blank"),
        ] {
            let error = load_environment(&[(name, value)]).unwrap_err().to_string();
            let begin = format!("environment variable {name}: {key} ");
            assert!(error.starts_with(&begin) && error.contains(reason), "{value:?}: {error}");
            assert!(!error.contains("/srv") && !error.contains(char::is_control), "{error}");
        }
    }
    let flags = vec![("data_dir", "--data-dir", "d\r".into())];
    let error = Settings::load(Layers { flags, ..Layers::default() }).unwrap_err().to_string();
    assert!(error.starts_with("--data-dir: data_dir holds a line end"), "{error}");
    let error = load_text("data_dir = '\"d\"'").unwrap_err().to_string();
    assert!(error.contains("line 1: data_dir is in quotation marks"), "{error}");
    // An apostrophe within, and a blank within, are parts of names.
    let config = load_text("data_dir = \"a 'b' c\"").unwrap().config;
    assert_eq!(config.data_dir, Path::new("a 'b' c"));
}

const SEED: &str = "SADQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQP54X";

#[test]
fn secret_seeds_are_named_and_never_shown() {
    let seed = SEED;
    for text in [
        format!("[trust]\nvalidators = {{ 'a' = ['{seed}'] }}"),
        format!("network = '{seed}'"),
        format!("[index]\ncontracts = ['{seed}']"),
        format!("[http]\nlisten = '{seed}'"),
    ] {
        let error = load_text(&text).unwrap_err().to_string();
        assert!(!error.contains(&seed[..20]), "{error}");
        assert!(error.contains("a secret seed, which nobody else may see"), "{error}");
    }
    let error = load_environment(&[("ORRERY_NETWORK", seed)]).unwrap_err().to_string();
    assert!(error.contains("a secret seed") && !error.contains(seed), "{error}");
    let settings = load_environment(&[("ORRERY_NETWORK_PASSPHRASE", seed)]).unwrap();
    assert!(!settings.to_string().contains(seed), "{settings}");
}

#[test]
fn a_network_is_a_known_name_or_given_as_a_passphrase() {
    for (text, name) in [
        ("network = 'testnet'", "testnet"),
        ("network = 'Mainnet'", "mainnet"),
        ("network = ' PUBNET '", "mainnet"),
        ("network = 'Standalone'", "local"),
        ("network = 'Test SDF Network ; September 2015'", "testnet"),
        ("network = 'My Network ; May 2030'", "custom"),
        ("network_passphrase = 'Apply Load'", "custom"),
        ("network_passphrase = 'Test SDF Network ; September 2015'", "testnet"),
    ] {
        let config = load_text(text).unwrap().config;
        assert_eq!(config.network().unwrap().name(), name, "{text}");
    }
    assert!(load_text("network = ''").unwrap().config.network().is_none());
    for mistyped in ["testnett", "test net", "main", "pubnet;", "Apply Load", "x ;y"] {
        let refused = load_text(&format!("network = '{mistyped}'")).unwrap_err().to_string();
        let mend = "give testnet, mainnet, futurenet or local, or the passphrase of another network as \
                    network_passphrase";
        let cause = format!("network cannot be \"{mistyped}\"");
        assert!(refused.contains(&cause) && refused.contains(mend), "{refused}");
    }
    let both = load_text("network = 'local'\nnetwork_passphrase = 'x'").unwrap_err().to_string();
    assert!(both.contains("network and network_passphrase are both given"), "{both}");
}
