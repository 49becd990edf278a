//! Programs whose tables change from version to version, and names that make trouble. Without a feature it
//! is the contract they are all for.
#![no_std]
#![allow(non_snake_case, non_camel_case_types)]
use soroban_sdk::{Env, contract, contractimpl, symbol_short};

/// Columns as they were first.
#[cfg(feature = "v1")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::{Symbol, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct JournalEntry {
        pub id: u64,
        pub count: u32,
        pub amount: u64,
        pub note: u32,
        pub gone: Symbol,
    }
}

/// Loses `gone`, gains `added`, and has wider numbers.
#[cfg(feature = "v2")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::contracttype;

    #[derive(Retroshade)]
    #[contracttype]
    pub struct JournalEntry {
        pub id: u64,
        pub count: u64,
        pub amount: i128,
        pub note: u32,
        pub added: Option<bool>,
    }
}

/// `note` becomes what no number can be widened to.
#[cfg(feature = "v3")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::{String, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct JournalEntry {
        pub id: u64,
        pub count: u64,
        pub amount: i128,
        pub note: String,
        pub added: Option<bool>,
    }
}

#[cfg(feature = "names")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::contracttype;

    /// Words of SQL, as table and as columns.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct Select {
        pub select: u32,
        pub order: u32,
        pub table: u32,
        pub from: u32,
        pub group: u32,
        pub end: u32,
        pub null: u32,
        pub user: u32,
    }

    /// 32 characters, the most that a symbol has; its first field has 30, the most that a struct allows.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct LongestTargetASymbolCanHold {
        pub the_longest_field_name_allowed: u32,
        pub x: u32,
        pub _0: u32,
    }

    /// 33 characters: `emit` itself fails.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct LongestTargetASymbolCanHolds {
        pub x: u32,
    }

    /// `http_entry`.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct HTTPEntry {
        pub status: u32,
    }

    /// `swap_2_hop`.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct Swap2Hop {
        pub hop: u32,
    }

    /// `tick`: short enough for a symbol that is a number in the code and no text in the data.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct Tick {
        pub at: u32,
    }

    /// `two_shapes`, and so is the next.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct TwoShapes {
        pub amount: u32,
        pub first: u32,
    }

    #[derive(Retroshade)]
    #[contracttype]
    pub struct Two_Shapes {
        pub amount: u64,
        pub second: bool,
    }

    /// In the specification, its name in the data, and never emitted by a successful call.
    #[derive(Retroshade)]
    #[contracttype]
    pub struct NeverEmitted {
        pub x: u32,
    }
}

#[cfg(feature = "injected")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::{Address, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct TakesOurColumn {
        pub contract_id: Address,
        pub amount: u64,
    }
}

#[cfg(feature = "same_column")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::contracttype;

    #[derive(Retroshade)]
    #[contracttype]
    pub struct SameColumnTwice {
        pub amount: u64,
        pub Amount: u64,
    }
}

#[contract]
pub struct Evolving;

#[contractimpl]
impl Evolving {
    /// One row, whose types differ from version to version. Returns how many were recorded.
    pub fn record(env: Env, id: u64, count: u32, amount: u64, note: u32) -> u32 {
        #[cfg(feature = "v1")]
        emitted::JournalEntry { id, count, amount, note, gone: symbol_short!("gone") }.emit(&env);
        #[cfg(feature = "v2")]
        emitted::JournalEntry {
            id,
            count: u64::from(count) << 32,
            amount: i128::from(amount) << 64,
            note,
            added: (note != 0).then_some(note == 1),
        }
        .emit(&env);
        #[cfg(feature = "v3")]
        emitted::JournalEntry {
            id,
            count: u64::from(count),
            amount: -i128::from(amount),
            note: soroban_sdk::String::from_str(&env, if note == 0 { "none" } else { "some" }),
            added: None,
        }
        .emit(&env);
        #[cfg(feature = "injected")]
        emitted::TakesOurColumn { contract_id: env.current_contract_address(), amount }.emit(&env);
        #[cfg(feature = "same_column")]
        emitted::SameColumnTwice { amount, Amount: id }.emit(&env);
        let _ = (id, count, amount, note);
        recorded(&env)
    }

    /// A row in each table whose name or columns are unusual.
    pub fn names(env: Env, number: u32) -> u32 {
        #[cfg(feature = "names")]
        {
            emitted::Select {
                select: number,
                order: number + 1,
                table: number + 2,
                from: number + 3,
                group: number + 4,
                end: number + 5,
                null: number + 6,
                user: number + 7,
            }
            .emit(&env);
            emitted::LongestTargetASymbolCanHold {
                the_longest_field_name_allowed: number,
                x: number,
                _0: number,
            }
            .emit(&env);
            emitted::HTTPEntry { status: number }.emit(&env);
            emitted::Swap2Hop { hop: number }.emit(&env);
            emitted::Tick { at: number }.emit(&env);
        }
        let _ = number;
        recorded(&env)
    }

    /// Two rows of different structs in one table.
    pub fn shapes(env: Env, amount: u64) -> u32 {
        #[cfg(feature = "names")]
        {
            emitted::TwoShapes { amount: 1, first: 7 }.emit(&env);
            emitted::Two_Shapes { amount, second: true }.emit(&env);
        }
        let _ = amount;
        recorded(&env)
    }

    /// The program traps where the contract does not: the target is too long for a symbol.
    pub fn too_long(env: Env) -> u32 {
        #[cfg(feature = "names")]
        emitted::LongestTargetASymbolCanHolds { x: 1 }.emit(&env);
        recorded(&env)
    }

    /// Traps, in contract and program, after the program has emitted.
    pub fn never(env: Env) {
        #[cfg(feature = "names")]
        emitted::NeverEmitted { x: 1 }.emit(&env);
        recorded(&env);
        panic!("always");
    }
}

fn recorded(env: &Env) -> u32 {
    let storage = env.storage().instance();
    let key = symbol_short!("recorded");
    let count = storage.get(&key).unwrap_or(0_u32) + 1;
    storage.set(&key, &count);
    count
}
