//! Settings of indexing programs: what runs and queries may use, and who is asked for entries of the
//! ledger that nothing stored tells of.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::{Config, ConfigError, SourceAddress, SourceKind, SourceSpec};
use crate::domain::Network;

/// Most MiB of memory: what a module with 32-bit addresses can use.
const MOST_MEMORY_MIB: u32 = 4096;
/// Most levels of a value: the network itself writes no deeper ones.
const MOST_DEPTH: u32 = 64;

/// `[programs]`: what one run, and one owner, may use. All limits are inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// Who is asked for entries that nothing stored tells of.
    pub rpc: SourceAddress,
    /// Instructions of the program in one run, in millions.
    pub fuel_millions: NonZeroU32,
    /// Milliseconds of one run, without the time that looking up state takes.
    pub run_ms: NonZeroU32,
    /// MiB of linear memory in one run.
    pub memory_mib: NonZeroU32,
    /// Emits of one run.
    pub emits: NonZeroU32,
    /// KiB of emitted values in one run, as XDR.
    pub emitted_kib: NonZeroU32,
    /// Fields of one struct.
    pub columns: NonZeroU32,
    /// Nesting of an emitted value.
    pub depth: NonZeroU32,
    /// Entries that one run may ask for that are not stored, beside those that its transaction declared.
    pub lookups: NonZeroU32,
    /// Milliseconds that looking up such entries may take in one run.
    pub lookup_ms: NonZeroU32,
    /// MiB of rows that one owner may have.
    pub owner_mib: NonZeroU32,
    /// Programs that one owner may have.
    pub owner_programs: NonZeroU32,
    /// Other owners' programs that one owner may have subscribed to.
    pub owner_subscriptions: NonZeroU32,
}

/// `[queries]`: what SQL queries may use. All limits are inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queries {
    /// Milliseconds of one query.
    pub query_ms: NonZeroU32,
    /// MiB of memory for the queries of one owner.
    pub memory_mib: NonZeroU32,
    /// Rows of one answer.
    pub rows: NonZeroU32,
    /// MiB of one answer.
    pub answer_mib: NonZeroU32,
    /// KiB of the text of one query.
    pub text_kib: NonZeroU32,
    /// Queries of one owner at a time.
    pub at_a_time: NonZeroU32,
    /// Owners whose queries run at a time: each has a process of its own.
    pub workers: NonZeroU32,
    /// Milliseconds that a query waits for another owner's process to end, when there are no more of them.
    pub wait_ms: NonZeroU32,
    /// Whether queries are answered on a kernel that does not hold those processes back as it should.
    pub allow_unconfined: bool,
}

const fn count(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            rpc: SourceAddress::Kind(SourceKind::Auto),
            fuel_millions: count(1000),
            run_ms: count(2000),
            memory_mib: count(64),
            emits: count(1000),
            emitted_kib: count(1024),
            columns: count(100),
            depth: count(8),
            lookups: count(64),
            lookup_ms: count(5000),
            owner_mib: count(10 << 10),
            owner_programs: count(20),
            owner_subscriptions: count(20),
        }
    }
}

impl Default for Queries {
    fn default() -> Self {
        Self {
            query_ms: count(10_000),
            memory_mib: count(512),
            rows: count(10_000),
            answer_mib: count(16),
            text_kib: count(64),
            at_a_time: count(4),
            workers: count(8),
            wait_ms: count(15_000),
            allow_unconfined: false,
        }
    }
}

impl Programs {
    /// What cannot be, in a sentence.
    pub(super) fn contradiction(&self) -> Option<String> {
        let too_much = |key: &str, value: NonZeroU32, most: u32| {
            (value.get() > most)
                .then(|| format!("programs.{key} is {value}: give a number from 1 to {most}"))
        };
        let source = match &self.rpc {
            SourceAddress::Rpc(_)
            | SourceAddress::Kind(SourceKind::Auto | SourceKind::None | SourceKind::Rpc) => None,
            _ => Some(
                "programs.rpc names no RPC server: give auto, none, rpc or rpc:ADDRESS".to_owned(),
            ),
        };
        source
            .or_else(|| too_much("memory_mib", self.memory_mib, MOST_MEMORY_MIB))
            .or_else(|| too_much("depth", self.depth, MOST_DEPTH))
    }
}

impl Config {
    /// Who is asked for entries of the ledger that nothing stored tells of: an RPC server, or the
    /// stellar-core that this process follows ([`SourceSpec::Core`]); none when there is none to ask.
    ///
    /// # Errors
    /// As [`Config::source_plan`].
    pub fn entries_source(&self, network: &Network) -> Result<Option<SourceSpec>, ConfigError> {
        let is_rpc = |source: &SourceSpec| matches!(source, SourceSpec::Rpc { .. });
        if self.programs.rpc != SourceAddress::Kind(SourceKind::Auto) {
            let named = self.sources_of(&self.programs.rpc, network)?;
            return Ok(named.into_iter().find(is_rpc));
        }
        let plan = self.source_plan(network)?;
        // A core that only fills gaps mostly does not run.
        let core = plan.live.clone().filter(|source| *source == SourceSpec::Core);
        Ok(plan.live.into_iter().chain(plan.gaps).find(is_rpc).or(core))
    }
}

/// What a key takes, to be read after "give".
pub(super) fn expectation(key: &str) -> &'static str {
    match key {
        "programs.rpc" => "auto, none, rpc, or rpc:ADDRESS",
        "programs.memory_mib" => "a whole number from 1 to 4096",
        "programs.depth" => "a whole number from 1 to 64",
        "queries.allow_unconfined" => "true or false",
        _ => "a whole number from 1 to 4294967295",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(network: &str, change: impl FnOnce(&mut Config)) -> Option<String> {
        let mut config = Config::default();
        change(&mut config);
        let network = Network::from_name_or_passphrase(network);
        match config.entries_source(&network).unwrap() {
            Some(SourceSpec::Rpc { url, .. }) => Some(url.reveal().to_owned()),
            other => other.map(|other| other.kind().to_string()),
        }
    }

    fn address(text: &str) -> SourceAddress {
        SourceAddress::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn entries_are_asked_of_the_followed_server_or_the_one_that_is_named() {
        let testnet = Some("https://soroban-testnet.stellar.org".to_owned());
        assert_eq!(asked("testnet", |_| {}), testnet);
        assert_eq!(asked("mainnet", |_| {}), None);
        assert_eq!(asked("local", |_| {}), None);
        assert_eq!(asked("testnet", |config| config.programs.rpc = address("none")), None);
        let own = Some("https://rpc.example.org/key".to_owned());
        let name = |config: &mut Config| {
            config.programs.rpc = address("rpc:https://rpc.example.org/key");
        };
        assert_eq!(asked("mainnet", name), own);
        let follow = |config: &mut Config| {
            config.source.kind = SourceKind::Rpc;
            config.source.rpc_url = "https://rpc.example.org/key".to_owned().try_into().unwrap();
        };
        assert_eq!(asked("mainnet", follow), own);
        let sandbox = |config: &mut Config| config.source.kind = SourceKind::Sandbox;
        assert_eq!(asked("testnet", sandbox), None);
        let core = |config: &mut Config| config.source.kind = SourceKind::Core;
        assert_eq!(asked("mainnet", core), Some("core".to_owned()));
        let beside = |config: &mut Config| {
            core(config);
            config.source.gaps = vec![address("rpc:https://rpc.example.org/key")];
        };
        assert_eq!(asked("mainnet", beside), own);
        let nobody = |config: &mut Config| {
            core(config);
            config.programs.rpc = address("none");
        };
        assert_eq!(asked("mainnet", nobody), None);
        let in_gaps = |config: &mut Config| {
            config.source.kind = SourceKind::Lake;
            config.source.gaps = vec![address("core")];
        };
        assert_eq!(asked("mainnet", in_gaps), None);
    }

    #[test]
    fn what_is_no_server_or_too_much_is_refused() {
        let refused = |change: fn(&mut Programs)| {
            let mut programs = Programs::default();
            change(&mut programs);
            programs.contradiction().unwrap()
        };
        assert_eq!(
            refused(|programs| programs.rpc = address("/srv/lake")),
            "programs.rpc names no RPC server: give auto, none, rpc or rpc:ADDRESS"
        );
        assert_eq!(
            refused(|programs| programs.memory_mib = count(4097)),
            "programs.memory_mib is 4097: give a number from 1 to 4096"
        );
        assert_eq!(
            refused(|programs| programs.depth = count(65)),
            "programs.depth is 65: give a number from 1 to 64"
        );
        assert_eq!(Programs::default().contradiction(), None);
    }
}
