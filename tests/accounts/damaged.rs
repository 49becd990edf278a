//! Damaged rows: a lookup that meets one fails, and its error names the row by family and whole key.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::str::FromStr;

use orrery::accounts::passkey::{self, PasskeyWallets};
use orrery::accounts::smart::{self, SmartAccounts};
use orrery::accounts::{AccountIndex, Tag, with_signer};
use orrery::domain::ContractId;
use orrery::store::StoreError;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use stellar_xdr::ScAddress;

use crate::histories::{AccountKind, history};
use crate::ingestion_order::{recognised, take};
use crate::memory::Memory;

const LEDGERS: u32 = 30;
const CONTRACTS: u16 = 6;
/// Families that lookups read row by row or by contract.
const SMART: [&str; 3] = ["accounts", "signers", "state"];
const PASSKEY: [&str; 4] = ["keys", "order", "signers", "wallets"];

/// Makes all lookups with a row damaged, for one row after the other, and asserts that those that
/// fail name it. Returns the families of which a row was named.
fn named_families(
    rows: &Memory,
    lookups: impl Fn(&Memory) -> Vec<Result<(), StoreError>>,
) -> BTreeSet<String> {
    assert!(lookups(rows).into_iter().all(|found| found.is_ok()));
    let mut named = BTreeSet::new();
    for (family, key) in rows.0.keys() {
        let mut damaged = rows.clone();
        damaged.0.insert((family.clone(), key.clone()), vec![0xff]);
        for error in lookups(&damaged).into_iter().filter_map(Result::err) {
            let StoreError::Corrupt { family: found, key: found_key } = &error else {
                panic!("{error}");
            };
            assert_eq!((*found, found_key), (family.as_str(), &hex::encode(key)));
            named.insert(family.clone());
        }
    }
    named
}

#[test]
fn errors_name_the_damaged_row() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let contract = |text: &String| ContractId::from_str(text).unwrap();
    let address = |text: &String| Tag::of_address(&ScAddress::from_str(text).unwrap());
    let credential = |text: &String| Tag::of_credential(&hex::decode(text).unwrap());

    let ledgers = history(&mut rng, AccountKind::Smart, LEDGERS, CONTRACTS);
    let (mut naive, mut other) = Default::default();
    take(&mut naive, &mut other, &ledgers);
    let (contracts, credentials, addresses) = naive.names();
    let mut rows = Memory::default();
    SmartAccounts::apply_events(&mut rows, &recognised(&ledgers, SmartAccounts::recognise))
        .unwrap();
    let named = named_families(&rows, |rows| {
        let accounts = contracts
            .iter()
            .map(|it| smart::lookup::account(rows, &contract(it), usize::MAX).map(drop));
        let of_credentials = credentials.iter().map(|it| {
            with_signer::<SmartAccounts>(rows, credential(it), None, |_, _, _| {
                ControlFlow::Continue(())
            })
        });
        let of_addresses = addresses.iter().map(|it| {
            with_signer::<SmartAccounts>(rows, address(it), None, |_, _, _| {
                ControlFlow::Continue(())
            })
        });
        accounts.chain(of_credentials).chain(of_addresses).collect()
    });
    assert_eq!(named.iter().map(String::as_str).collect::<Vec<_>>(), SMART);

    let ledgers = history(&mut rng, AccountKind::Passkey, LEDGERS, CONTRACTS);
    let (mut other, mut naive) = Default::default();
    take(&mut other, &mut naive, &ledgers);
    let (wallets, credentials, addresses) = naive.names();
    let mut rows = Memory::default();
    PasskeyWallets::apply_events(&mut rows, &recognised(&ledgers, PasskeyWallets::recognise))
        .unwrap();
    let named = named_families(&rows, |rows| {
        let signers = wallets
            .iter()
            .map(|it| passkey::lookup::signers(rows, &contract(it), |_| ControlFlow::Continue(())));
        let of_credentials = credentials.iter().map(|it| {
            with_signer::<PasskeyWallets>(rows, credential(it), None, |_, _, _| {
                ControlFlow::Continue(())
            })
        });
        let of_addresses = addresses.iter().map(|it| {
            with_signer::<PasskeyWallets>(rows, address(it), None, |_, _, _| {
                ControlFlow::Continue(())
            })
        });
        signers.chain(of_credentials).chain(of_addresses).collect()
    });
    assert_eq!(named.iter().map(String::as_str).collect::<Vec<_>>(), PASSKEY);
}
