//! Deposits that are counted in storage: one authorisation, one entry read and written, one event. As a
//! program it emits eight fields for each.
#![no_std]
use soroban_sdk::{Address, Env, contract, contractevent, contractimpl, contracttype};

#[contracttype]
pub struct Account {
    pub balance: i128,
    pub deposits: u32,
}

#[contractevent(topics = ["deposit"])]
pub struct Credited {
    #[topic]
    pub account: Address,
    pub amount: i128,
    pub balance: i128,
}

#[cfg(feature = "program")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::{Address, Symbol, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct DepositMade {
        pub account: Address,
        pub kind: Symbol,
        pub amount: i128,
        pub before: i128,
        pub after: i128,
        pub number: u32,
        pub ledger: u32,
        pub closed_at: u64,
    }
}

#[contract]
pub struct Deposit;

#[contractimpl]
impl Deposit {
    /// Adds `amount` to the balance of `account` and returns the new balance. Traps, after emitting, when
    /// `amount` is not above zero.
    pub fn deposit(env: Env, account: Address, amount: i128) -> i128 {
        account.require_auth();
        let storage = env.storage().persistent();
        let old: Account = storage.get(&account).unwrap_or(Account { balance: 0, deposits: 0 });
        let new = Account { balance: old.balance + amount, deposits: old.deposits + 1 };
        storage.set(&account, &new);
        Credited { account: account.clone(), amount, balance: new.balance }.publish(&env);
        #[cfg(feature = "program")]
        emitted::DepositMade {
            account,
            kind: soroban_sdk::symbol_short!("deposit"),
            amount,
            before: old.balance,
            after: new.balance,
            number: new.deposits,
            ledger: env.ledger().sequence(),
            closed_at: env.ledger().timestamp(),
        }
        .emit(&env);
        if amount <= 0 {
            panic!("amount");
        }
        new.balance
    }

    pub fn balance(env: Env, account: Address) -> i128 {
        env.storage().persistent().get(&account).map_or(0, |found: Account| found.balance)
    }
}
