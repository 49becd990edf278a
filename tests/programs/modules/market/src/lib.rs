//! A small market: goods are offered for cash, and whoever takes part of an offer pays for it. As a program
//! it emits one row for each trade.
#![no_std]
use soroban_sdk::{
    Address, Env, Symbol, contract, contracterror, contractevent, contractimpl, contracttype,
    panic_with_error, symbol_short,
};

// Most goods that can be offered at once.
const MOST: i128 = 1 << 64;

// How many offers there have been; the newest has this id.
const OFFERS: Symbol = symbol_short!("offers");

// Comments on public items would end in the module; these do not.
#[contracttype]
pub enum Key {
    Offer(u64),
    Account(Address),
}

#[contracttype]
#[derive(Clone)]
pub struct Account {
    pub cash: i128,
    pub goods: i128,
}

#[contracttype]
#[derive(Clone)]
pub struct Offer {
    pub maker: Address,
    // Goods that are left.
    pub amount: i128,
    // Cash for one of the goods.
    pub price: u32,
}

#[contracterror]
#[derive(Clone, Copy)]
pub enum Refused {
    Amount = 1,
    Funds = 2,
    NoOffer = 3,
}

#[contractevent(topics = ["placed"])]
pub struct Placed {
    #[topic]
    pub maker: Address,
    pub id: u64,
    pub amount: i128,
    pub price: u32,
}

#[contractevent(topics = ["filled"])]
pub struct Filled {
    #[topic]
    pub maker: Address,
    #[topic]
    pub taker: Address,
    pub id: u64,
    pub amount: i128,
}

#[cfg(feature = "program")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::{Address, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct Trade {
        pub id: u64,
        pub maker: Address,
        pub taker: Address,
        pub amount: i128,
        pub price: u32,
        pub cost: i128,
        pub timestamp: u64,
    }
}

#[contract]
pub struct Market;

#[contractimpl]
impl Market {
    // Brings cash and goods.
    pub fn fund(env: Env, who: Address, cash: i128, goods: i128) {
        who.require_auth();
        refuse_unless(&env, cash >= 0 && goods >= 0, Refused::Amount);
        add(&env, who, cash, goods);
    }

    // Offers `amount` goods for `price` each. Returns the offer's id.
    pub fn place(env: Env, maker: Address, amount: i128, price: u32) -> u64 {
        maker.require_auth();
        refuse_unless(&env, amount > 0 && amount <= MOST && price > 0, Refused::Amount);
        add(&env, maker.clone(), 0, -amount);
        let id = env.storage().instance().get(&OFFERS).unwrap_or(0_u64) + 1;
        env.storage().instance().set(&OFFERS, &id);
        let offer = Offer { maker: maker.clone(), amount, price };
        env.storage().persistent().set(&Key::Offer(id), &offer);
        Placed { maker, id, amount, price }.publish(&env);
        id
    }

    // Takes `amount` goods of an offer. Returns what they cost.
    pub fn fill(env: Env, taker: Address, id: u64, amount: i128) -> i128 {
        taker.require_auth();
        let mut offer = offer(&env, id);
        refuse_unless(&env, amount > 0 && amount <= offer.amount, Refused::Amount);
        // Cannot overflow: see `MOST`.
        let cost = amount.wrapping_mul(i128::from(offer.price));
        add(&env, taker.clone(), -cost, amount);
        add(&env, offer.maker.clone(), cost, 0);
        offer.amount -= amount;
        keep(&env, id, &offer);
        let maker = offer.maker;
        Filled { maker: maker.clone(), taker: taker.clone(), id, amount }.publish(&env);
        #[cfg(feature = "program")]
        emitted::Trade {
            id,
            maker,
            taker,
            amount,
            price: offer.price,
            cost,
            timestamp: env.ledger().timestamp(),
        }
        .emit(&env);
        cost
    }

    pub fn account(env: Env, who: Address) -> Account {
        read(&env, &who)
    }
}

fn refuse_unless(env: &Env, fine: bool, error: Refused) {
    if !fine {
        panic_with_error!(env, error);
    }
}

fn read(env: &Env, who: &Address) -> Account {
    let key = Key::Account(who.clone());
    env.storage().persistent().get(&key).unwrap_or(Account { cash: 0, goods: 0 })
}

/// Adds to what somebody has, or takes away; nobody has less than nothing.
fn add(env: &Env, who: Address, cash: i128, goods: i128) {
    let mut account = read(env, &who);
    account.cash += cash;
    account.goods += goods;
    refuse_unless(env, account.cash >= 0 && account.goods >= 0, Refused::Funds);
    env.storage().persistent().set(&Key::Account(who), &account);
}

fn offer(env: &Env, id: u64) -> Offer {
    let found = env.storage().persistent().get(&Key::Offer(id));
    found.unwrap_or_else(|| panic_with_error!(env, Refused::NoOffer))
}

/// Keeps an offer as long as something of it is left.
fn keep(env: &Env, id: u64, offer: &Offer) {
    let key = Key::Offer(id);
    if offer.amount > 0 {
        env.storage().persistent().set(&key, offer);
    } else {
        env.storage().persistent().remove(&key);
    }
}
