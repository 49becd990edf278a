use orrery_ledger::domain::LedgerSeq;

use super::*;

fn network(name: &str) -> Network {
    Network::from_name_or_passphrase(name)
}

fn compose_for(name: &str, mode: Mode, own: &str) -> Result<Table, CoreError> {
    compose(&Purpose {
        network: &network(name),
        mode: &mode,
        own: &own.parse().unwrap(),
        http_port: 0,
        protocol: 26,
        start: OnlineStart::Checkpoint,
    })
}

/// Returns the table as core reads it from the file.
fn written(table: &Table) -> Table {
    toml::to_string(table).unwrap().parse().unwrap()
}

#[test]
fn known_networks_need_no_configuration_file() {
    for (name, organisations, validators) in
        [("mainnet", 7, 21), ("testnet", 1, 3), ("futurenet", 1, 1)]
    {
        let table = written(&compose_for(name, Mode::Online, "").unwrap());
        assert_eq!(table["NETWORK_PASSPHRASE"].as_str(), Some(network(name).passphrase()));
        assert_eq!(table["HOME_DOMAINS"].as_array().unwrap().len(), organisations);
        assert_eq!(table["VALIDATORS"].as_array().unwrap().len(), validators);
        assert_eq!(archives(&table).len(), validators);
        for flag in ["EMIT_CLASSIC_EVENTS", "BACKFILL_STELLAR_ASSET_EVENTS"] {
            assert_eq!(table[flag].as_bool(), Some(true));
        }
        assert_eq!(table["DATABASE"].as_str(), Some("sqlite3://stellar.db"));
        assert_eq!(http_port(&table), 0);
        assert!(
            !table.contains_key("CATCHUP_COMPLETE") && !table.contains_key("NODE_IS_VALIDATOR")
        );
    }
    let archives = archives(&compose_for("testnet", Mode::Online, "").unwrap());
    assert_eq!(
        archives[0],
        "curl -sf http://history.stellar.org/prd/core-testnet/core_testnet_001/{0} -o {1}"
    );
}

#[test]
fn other_networks_need_a_configuration_file() {
    for (name, mode) in [
        ("Some Network", Mode::Online),
        ("local", Mode::Online),
        ("Some Network", Mode::Bounded { to: LedgerSeq(100) }),
    ] {
        let error = compose_for(name, mode, "HTTP_PORT = 1").unwrap_err().to_string();
        assert!(error.contains("give its path as core.config"), "{error}");
    }
    let own = "[QUORUM_SET]\nTHRESHOLD_PERCENT = 100\nVALIDATORS = ['GABC']\n\
               [HISTORY.ours]\nget = 'cp /archive/{0} {1}'";
    let table = written(&compose_for("Some Network", Mode::Online, own).unwrap());
    assert_eq!(archives(&table), ["cp /archive/{0} {1}"]);
    assert!(!table.contains_key("VALIDATORS"));
}

#[test]
fn the_operators_file_overrides_known_settings() {
    let own = "DATABASE = 'postgresql://elsewhere'\nMETADATA_OUTPUT_STREAM = 'fd:9'\n\
               EMIT_CLASSIC_EVENTS = false\nPEER_PORT = 5\nHTTP_PORT = 11626\n\
               [HISTORY.near]\nget = 'cp /near/{0} {1}'";
    let table = written(&compose_for("testnet", Mode::Online, own).unwrap());
    assert_eq!(table["DATABASE"].as_str(), Some("sqlite3://stellar.db"));
    assert!(!table.contains_key("METADATA_OUTPUT_STREAM"));
    assert_eq!(table["EMIT_CLASSIC_EVENTS"].as_bool(), Some(false));
    assert!(!table.contains_key("BACKFILL_STELLAR_ASSET_EVENTS"), "it needs the other");
    assert_eq!(table["PEER_PORT"].as_integer(), Some(5));
    assert_eq!(table["ENABLE_DIAGNOSTICS_FOR_TX_SUBMISSION"].as_bool(), Some(true));
    assert_eq!(http_port(&table), 11_626);
    assert_eq!(archives(&table).len(), 4, "its archive is added to those of the validators");

    let own = "[[VALIDATORS]]\nNAME = 'mine'\nHOME_DOMAIN = 'example.org'\nQUALITY = 'LOW'";
    let table = written(&compose_for("mainnet", Mode::Online, own).unwrap());
    assert_eq!(table["VALIDATORS"].as_array().unwrap().len(), 1);
    assert!(!table.contains_key("HOME_DOMAINS"), "its validators replace those that are known");
}

#[test]
fn a_replay_has_no_peers_and_does_not_vote() {
    let mode = Mode::Bounded { to: LedgerSeq(100) };
    let own = "HTTP_PORT = 11626\n[HISTORY.ours]\nget = 'cp /archive/{0} {1}'";
    for name in ["testnet", "Some Network"] {
        let table = written(&compose_for(name, mode.clone(), own).unwrap());
        assert_eq!(table["RUN_STANDALONE"].as_bool(), Some(true));
        assert_eq!(table["FAILURE_SAFETY"].as_integer(), Some(0));
        assert_eq!(http_port(&table), 0);
        assert!(!table.contains_key("NODE_SEED") && !table.contains_key("PEER_PORT"));
        assert!(table.contains_key("VALIDATORS") || table.contains_key("QUORUM_SET"));
    }
}

#[test]
fn a_standalone_network_is_one_validator() {
    let table = written(&compose_for("local", Mode::Standalone, "").unwrap());
    assert_eq!(table["NODE_IS_VALIDATOR"].as_bool(), Some(true));
    assert_eq!(table["QUORUM_SET"]["VALIDATORS"].as_array().unwrap()[0].as_str(), Some("$self"));
    assert_eq!(http_port(&table), 11_626);
    let seed = table["NODE_SEED"].as_str().unwrap();
    assert!(stellar_strkey::ed25519::PrivateKey::from_string(seed).is_ok(), "{seed}");

    let empty = Table::new();
    assert!(is_standalone(&empty, &network("local")));
    assert!(!is_standalone(&empty, &network("testnet")));
    let own = "RUN_STANDALONE = true".parse().unwrap();
    assert!(is_standalone(&own, &network("Some Network")));
    let own = "VALIDATORS = []".parse().unwrap();
    assert!(!is_standalone(&own, &network("local")), "a node that follows another");
}

#[test]
fn older_versions_get_no_unknown_keys() {
    let (network, mode, own) = (network("testnet"), Mode::Online, Table::new());
    let start = OnlineStart::Genesis;
    let purpose =
        Purpose { network: &network, mode: &mode, own: &own, http_port: 7, protocol: 22, start };
    let table = compose(&purpose).unwrap();
    assert!(!table.contains_key("EMIT_CLASSIC_EVENTS"));
    assert!(!table.contains_key("BUCKETLIST_DB_MEMORY_FOR_CACHING"));
    assert_eq!(table["CATCHUP_COMPLETE"].as_bool(), Some(true));
    assert_eq!(http_port(&table), 7);
}

#[test]
fn the_query_port_follows_the_operators_file() {
    let composed = |mode, own| compose_for("testnet", mode, own).unwrap();
    let mut table = composed(Mode::Online, "");
    assert_eq!(query_port(&table), None);
    set_query_port(&mut table, 11_628);
    assert_eq!(query_port(&written(&table)), Some(11_628));
    assert_eq!(query_port(&composed(Mode::Online, "HTTP_QUERY_PORT = 7")), Some(7));
    assert_eq!(query_port(&composed(Mode::Online, "HTTP_QUERY_PORT = 0")), Some(0));
    let replay = Mode::Bounded { to: LedgerSeq(100) };
    assert_eq!(query_port(&composed(replay, "HTTP_QUERY_PORT = 7")), None);
}

#[test]
fn invalid_operator_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own.toml");
    for (text, sentence) in [
        ("NETWORK_PASSPHRASE = 'Apply Load'", "belongs to the network \"Apply Load\""),
        ("NETWORK_PASSPHRASE = 1", "is not a text"),
        ("NODE_IS_VALIDATOR = true", "add RUN_STANDALONE"),
        ("= 1", "it is not TOML"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = read_own(&path, &network("testnet")).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    let error = read_own(Path::new("/nowhere"), &network("testnet")).unwrap_err().to_string();
    assert!(error.starts_with("the stellar-core configuration /nowhere: "), "{error}");
}
