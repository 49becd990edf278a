//! Validators of the public networks, with their organisations, addresses and history archives. Data
//! only: [`super::Validators`] and the configuration of a stellar-core are made of it.

use crate::domain::Network;

/// A validator.
#[derive(Debug, Clone, Copy)]
pub struct KnownValidator {
    /// Name, unique in its network.
    pub name: &'static str,
    /// Public key as a strkey, `G…`.
    pub key: &'static str,
    /// Host, with or without a port.
    pub address: &'static str,
    /// URL of its history archive, without a trailing slash.
    pub archive: &'static str,
}

/// An organisation that runs validators.
#[derive(Debug, Clone, Copy)]
pub struct KnownOrganisation {
    /// Domain of its home page.
    pub domain: &'static str,
    /// Quality in core's terms: HIGH requires three validators with archives.
    pub quality: &'static str,
    /// Its validators.
    pub validators: &'static [KnownValidator],
}

/// A public network.
#[derive(Debug, Clone, Copy)]
pub struct KnownNetwork {
    /// Organisations of its quorum.
    pub organisations: &'static [KnownOrganisation],
    /// Whether core's check of quorum safety is disabled: a single organisation is never safe.
    pub unsafe_quorum: bool,
    /// Number of organisations that may fail at the same time.
    pub failure_safety: i64,
}

/// Returns the built-in data of a network.
pub fn known(network: &Network) -> Option<&'static KnownNetwork> {
    match network.name() {
        "mainnet" => Some(&MAINNET),
        "testnet" => Some(&TESTNET),
        "futurenet" => Some(&FUTURENET),
        _ => None,
    }
}

const fn validator(
    name: &'static str,
    key: &'static str,
    address: &'static str,
    archive: &'static str,
) -> KnownValidator {
    KnownValidator { name, key, address, archive }
}

const fn organisation(
    domain: &'static str,
    validators: &'static [KnownValidator],
) -> KnownOrganisation {
    KnownOrganisation { domain, quality: "HIGH", validators }
}

/// The seven organisations of the first tier, three validators each.
const MAINNET: KnownNetwork = KnownNetwork {
    unsafe_quorum: false,
    failure_safety: 1,
    organisations: &[
        organisation(
            "stellar.org",
            &[
                validator(
                    "sdf_1",
                    "GCGB2S2KGYARPVIA37HYZXVRM2YZUEXA6S33ZU5BUDC6THSB62LZSTYH",
                    "core-live-a.stellar.org:11625",
                    "http://history.stellar.org/prd/core-live/core_live_001",
                ),
                validator(
                    "sdf_2",
                    "GCM6QMP3DLRPTAZW2UZPCPX2LF3SXWXKPMP3GKFZBDSF3QZGV2G5QSTK",
                    "core-live-b.stellar.org:11625",
                    "http://history.stellar.org/prd/core-live/core_live_002",
                ),
                validator(
                    "sdf_3",
                    "GABMKJM6I25XI4K7U6XWMULOUQIQ27BCTMLS6BYYSOWKTBUXVRJSXHYQ",
                    "core-live-c.stellar.org:11625",
                    "http://history.stellar.org/prd/core-live/core_live_003",
                ),
            ],
        ),
        organisation(
            "lobstr.co",
            &[
                validator(
                    "lobstr_1",
                    "GCFONE23AB7Y6C5YZOMKUKGETPIAJA4QOYLS5VNS4JHBGKRZCPYHDLW7",
                    "v1.stellar.lobstr.co:11625",
                    "https://archive.v1.stellar.lobstr.co",
                ),
                validator(
                    "lobstr_2",
                    "GCB2VSADESRV2DDTIVTFLBDI562K6KE3KMKILBHUHUWFXCUBHGQDI7VL",
                    "v2.stellar.lobstr.co:11625",
                    "https://archive.v2.stellar.lobstr.co",
                ),
                validator(
                    "lobstr_5",
                    "GA5STBMV6QDXFDGD62MEHLLHZTPDI77U3PFOD2SELU5RJDHQWBR5NNK7",
                    "v5.stellar.lobstr.co:11625",
                    "https://archive.v5.stellar.lobstr.co",
                ),
            ],
        ),
        organisation(
            "satoshipay.io",
            &[
                validator(
                    "satoshipay_de",
                    "GC5SXLNAM3C4NMGK2PXK4R34B5GNZ47FYQ24ZIBFDFOCU6D4KBN4POAE",
                    "stellar-de-fra.satoshipay.io:11625",
                    "https://stellar-history-de-fra.satoshipay.io",
                ),
                validator(
                    "satoshipay_sg",
                    "GBJQUIXUO4XSNPAUT6ODLZUJRV2NPXYASKUBY4G5MYP3M47PCVI55MNT",
                    "stellar-sg-sin.satoshipay.io:11625",
                    "https://stellar-history-sg-sin.satoshipay.io",
                ),
                validator(
                    "satoshipay_us",
                    "GAK6Z5UVGUVSEK6PEOCAYJISTT5EJBB34PN3NOLEQG2SUKXRVV2F6HZY",
                    "stellar-us-iowa.satoshipay.io:11625",
                    "https://stellar-history-us-iowa.satoshipay.io",
                ),
            ],
        ),
        organisation(
            "blockdaemon.com",
            &[
                validator(
                    "blockdaemon_1",
                    "GAAV2GCVFLNN522ORUYFV33E76VPC22E72S75AQ6MBR5V45Z5DWVPWEU",
                    "stellar-full-validator1.bdnodes.net:11625",
                    "https://stellar-full-history1.bdnodes.net",
                ),
                validator(
                    "blockdaemon_2",
                    "GAVXB7SBJRYHSG6KSQHY74N7JAFRL4PFVZCNWW2ARI6ZEKNBJSMSKW7C",
                    "stellar-full-validator2.bdnodes.net:11625",
                    "https://stellar-full-history2.bdnodes.net",
                ),
                validator(
                    "blockdaemon_3",
                    "GAYXZ4PZ7P6QOX7EBHPIZXNWY4KCOBYWJCA4WKWRKC7XIUS3UJPT6EZ4",
                    "stellar-full-validator3.bdnodes.net:11625",
                    "https://stellar-full-history3.bdnodes.net",
                ),
            ],
        ),
        organisation(
            "publicnode.org",
            &[
                validator(
                    "bootes",
                    "GCVJ4Z6TI6Z2SOGENSPXDQ2U4RKH3CNQKYUHNSSPYFPNWTLGS6EBH7I2",
                    "bootes.publicnode.org:11625",
                    "https://bootes-history.publicnode.org",
                ),
                validator(
                    "lyra",
                    "GCIXVKNFPKWVMKJKVK2V4NK7D4TC6W3BUMXSIJ365QUAXWBRPPJXIR2Z",
                    "lyra.publicnode.org:11625",
                    "https://lyra-history.publicnode.org",
                ),
                validator(
                    "hercules",
                    "GBLJNN3AVZZPG2FYAYTYQKECNWTQYYUUY2KVFN2OUKZKBULXIXBZ4FCT",
                    "hercules.publicnode.org:11625",
                    "https://hercules-history.publicnode.org",
                ),
            ],
        ),
        organisation(
            "www.franklintempleton.com",
            &[
                validator(
                    "franklin_templeton_1",
                    "GARYGQ5F2IJEBCZJCBNPWNWVDOFK7IBOHLJKKSG2TMHDQKEEC6P4PE4V",
                    "stellar1.franklintempleton.com:11625",
                    "https://stellar-history-usw.franklintempleton.com/azuswshf401",
                ),
                validator(
                    "franklin_templeton_2",
                    "GCMSM2VFZGRPTZKPH5OABHGH4F3AVS6XTNJXDGCZ3MKCOSUBH3FL6DOB",
                    "stellar2.franklintempleton.com:11625",
                    "https://stellar-history-usc.franklintempleton.com/azuscshf401",
                ),
                validator(
                    "franklin_templeton_3",
                    "GA7DV63PBUUWNUFAF4GAZVXU2OZMYRATDLKTC7VTCG7AU4XUPN5VRX4A",
                    "stellar3.franklintempleton.com:11625",
                    "https://stellar-history-ins.franklintempleton.com/azinsshf401",
                ),
            ],
        ),
        organisation(
            "stellar.creit.tech",
            &[
                validator(
                    "creit_alpha",
                    "GBPLJDBFZO2H7QQH7YFCH3HFT6EMC42Z2DNJ2QFROCKETAPY54V4DCZD",
                    "alpha.validator.stellar.creit.tech:11625",
                    "https://alpha-history.validator.stellar.creit.tech",
                ),
                validator(
                    "creit_beta",
                    "GDDANSYOYSY5EPSFHBRPCLX6XMHPPLIMHVIDXG6IPQLVVLRI2BN4HMH3",
                    "beta.validator.stellar.creit.tech:11625",
                    "https://beta-history.validator.stellar.creit.tech",
                ),
                validator(
                    "creit_gamma",
                    "GBF7QOLFPTHUEDUPTT4ZTULDTA3QXDIO75JHKJN2IYD7YGQLYUTR75BT",
                    "gamma.validator.stellar.creit.tech:11625",
                    "https://gamma-history.validator.stellar.creit.tech",
                ),
            ],
        ),
    ],
};

const TESTNET: KnownNetwork = KnownNetwork {
    unsafe_quorum: true,
    failure_safety: 1,
    organisations: &[organisation(
        "testnet.stellar.org",
        &[
            validator(
                "sdf_testnet_1",
                "GDKXE2OZMJIPOSLNA6N6F2BVCI3O777I2OOC4BV7VOYUEHYX7RTRYA7Y",
                "core-testnet1.stellar.org",
                "http://history.stellar.org/prd/core-testnet/core_testnet_001",
            ),
            validator(
                "sdf_testnet_2",
                "GCUCJTIYXSOXKBSNFGNFWW5MUQ54HKRPGJUTQFJ5RQXZXNOLNXYDHRAP",
                "core-testnet2.stellar.org",
                "http://history.stellar.org/prd/core-testnet/core_testnet_002",
            ),
            validator(
                "sdf_testnet_3",
                "GC2V2EFSXN6SQTWVYA5EPJPBWWIMSD2XQNKUOHGEKB535AQE2I6IXV2Z",
                "core-testnet3.stellar.org",
                "http://history.stellar.org/prd/core-testnet/core_testnet_003",
            ),
        ],
    )],
};

const FUTURENET: KnownNetwork = KnownNetwork {
    unsafe_quorum: true,
    failure_safety: 0,
    organisations: &[KnownOrganisation {
        domain: "futurenet.stellar.org",
        quality: "MEDIUM",
        validators: &[validator(
            "sdf_futurenet_1",
            "GBRIF2N52GVN3EXBBICD5F4L5VUFXK6S6VOUCF6T2DWPLOLGWEPPYZTF",
            "core-live-futurenet.stellar.org:11625",
            "http://history-futurenet.stellar.org",
        )],
    }],
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_and_names_are_valid_and_distinct() {
        for known in [&MAINNET, &TESTNET, &FUTURENET] {
            let all: Vec<_> = known.organisations.iter().flat_map(|o| o.validators).collect();
            for validator in &all {
                stellar_strkey::ed25519::PublicKey::from_string(validator.key).unwrap();
                assert!(validator.archive.starts_with("http") && !validator.archive.ends_with('/'));
            }
            let keys: BTreeSet<_> = all.iter().map(|validator| validator.key).collect();
            let names: BTreeSet<_> = all.iter().map(|validator| validator.name).collect();
            assert_eq!((keys.len(), names.len()), (all.len(), all.len()));
        }
        for organisation in MAINNET.organisations {
            assert_eq!(organisation.validators.len(), 3, "HIGH needs three validators");
        }
    }
}
