//! Every type a contract can have as a field. Each function takes a struct and, as a program, emits it
//! unchanged, so that a test chooses the values.
#![no_std]
use soroban_sdk::{
    Address, Bytes, BytesN, Duration, Env, Error, I256, Map, MuxedAddress, String, Symbol,
    Timepoint, U256, Val, Vec, contract, contracterror, contractimpl, contracttype,
};

#[cfg(feature = "program")]
use retroshade_sdk::Retroshade;

/// Everything that is a number.
#[cfg_attr(feature = "program", derive(Retroshade))]
#[contracttype]
pub struct Numbers {
    pub flag: bool,
    pub unsigned_32: u32,
    pub signed_32: i32,
    pub unsigned_64: u64,
    pub signed_64: i64,
    pub point_in_time: Timepoint,
    pub period: Duration,
    pub unsigned_128: u128,
    pub signed_128: i128,
    pub unsigned_256: U256,
    pub signed_256: I256,
}

/// Addresses, text and bytes.
#[cfg_attr(feature = "program", derive(Retroshade))]
#[contracttype]
pub struct Texts {
    pub address: Address,
    pub muxed: MuxedAddress,
    pub symbol: Symbol,
    pub string: String,
    pub bytes: Bytes,
    pub bytes_4: BytesN<4>,
    pub bytes_32: BytesN<32>,
}

#[cfg_attr(feature = "program", derive(Retroshade))]
#[contracttype]
pub struct Optionals {
    pub maybe_flag: Option<bool>,
    pub maybe_small: Option<u32>,
    pub maybe_large: Option<i128>,
    pub maybe_address: Option<Address>,
    pub maybe_string: Option<String>,
    pub maybe_bytes: Option<Bytes>,
    pub maybe_list: Option<Vec<u32>>,
    pub maybe_place: Option<Place>,
}

#[cfg_attr(feature = "program", derive(Retroshade))]
#[contracttype]
pub struct Collections {
    pub small: Vec<u32>,
    pub large: Vec<i128>,
    pub huge: Vec<U256>,
    pub names: Vec<Symbol>,
    pub nested: Vec<Vec<u32>>,
    pub optional: Vec<Option<u32>>,
    pub places: Vec<Place>,
    pub by_name: Map<Symbol, i128>,
    pub by_number: Map<u32, Address>,
    pub by_address: Map<Address, Vec<u64>>,
    pub by_place: Map<Place, bool>,
}

/// A struct within others.
#[contracttype]
#[derive(Clone)]
pub struct Place {
    pub x: i32,
    pub y: i64,
    pub label: Symbol,
}

#[contracttype]
pub struct Line {
    pub from: Place,
    pub to: Place,
}

/// A struct without names, which is a vector.
#[contracttype]
pub struct Pair(pub u32, pub i128);

#[contracttype]
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Level {
    Low = 1,
    Middle = 50,
    High = 4_294_967_295,
}

#[contracttype]
pub enum Figure {
    Nothing,
    Circle(u32),
    Corner(Place),
    Box(i128, i128),
    Group(Vec<Figure>),
}

#[contracterror]
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Problem {
    TooSmall = 1,
    TooLarge = 4_000_000_000,
}

#[cfg_attr(feature = "program", derive(Retroshade))]
#[contracttype]
pub struct Compounds {
    pub place: Place,
    pub line: Line,
    pub pair: Pair,
    pub tuple: (u32, Symbol, Address),
    pub level: Level,
    pub figure: Figure,
    pub problem: Problem,
    pub nothing: (),
}

/// What has no type of its own.
#[cfg_attr(feature = "program", derive(Retroshade))]
#[contracttype]
pub struct Anythings {
    pub anything: Val,
    pub error: Error,
    pub mixed: Vec<Val>,
    pub mixed_map: Map<Val, Val>,
}

#[contract]
pub struct Types;

#[contractimpl]
impl Types {
    pub fn numbers(env: Env, value: Numbers) {
        #[cfg(feature = "program")]
        value.emit(&env);
        let _ = (env, value);
    }

    pub fn texts(env: Env, value: Texts) {
        #[cfg(feature = "program")]
        value.emit(&env);
        let _ = (env, value);
    }

    pub fn optionals(env: Env, value: Optionals) {
        #[cfg(feature = "program")]
        value.emit(&env);
        let _ = (env, value);
    }

    pub fn collections(env: Env, value: Collections) {
        #[cfg(feature = "program")]
        value.emit(&env);
        let _ = (env, value);
    }

    pub fn compounds(env: Env, value: Compounds) {
        #[cfg(feature = "program")]
        value.emit(&env);
        let _ = (env, value);
    }

    pub fn anythings(env: Env, value: Anythings) {
        #[cfg(feature = "program")]
        value.emit(&env);
        let _ = (env, value);
    }
}
