//! Settings of indexing programs: limits of runs and queries, and the server to ask for ledger
//! entries that are not stored.

use std::num::NonZeroU32;

use orrery_ledger::domain::Network;

use crate::source_kinds::{Entries, Source, SourceAddress, SourceKind, SourceSpec};
use crate::sources::SourceError;
use crate::units::{Kib, Mib, Millis};
use crate::{nonzero, section};

/// Maximum of `memory_mib`: the memory that a module with 32-bit addresses can use.
const MAX_MEMORY_MIB: u32 = 4096;
/// Maximum of `depth`: the network itself writes no deeper values.
const MAX_DEPTH: u32 = 64;

section! {
    /// `[programs]`: limits of one run, and of one owner. All limits are inclusive.
    pub struct Programs {
        /// Server to ask for ledger entries that are not stored.
        pub rpc: SourceAddress = SourceAddress::Kind(SourceKind::Auto),
            "auto, none, rpc, or rpc:ADDRESS";
        /// Number of program instructions in one run, in millions.
        pub fuel_millions: NonZeroU32 = nonzero!(1000);
        /// Duration of one run in milliseconds, without the time of state lookups.
        pub run_ms: Millis = Millis::new(nonzero!(2000));
        /// Linear memory in one run, in MiB.
        pub memory_mib: Mib = Mib::new(nonzero!(64)), "a whole number from 1 to 4096";
        /// Number of emits in one run.
        pub emits: NonZeroU32 = nonzero!(1000);
        /// Size of the values emitted in one run, as XDR, in KiB.
        pub emitted_kib: Kib = Kib::new(nonzero!(1024));
        /// Number of fields in one struct.
        pub columns: NonZeroU32 = nonzero!(100);
        /// Nesting depth of an emitted value; the struct itself is level 1.
        pub depth: NonZeroU32 = nonzero!(8), "a whole number from 1 to 64";
        /// Number of entries that one run may request from that server, in addition to those that
        /// its transaction declared.
        pub lookups: NonZeroU32 = nonzero!(64);
        /// Total time of requests for such entries in one run, including declared ones, in
        /// milliseconds.
        pub lookup_ms: Millis = Millis::new(nonzero!(5000));
        /// Size of one owner's rows, in MiB.
        pub owner_mib: Mib = Mib::new(nonzero!(10 << 10));
        /// Number of programs of one owner.
        pub owner_programs: NonZeroU32 = nonzero!(20);
        /// Number of other owners' programs that one owner may subscribe to.
        pub owner_subscriptions: NonZeroU32 = nonzero!(20);
    }
}

section! {
    /// `[queries]`: limits of SQL queries. All limits are inclusive.
    pub struct Queries {
        /// Duration of one query, in milliseconds.
        pub query_ms: Millis = Millis::new(nonzero!(10_000));
        /// Memory for the queries of one owner, in MiB.
        pub memory_mib: Mib = Mib::new(nonzero!(512));
        /// Number of rows in one response.
        pub rows: NonZeroU32 = nonzero!(10_000);
        /// Size of one response, in MiB.
        pub answer_mib: Mib = Mib::new(nonzero!(16));
        /// Length of the text of one query, in KiB.
        pub text_kib: Kib = Kib::new(nonzero!(64));
        /// Number of concurrent queries of one owner.
        pub at_a_time: NonZeroU32 = nonzero!(4);
        /// Number of concurrent worker processes; each serves the queries of one owner.
        pub workers: NonZeroU32 = nonzero!(8);
        /// Time that a query waits for a free worker process when all are in use, in milliseconds.
        pub wait_ms: Millis = Millis::new(nonzero!(15_000));
        /// Whether queries are answered on a kernel that cannot confine the worker processes.
        pub allow_unconfined: bool = false;
    }
}

impl Programs {
    /// Returns an error message when a value is too large, or `rpc` names a source that is not an
    /// RPC server.
    pub fn validation_error(&self) -> Option<String> {
        let too_much = |key: &str, value: u32, most: u32| {
            (value > most)
                .then(|| format!("programs.{key} is {value}: give a number from 1 to {most}"))
        };
        let is_server = match &self.rpc {
            SourceAddress::Kind(SourceKind::Auto | SourceKind::None) => true,
            other => other.kind().entries() == Entries::Always,
        };
        let source = (!is_server).then(|| {
            "programs.rpc names no RPC server: give auto, none, rpc or rpc:ADDRESS".to_owned()
        });
        source
            .or_else(|| too_much("memory_mib", self.memory_mib.into(), MAX_MEMORY_MIB))
            .or_else(|| too_much("depth", self.depth.get(), MAX_DEPTH))
    }

    /// Returns the server to ask for ledger entries that are not stored: an RPC server, or the
    /// stellar-core that this process follows ([`SourceSpec::Core`]); `None` when there is none.
    ///
    /// # Errors
    /// As [`Source::plan`].
    pub fn entries_source(
        &self,
        source: &Source,
        network: &Network,
    ) -> Result<Option<SourceSpec>, SourceError> {
        let is_server = |source: &SourceSpec| source.kind().entries() == Entries::Always;
        if self.rpc != SourceAddress::Kind(SourceKind::Auto) {
            let named = source.named(&self.rpc, network)?;
            return Ok(named.into_iter().find(is_server));
        }
        let plan = source.plan(network)?;
        let followed =
            plan.live.clone().filter(|source| source.kind().entries() == Entries::WhileFollowed);
        Ok(plan.live.into_iter().chain(plan.gaps).find(is_server).or(followed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(network: &str, change: impl FnOnce(&mut Programs, &mut Source)) -> Option<String> {
        let (mut programs, mut source) = (Programs::default(), Source::default());
        change(&mut programs, &mut source);
        let network = Network::from_name_or_passphrase(network);
        match programs.entries_source(&source, &network).unwrap() {
            Some(SourceSpec::Rpc { url, .. }) => Some(url.reveal().to_owned()),
            other => other.map(|other| other.kind().to_string()),
        }
    }

    fn address(text: &str) -> SourceAddress {
        SourceAddress::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn entries_are_requested_from_the_followed_or_the_configured_server() {
        let testnet = Some("https://soroban-testnet.stellar.org".to_owned());
        assert_eq!(asked("testnet", |_, _| {}), testnet);
        assert_eq!(asked("mainnet", |_, _| {}), None);
        assert_eq!(asked("local", |_, _| {}), None);
        assert_eq!(asked("testnet", |programs, _| programs.rpc = address("none")), None);
        let own = Some("https://rpc.example.org/key".to_owned());
        let name = |programs: &mut Programs, _: &mut Source| {
            programs.rpc = address("rpc:https://rpc.example.org/key");
        };
        assert_eq!(asked("mainnet", name), own);
        let follow = |_: &mut Programs, source: &mut Source| {
            source.kind = SourceKind::Rpc;
            source.rpc_url = "https://rpc.example.org/key".to_owned().try_into().unwrap();
        };
        assert_eq!(asked("mainnet", follow), own);
        let sandbox = |_: &mut Programs, source: &mut Source| source.kind = SourceKind::Sandbox;
        assert_eq!(asked("testnet", sandbox), None);
        let core = |_: &mut Programs, source: &mut Source| source.kind = SourceKind::Core;
        assert_eq!(asked("mainnet", core), Some("core".to_owned()));
        let beside = |programs: &mut Programs, source: &mut Source| {
            core(programs, source);
            source.gaps = vec![address("rpc:https://rpc.example.org/key")];
        };
        assert_eq!(asked("mainnet", beside), own);
        let nobody = |programs: &mut Programs, source: &mut Source| {
            core(programs, source);
            programs.rpc = address("none");
        };
        assert_eq!(asked("mainnet", nobody), None);
        let in_gaps = |_: &mut Programs, source: &mut Source| {
            source.kind = SourceKind::Lake;
            source.gaps = vec![address("core")];
        };
        assert_eq!(asked("mainnet", in_gaps), None);
    }

    #[test]
    fn invalid_servers_and_excessive_limits_are_refused() {
        let refused = |change: fn(&mut Programs)| {
            let mut programs = Programs::default();
            change(&mut programs);
            programs.validation_error().unwrap()
        };
        assert_eq!(
            refused(|programs| programs.rpc = address("/srv/lake")),
            "programs.rpc names no RPC server: give auto, none, rpc or rpc:ADDRESS"
        );
        assert_eq!(
            refused(|programs| programs.memory_mib = Mib::new(nonzero!(4097))),
            "programs.memory_mib is 4097: give a number from 1 to 4096"
        );
        assert_eq!(
            refused(|programs| programs.depth = nonzero!(65)),
            "programs.depth is 65: give a number from 1 to 64"
        );
        assert_eq!(Programs::default().validation_error(), None);
    }
}
