//! Derives distinct events from recorded ones: each copy of a ledger gets other accounts, amounts
//! and ids in the same places. Depends on the structure of values, not on ledgers.
//!
//! What a network repeats stays repeated. Contracts, symbols and asset names stay. Accounts that
//! act in most of the recorded ledgers (exchanges, bots) stay; any other account is replaced,
//! throughout the copy, by one drawn from a pool in which the n-th account is drawn 1/n as often as
//! the first. Round and tiny amounts stay, all others change.

use std::collections::{BTreeMap, BTreeSet};

use stellar_xdr::{
    AccountId, ClaimableBalanceId, ContractEventBody, Int128Parts, PublicKey, ScAddress, ScBytes,
    ScVal, Uint256, VecM,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of accounts in the pool.
const POOL: f64 = 500_000.0;
/// Smaller amounts are fees and spam; multiples of this amount are typed by people.
const ROUND_AMOUNT: i128 = 1_000;

/// Accounts that are not replaced.
pub struct Regulars(BTreeSet<[u8; 32]>);

impl Regulars {
    /// Returns the accounts that occur in at least half of the ledgers. Each ledger is given by its
    /// events.
    pub fn of<'a>(ledgers: impl Iterator<Item = Vec<&'a ContractEventBody>>) -> Self {
        let mut occurs_in = BTreeMap::<[u8; 32], usize>::new();
        let mut count = 0;
        for events in ledgers {
            count += 1;
            let mut here = BTreeSet::new();
            for ContractEventBody::V0(body) in events {
                body.topics.iter().for_each(|topic| collect(topic, &mut here));
                collect(&body.data, &mut here);
            }
            for account in here {
                *occurs_in.entry(account).or_default() += 1;
            }
        }
        let regulars = occurs_in.into_iter().filter(|(_, n)| 2 * n >= count);
        Self(regulars.map(|(account, _)| account).collect())
    }
}

fn collect(value: &ScVal, accounts: &mut BTreeSet<[u8; 32]>) {
    match value {
        ScVal::Address(ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(key)))) => {
            accounts.insert(key.0);
        }
        ScVal::Vec(Some(values)) => values.iter().for_each(|value| collect(value, accounts)),
        ScVal::Map(Some(entries)) => entries.iter().for_each(|e| collect(&e.val, accounts)),
        _ => {}
    }
}

/// The replacements in one copy.
pub struct Variation<'r> {
    regulars: &'r Regulars,
    copy: u64,
    /// Incremented for every random value, so that no two amounts change alike.
    step: u64,
}

impl<'r> Variation<'r> {
    /// Creates the variation of the copy with number `copy`, starting at the part of it with number
    /// `part`.
    pub fn new(regulars: &'r Regulars, copy: u64, part: u64) -> Self {
        Self { regulars, copy, step: part << 32 }
    }

    /// Returns the 32 bytes that replace these throughout the copy.
    pub fn bytes32(&self, original: &[u8; 32]) -> [u8; 32] {
        spread(xxh3_64_with_seed(original, self.copy))
    }

    /// Returns the event as it is in this copy.
    pub fn body(&mut self, body: &ContractEventBody) -> ContractEventBody {
        let ContractEventBody::V0(mut body) = body.clone();
        edit(&mut body.topics, |topics| topics.iter_mut().for_each(|topic| self.value(topic)));
        self.value(&mut body.data);
        ContractEventBody::V0(body)
    }

    fn value(&mut self, value: &mut ScVal) {
        match value {
            ScVal::Address(address) => self.address(address),
            ScVal::I128(amount) => *amount = self.amount(amount),
            ScVal::U64(number) if *number > 1 << 20 => *number ^= self.random() & 0xf_ffff,
            ScVal::Bytes(bytes) if bytes.len() == 32 => self.digest(bytes),
            ScVal::Vec(Some(values)) => {
                edit(&mut values.0, |values| values.iter_mut().for_each(|v| self.value(v)));
            }
            ScVal::Map(Some(map)) => {
                edit(&mut map.0, |entries| entries.iter_mut().for_each(|e| self.value(&mut e.val)));
            }
            _ => {}
        }
    }

    fn address(&self, address: &mut ScAddress) {
        match address {
            ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(key))) => {
                *key = Uint256(self.account(&key.0));
            }
            ScAddress::MuxedAccount(muxed) => {
                muxed.ed25519 = Uint256(self.account(&muxed.ed25519.0));
                muxed.id ^= self.copy;
            }
            ScAddress::ClaimableBalance(ClaimableBalanceId::ClaimableBalanceIdTypeV0(id)) => {
                id.0 = self.bytes32(&id.0);
            }
            ScAddress::Contract(_) | ScAddress::LiquidityPool(_) | ScAddress::MuxedContract(_) => {}
        }
    }

    fn account(&self, original: &[u8; 32]) -> [u8; 32] {
        if self.regulars.0.contains(original) {
            return *original;
        }
        let uniform = xxh3_64_with_seed(original, self.copy) as f64 / u64::MAX as f64;
        spread(POOL.powf(uniform) as u64)
    }

    fn amount(&mut self, parts: &Int128Parts) -> Int128Parts {
        let amount = i128::from(parts.hi) << 64 | i128::from(parts.lo);
        if amount.abs() < ROUND_AMOUNT || amount % ROUND_AMOUNT == 0 {
            return parts.clone();
        }
        // Between half and one and a half times the original.
        let factor = (1 << 15) + i128::from(self.random() & 0xffff);
        let varied = amount.checked_mul(factor).map_or(amount, |product| product >> 16);
        Int128Parts { hi: (varied >> 64) as i64, lo: varied as u64 }
    }

    fn digest(&self, bytes: &mut ScBytes) {
        if let Ok(original) = <[u8; 32]>::try_from(bytes.as_slice())
            && let Ok(varied) = self.bytes32(&original).try_into()
        {
            *bytes = ScBytes(varied);
        }
    }

    fn random(&mut self) -> u64 {
        self.step += 1;
        xxh3_64_with_seed(&self.step.to_be_bytes(), self.copy)
    }
}

/// Returns 32 bytes that look like a digest or key.
pub fn spread(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (part, chunk) in (0u8..).zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&xxh3_64_with_seed(&[part], seed).to_be_bytes());
    }
    bytes
}

/// Changes the elements of an XDR list, which cannot be borrowed mutably.
pub fn edit<T: Clone, const MAX: u32>(list: &mut VecM<T, MAX>, change: impl FnOnce(&mut Vec<T>)) {
    let mut elements = std::mem::take(list).into_vec();
    change(&mut elements);
    *list = elements.try_into().unwrap_or_else(|_| unreachable!("no element was added"));
}
