//! Rows of frames that are rolled back are discarded, whichever contract causes the rollback: trees
//! of contracts, with and without a program, that call one another and fail, are compared with a
//! short model.

use std::fmt::Write;

use orrery::domain::ContractId;
use orrery::programs::engine::Outcome;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use stellar_xdr::{ScSymbol, ScVal, ScVec};

use orrery_testkit::engine_world::{ENV_META, World, address, call, run};
use orrery_testkit::size;
use orrery_testkit::wasm_text::{env_call, env_imports, imports, map_of, sym, u32v, vec_of};

/// A contract that records its number, calls others, records its number again, and may fail.
#[derive(Debug, Clone)]
struct Node {
    number: u8,
    has_program: bool,
    fails: bool,
    /// Called contracts, each with whether this one continues when the call fails.
    calls: Vec<(Node, bool)>,
}

impl Node {
    /// Returns the expected records that survive, or `None` when the contract fails.
    fn model(&self) -> Option<Vec<(u8, u32)>> {
        let mut rows = vec![(self.number, 1)];
        for (callee, caught) in &self.calls {
            match callee.model() {
                Some(noted) => rows.extend(noted),
                None if *caught => {}
                None => return None,
            }
        }
        rows.push((self.number, 2));
        (!self.fails).then_some(rows)
    }

    fn nodes(&self) -> Vec<&Node> {
        let below = self.calls.iter().flat_map(|(callee, _)| callee.nodes());
        std::iter::once(self).chain(below).collect()
    }

    /// Returns the argument of the contract: which contracts to call with which argument, and
    /// whether to fail.
    fn plan(&self) -> ScVal {
        let calls = self.calls.iter().map(|(callee, caught)| {
            let callee_address = ScVal::Address(address(ContractId([callee.number; 32])));
            vec(vec![callee_address, callee.plan(), ScVal::U32(u32::from(*caught))])
        });
        vec(vec![vec(calls.collect()), ScVal::U32(u32::from(self.fails))])
    }
}

fn vec(items: Vec<ScVal>) -> ScVal {
    ScVal::Vec(Some(ScVec(items.try_into().unwrap())))
}

/// Returns the contract's code. `note` is the code that records `$n`: it emits a row, or an event.
fn code(imports: &str, note: &str) -> Vec<u8> {
    let get = |vec: &str, index: &str| {
        env_call("vec_get", &[format!("(local.get {vec})"), index.to_owned()])
    };
    let index = "(i64.or (i64.shl (local.get $i) (i64.const 32)) (i64.const 4))";
    let mut text = String::new();
    write!(
        text,
        "(module {imports} (memory (export \"memory\") 1)
        (func $note (param $n i64) {note})
        (func (export \"go\") (param $plan i64) (result i64)
            (local $calls i64) (local $one i64) (local $i i64)
            (call $note {})
            (local.set $calls {})
            (block $done (loop $next
                (br_if $done (i64.eq {index} (call $vec_len (local.get $calls))))
                (local.set $one {})
                (if (i64.eq {} {})
                    (then (drop {}))
                    (else (drop {})))
                (local.set $i (i64.add (local.get $i) (i64.const 1)))
                (br $next)))
            (call $note {})
            (if (i64.eq {} {}) (then (unreachable)))
            (i64.const 2)) {ENV_META})",
        u32v(1),
        get("$plan", &u32v(0)),
        get("$calls", index),
        get("$one", &u32v(2)),
        u32v(1),
        env_call("try_call", &[get("$one", &u32v(0)), sym("go"), vec_of(&[get("$one", &u32v(1))])]),
        env_call("call", &[get("$one", &u32v(0)), sym("go"), vec_of(&[get("$one", &u32v(1))])]),
        u32v(2),
        get("$plan", &u32v(1)),
        u32v(1),
    )
    .unwrap();
    wat::parse_str(text).unwrap()
}

struct Codes {
    program: Vec<u8>,
    plain: Vec<u8>,
}

impl Codes {
    fn new() -> Self {
        let row = map_of(&[("n", "(local.get $n)".to_owned())]);
        let program = code(&imports(), &format!("(drop (call $emit {} {row}))", sym("row")));
        let event = vec_of(&[sym("row")]);
        let plain =
            code(&env_imports(), &format!("(drop (call $contract_event {event} (local.get $n)))"));
        Self { program, plain }
    }

    fn run(&self, tree: &Node) -> Outcome {
        let mut world = World::default();
        let mut programs = Vec::new();
        for node in tree.nodes() {
            let id = world.contract(node.number, &self.plain);
            if node.has_program {
                programs.push(id);
            }
        }
        let root = ContractId([tree.number; 32]);
        let invocation = call(root, "go", &[tree.plan()]);
        let checked = orrery::programs::engine::Invocation { recorded: None, ..invocation };
        run(&world, &self.program, &programs, &checked).unwrap()
    }

    fn check(&self, tree: &Node) -> bool {
        let outcome = self.run(tree);
        let Some(noted) = tree.model() else {
            outcome.result.expect_err("the call fails as a whole");
            return false;
        };
        let nodes = tree.nodes();
        let has_program = |number: u8| nodes.iter().any(|n| n.number == number && n.has_program);
        let expected: Vec<_> =
            noted.into_iter().filter(|(number, _)| has_program(*number)).collect();
        let field = ScVal::Symbol(ScSymbol("n".try_into().unwrap()));
        let rows: Vec<_> = outcome
            .result
            .unwrap()
            .iter()
            .map(|emit| {
                assert_eq!((emit.target.as_str(), &emit.fields[0].key), ("row", &field));
                let ScVal::U32(time) = emit.fields[0].val else { panic!("{emit:?}") };
                (emit.contract.0[0], time)
            })
            .collect();
        assert_eq!(rows, expected, "{tree:?}");
        true
    }
}

#[test]
fn rolled_back_rows_match_the_model_in_every_chain_of_three_contracts() {
    let codes = Codes::new();
    let (mut kept, mut failed) = (0, 0);
    for bits in 0..256_u32 {
        let bit = |at: u32| bits >> at & 1 == 1;
        let node = |number: u8, at: u32, calls| Node {
            number,
            has_program: bit(at),
            fails: bit(at + 3),
            calls,
        };
        let third = node(3, 2, Vec::new());
        let second = node(2, 1, vec![(third, bit(7))]);
        let first = node(1, 0, vec![(second, bit(6))]);
        if codes.check(&first) {
            kept += 1;
        } else {
            failed += 1;
        }
    }
    println!("{kept} chains with rows, {failed} that fail as a whole");
    assert_eq!(kept + failed, 256);
    assert!(kept > 50 && failed > 50);
}

#[test]
fn rolled_back_rows_match_the_model_in_random_call_trees() {
    let codes = Codes::new();
    let mut dice = ChaCha8Rng::seed_from_u64(11);
    let trees = size::choose(150, 3_000);
    let kept = (0..trees).filter(|_| codes.check(&tree(&mut dice, &mut 0, 3))).count();
    println!("{kept} of {trees} trees keep rows");
    assert!(kept as u64 > trees / 4);
}

fn tree(dice: &mut ChaCha8Rng, number: &mut u8, levels: u32) -> Node {
    *number += 1;
    let own = *number;
    let chance = |dice: &mut ChaCha8Rng, of: u32| dice.next_u32().is_multiple_of(of);
    let (has_program, fails) = (!chance(dice, 3), chance(dice, 4));
    let count = if levels == 1 { 0 } else { dice.next_u32() % 4 };
    let calls = (0..count)
        .map(|_| {
            let callee = tree(dice, number, levels - 1);
            (callee, !chance(dice, 4))
        })
        .collect();
    Node { number: own, has_program, fails, calls }
}
