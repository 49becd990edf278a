//! As much of one thing as the caller asks for: rows, bytes, work, memory, depth, entries.
#![no_std]
use soroban_sdk::{Bytes, Env, Vec, contract, contractimpl, symbol_short};

#[cfg(feature = "program")]
mod emitted {
    use retroshade_sdk::{Retroshade, zephyr_emit};
    use soroban_sdk::{Bytes, Env, IntoVal, Map, Symbol, Val, Vec, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct HeavyRow {
        pub number: u32,
        pub payload: Bytes,
    }

    #[derive(Retroshade)]
    #[contracttype]
    pub struct RandomNumber {
        pub number: u32,
        pub value: u64,
    }

    /// A row into `target` with columns that only the caller knows.
    pub fn row(env: &Env, target: &str, fields: Map<Symbol, Val>) {
        let target = Symbol::new(env, target).as_val().get_payload() as i64;
        unsafe { zephyr_emit(target, fields.as_val().get_payload() as i64) };
    }

    pub fn wide(env: &Env, columns: u32) {
        let mut fields = Map::new(env);
        for column in 0..columns {
            let mut name = *b"column_000";
            for (digit, unit) in name[7..].iter_mut().zip([100, 10, 1]) {
                *digit += (column / unit % 10) as u8;
            }
            fields.set(Symbol::new(env, core::str::from_utf8(&name).unwrap_or("x")), column.into());
        }
        row(env, "wide_row", fields);
    }

    pub fn deep(env: &Env, levels: u32) {
        let mut value: Val = 7_u32.into();
        for _ in 0..levels {
            value = Vec::from_array(env, [value]).into_val(env);
        }
        row(env, "deep_row", Map::from_array(env, [(Symbol::new(env, "value"), value)]));
    }
}

#[contract]
pub struct Heavy;

#[contractimpl]
impl Heavy {
    /// Emits `count` rows with `bytes` bytes each. Returns how many.
    pub fn rows(env: Env, count: u32, bytes: u32) -> u32 {
        let payload = payload(&env, bytes);
        for number in 0..count {
            #[cfg(feature = "program")]
            emitted::HeavyRow { number, payload: payload.clone() }.emit(&env);
            let _ = (number, &payload);
        }
        count
    }

    /// Goes round `times` times without calling the host.
    pub fn spin(_env: Env, times: u64) -> u64 {
        let mut state = times;
        for _ in 0..times {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        state
    }

    /// Calls the host `times` times.
    pub fn host_calls(env: Env, times: u32) -> u64 {
        (0..times).map(|_| u64::from(env.ledger().sequence())).sum()
    }

    /// Asks for `pages` more pages of memory of 64 KiB; what the instruction answers: the pages before, or
    /// 4294967295 when there are none.
    pub fn grow(_env: Env, pages: u32) -> u32 {
        #[cfg(target_family = "wasm")]
        return core::arch::wasm32::memory_grow(0, pages as usize) as u32;
        #[cfg(not(target_family = "wasm"))]
        return pages;
    }

    /// Calls itself `depth` times, one within the other, on the stack of the module.
    pub fn recurse(_env: Env, depth: u32) -> u32 {
        recurse(depth)
    }

    /// Creates `count` objects of `bytes` bytes in the host, keeps them all, and returns how many.
    pub fn objects(env: Env, count: u32, bytes: u32) -> u32 {
        let mut all = Vec::new(&env);
        for number in 0..count {
            let mut object = payload(&env, bytes);
            object.extend_from_array(&number.to_be_bytes());
            all.push_back(object);
        }
        all.len()
    }

    /// Writes `count` temporary entries.
    pub fn store(env: Env, count: u32) -> u32 {
        for number in 0..count {
            env.storage().temporary().set(&(symbol_short!("heavy"), number), &number);
        }
        count
    }

    /// Draws `count` random numbers and emits them. Returns the last.
    pub fn random(env: Env, count: u32) -> u64 {
        let mut value = 0;
        for number in 0..count {
            value = env.prng().gen();
            #[cfg(feature = "program")]
            emitted::RandomNumber { number, value }.emit(&env);
            let _ = number;
        }
        value
    }

    /// One row with `columns` columns, at most 1000.
    pub fn wide(env: Env, columns: u32) -> u32 {
        #[cfg(feature = "program")]
        emitted::wide(&env, columns);
        let _ = env;
        columns
    }

    /// One row with a vector in a vector in a vector, `levels` times.
    pub fn deep(env: Env, levels: u32) -> u32 {
        #[cfg(feature = "program")]
        emitted::deep(&env, levels);
        let _ = env;
        levels
    }
}

/// The stack grows with every call, and the compiler cannot make a loop of it.
#[inline(never)]
fn recurse(depth: u32) -> u32 {
    let frame = core::hint::black_box([depth; 16]);
    if depth == 0 {
        return 0;
    }
    recurse(depth - 1) + core::hint::black_box(&frame).len() as u32 / 16
}

/// `length` bytes: 0, 1, … 255, 0, 1, …
fn payload(env: &Env, length: u32) -> Bytes {
    let mut block = [0_u8; 256];
    for (value, byte) in (0..=255_u8).zip(block.iter_mut()) {
        *byte = value;
    }
    let mut bytes = Bytes::from_array(env, &block);
    while bytes.len() < length {
        bytes.append(&bytes.clone());
    }
    bytes.slice(0..length)
}
