//! Derives the sources from the settings and the network: what is followed, what fills gaps, and
//! where an empty data directory begins.

use orrery_ledger::domain::{Network, StartPoint};

use crate::source_kinds::{AddressSetting, Place, Source, SourceAddress, SourceKind, SourceSpec};

/// Sources of ledgers of a running service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlan {
    /// Source to follow; `None` to follow none.
    pub live: Option<SourceSpec>,
    /// Sources to ask for ledgers that `live` does not provide, in this order.
    pub gaps: Vec<SourceSpec>,
    /// First ledger of an empty data directory.
    pub start: StartPoint,
}

/// The settings name no usable source; the text is the error message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

impl Source {
    /// Returns the sources of a network's ledgers for a running service.
    ///
    /// # Errors
    /// When a source is named without its address, and the network has no public one.
    pub fn plan(&self, network: &Network) -> Result<SourcePlan, SourceError> {
        let kind = self.kind;
        let mut sources = self.named(&SourceAddress::Kind(kind), network)?.into_iter();
        let live = sources.next();
        let mut gaps = match kind {
            SourceKind::Auto if self.gaps.is_empty() => sources.collect(),
            _ => Vec::new(),
        };
        for address in &self.gaps {
            gaps.extend(self.named(address, network)?);
        }
        gaps.retain(|gap| Some(gap) != live.as_ref());
        let usual = live.as_ref().map_or(StartPoint::Oldest, SourceSpec::default_start);
        Ok(SourcePlan { live, gaps, start: self.start.0.unwrap_or(usual) })
    }

    /// Returns the sources of older ledgers of a network: the named ones, or else the followed
    /// source and those that fill gaps, lakes first, then RPC servers, then core.
    ///
    /// # Errors
    /// As [`Self::plan`], or when there is none.
    pub fn backfill_sources(
        &self,
        network: &Network,
        named: &[SourceAddress],
    ) -> Result<Vec<SourceSpec>, SourceError> {
        let mut sources = Vec::new();
        if named.is_empty() {
            let plan = self.plan(network)?;
            sources.extend(plan.live.into_iter().chain(plan.gaps));
            sources.sort_by_key(backfill_rank);
        }
        for address in named {
            sources.extend(self.named(address, network)?);
        }
        // A sandbox cannot produce its past ledgers again.
        sources.retain(|source| backfill_rank(source).is_some());
        if sources.is_empty() {
            return Err(SourceError(format!(
                "there is no source of older ledgers of {network}: name one, such as a directory with \
                 a ledger lake"
            )));
        }
        Ok(sources)
    }

    /// Returns the sources that an address stands for.
    pub(crate) fn named(
        &self,
        address: &SourceAddress,
        network: &Network,
    ) -> Result<Vec<SourceSpec>, SourceError> {
        let kind = match address {
            SourceAddress::Kind(kind) => *kind,
            SourceAddress::At(kind, address) => {
                let at = kind.address().map(|setting| (setting.at)(self, address.reveal()));
                return Ok(at.into_iter().collect());
            }
        };
        let Some(known) = kind.source() else {
            // An RPC server has closed ledgers seconds earlier; a lake reaches further back.
            let all = SourceKind::ALL.iter().filter(|_| kind == SourceKind::Auto);
            let settings = all.filter_map(|kind| kind.address());
            return Ok(settings.flat_map(|setting| public(setting, network)).collect());
        };
        let setting = match &known.place {
            Place::Own(own) => return Ok(vec![own.clone()]),
            Place::At(setting) => setting,
        };
        let configured = (setting.configured)(self);
        if !configured.is_empty() {
            return Ok(vec![(setting.at)(self, configured)]);
        }
        let public = public(setting, network);
        if public.is_empty() {
            let AddressSetting { what, key, .. } = setting;
            return Err(SourceError(format!(
                "{network} has no public {what}: give the address of one in {key}"
            )));
        }
        Ok(public)
    }
}

/// Returns the rank of a source among those of older ledgers; `None` when it cannot produce them.
fn backfill_rank(source: &SourceSpec) -> Option<u8> {
    source.kind().source().and_then(|known| known.backfill)
}

/// Returns the public sources at these addresses of a network.
fn public(setting: &AddressSetting, network: &Network) -> Vec<SourceSpec> {
    let known = setting.public.iter().filter(|(name, _)| *name == network.name());
    known.map(|(_, address)| (setting.public_at)(address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{Header, SecretUrl};

    fn network(name: &str) -> Network {
        Network::from_name_or_passphrase(name)
    }

    fn plan(name: &str, change: impl FnOnce(&mut Source)) -> Result<SourcePlan, SourceError> {
        let mut source = Source::default();
        change(&mut source);
        source.plan(&network(name))
    }

    fn shown(specs: &[SourceSpec]) -> Vec<String> {
        let show = |spec: &SourceSpec| match spec {
            SourceSpec::Lake { address, .. } => format!("lake {address}"),
            SourceSpec::Rpc { url, .. } => format!("rpc {}", url.reveal()),
            other => other.kind().to_string(),
        };
        specs.iter().map(show).collect()
    }

    fn address(text: &str) -> SourceAddress {
        SourceAddress::try_from(text.to_owned()).unwrap()
    }

    const AWS: &str = "lake s3://aws-public-blockchain/v1.1/stellar/ledgers";

    #[test]
    fn public_networks_need_no_settings() {
        let testnet = plan("testnet", |_| {}).unwrap();
        assert_eq!(shown(testnet.live.as_slice()), ["rpc https://soroban-testnet.stellar.org"]);
        assert_eq!(shown(&testnet.gaps), [format!("{AWS}/testnet")]);
        assert_eq!(testnet.start, StartPoint::Tip);

        let mainnet = plan("mainnet", |_| {}).unwrap();
        assert_eq!(shown(mainnet.live.as_slice()), [format!("{AWS}/pubnet")]);
        assert_eq!(shown(&mainnet.gaps), ["lake https://galexie.lightsail.network/v1"]);
        assert!(matches!(mainnet.live, Some(SourceSpec::Lake { is_public: true, .. })));

        let futurenet = plan("futurenet", |_| {}).unwrap();
        assert_eq!(shown(futurenet.live.as_slice()), ["rpc https://rpc-futurenet.stellar.org"]);
        for own in ["local", "a network of mine"] {
            let plan = plan(own, |_| {}).unwrap();
            assert_eq!((plan.live, plan.gaps), (None, Vec::new()));
        }
    }

    #[test]
    fn only_configured_sources_are_used() {
        let own = plan("testnet", |source| {
            source.kind = SourceKind::Lake;
            source.path = "/srv/lake".to_owned();
        })
        .unwrap();
        assert_eq!(shown(own.live.as_slice()), ["lake /srv/lake"]);
        assert_eq!((own.gaps, own.start), (Vec::new(), StartPoint::Oldest));

        let own = plan("testnet", |source| {
            source.kind = SourceKind::Rpc;
            source.rpc_url = SecretUrl::try_from("http://localhost:8000".to_owned()).unwrap();
            source.rpc_headers =
                vec![Header::try_from("Authorization: Bearer x".to_owned()).unwrap()];
            source.gaps = vec![address("s3://mine/lake"), address("auto"), address("core")];
        })
        .unwrap();
        assert_eq!(
            shown(&own.gaps),
            [
                "lake s3://mine/lake",
                "rpc https://soroban-testnet.stellar.org",
                &format!("{AWS}/testnet"),
                "core"
            ]
        );
        let Some(SourceSpec::Rpc { headers, .. }) = &own.live else { panic!("an RPC server") };
        assert_eq!(headers.len(), 1);
        let SourceSpec::Rpc { headers, .. } = &own.gaps[1] else { panic!("an RPC server") };
        assert!(headers.is_empty(), "a key goes to its own server only");
        assert!(matches!(own.gaps[0], SourceSpec::Lake { is_public: false, .. }));

        let none = plan("testnet", |source| source.gaps = vec![address("none")]).unwrap();
        assert!(none.live.is_some() && none.gaps.is_empty());
        let error = plan("mainnet", |source| source.kind = SourceKind::Rpc).unwrap_err();
        assert!(error.to_string().contains("give the address of one in source.rpc_url"), "{error}");
        let error = plan("local", |source| source.gaps = vec![address("lake")]).unwrap_err();
        assert!(error.to_string().contains("local has no public lake"), "{error}");
    }

    #[test]
    fn backfills_prefer_lakes() {
        let mut source = Source::default();
        let of = |source: &Source, name: &str, named: &[&str]| {
            let named: Vec<_> = named.iter().map(|text| address(text)).collect();
            source.backfill_sources(&network(name), &named).map(|specs| shown(&specs))
        };
        assert_eq!(
            of(&source, "testnet", &[]).unwrap(),
            [format!("{AWS}/testnet"), "rpc https://soroban-testnet.stellar.org".to_owned()]
        );
        assert_eq!(of(&source, "mainnet", &[]).unwrap()[0], format!("{AWS}/pubnet"));
        assert_eq!(of(&source, "local", &["./lake"]).unwrap(), ["lake ./lake"]);
        source.kind = SourceKind::Sandbox;
        for named in [&[][..], &["sandbox"]] {
            let error = of(&source, "local", named).unwrap_err().to_string();
            assert!(error.contains("no source of older ledgers of local"), "{error}");
        }
    }

    #[test]
    fn source_addresses_round_trip() {
        for text in
            ["auto", "core", "lake:https://a.example/x", "rpc:http://b.example", "lake:/srv/x"]
        {
            assert_eq!(String::from(address(text)), text);
        }
        assert_eq!(address("s3://b/x"), SourceAddress::At(SourceKind::Lake, "s3://b/x".into()));
        for (wrong, reason) in [
            ("https://a.example", "its kind is not clear: write lake: or rpc: before the address"),
            ("laek", "neither a kind of source nor an address"),
            ("", "neither a kind"),
            ("rpc:", "neither a kind"),
            ("rpc:ftp://x", "neither with http://"),
        ] {
            let error = SourceAddress::try_from(wrong.to_owned()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
