//! Hostile or faulty programs: each ends within its limits, with a sentence that states what it did
//! wrong, and leaves the engine able to run the next one.

use std::time::Duration;

use orrery::domain::ContractId;
use orrery::programs::engine::{Limits, Outcome};
use stellar_xdr::ScVal;

use orrery_testkit::engine_world::{ENV_META, World, call, module, run_within};
use orrery_testkit::wasm_text::{
    Data, env_call, imports, map_of, seq, sym, u32v, val, vec_of, void, word,
};

const SELF: u8 = 1;
const OTHER: u8 = 2;

/// Limits with a short wall-clock time, so that a test that uses it up ends soon.
fn limits() -> Limits {
    Limits { wall: Duration::from_millis(800), ..Limits::default() }
}

struct Ran {
    outcome: Outcome,
}

impl Ran {
    /// Asserts that the run failed with one sentence that contains these words.
    fn fault(&self, words: &str) -> &Self {
        let fault = self.outcome.result.as_ref().expect_err(words);
        assert!(fault.0.contains(words), "'{fault}' says '{words}'");
        assert!(!fault.0.contains('\n'), "one sentence: {fault}");
        self
    }

    fn rows(&self, count: usize) -> &Self {
        assert_eq!(self.outcome.result.as_ref().unwrap().len(), count);
        self
    }

    fn within(&self, most: Duration) -> &Self {
        // Processor time, so that other load on the machine does not count.
        let (took, slack) = (self.outcome.cpu_time, Duration::from_millis(50));
        assert!(took <= most + most / 10 + slack, "{took:?}");
        self
    }
}

/// Runs the function `test` of a module with these fields as a program.
fn run(fields: &str) -> Ran {
    run_with(fields, &limits(), &World::default())
}

fn run_with(fields: &str, limits: &Limits, world: &World) -> Ran {
    let code = wat::parse_str(format!("(module {} {fields} {ENV_META})", imports())).unwrap();
    run_code(&code, limits, world, &[])
}

fn run_code(code: &[u8], limits: &Limits, world: &World, args: &[ScVal]) -> Ran {
    let mut world = world.clone();
    let harmless = module(
        "(memory (export \"memory\") 1) (func (export \"test\") (result i64) (i64.const 2))",
    );
    let contract = world.contract(SELF, &harmless);
    let outcome =
        run_within(&world, code, &[contract], &call(contract, "test", args), limits).unwrap();
    Ran { outcome }
}

const MEMORY: &str = "(memory (export \"memory\") 1)";

/// Returns the fields of a module whose function `test` has this body.
fn test_of(body: &str) -> String {
    format!("{MEMORY} (func (export \"test\") (result i64) {body})")
}

fn test_with(data: &Data, body: &str) -> String {
    format!("{} (func (export \"test\") (result i64) {body})", data.memory())
}

fn emit(target: &str, fields: &str) -> String {
    format!("(call $emit {} {fields})", sym(target))
}

#[test]
fn endless_loops_end_at_the_fuel_or_time_limit() {
    let endless = test_of("(loop (br 0)) (i64.const 2)");
    let plenty = Limits { fuel: u64::MAX / 2, ..limits() };
    run_with(&endless, &plenty, &World::default()).fault("more than 0.8 s").within(limits().wall);
    let little = Limits { fuel: 10_000_000, ..limits() };
    let ran = run_with(&endless, &little, &World::default());
    ran.fault("more than 10000000 units of fuel").within(Duration::from_millis(300));
    assert_eq!(ran.outcome.fuel, 10_000_000);

    // A loop of cheap host calls.
    let calls = test_of(&format!("(loop (drop {}) (br 0)) (i64.const 2)", env_call("dummy0", &[])));
    run_with(&calls, &plenty, &World::default()).within(limits().wall);
    // The recursive call fails, because re-entry is not allowed; the program catches that and
    // loops.
    let caught = test_of(&format!(
        "(drop (call $try_call {} {} {})) (loop (br 0)) (i64.const 2)",
        env_call("get_current_contract_address", &[]),
        sym("test"),
        env_call("vec_new", &[])
    ));
    run_with(&caught, &little, &World::default()).fault("units of fuel");
}

#[test]
fn nested_calls_share_one_fuel_limit() {
    let mut world = World::default();
    let spin = |rounds: u32| {
        format!(
            "(local $i i32) (loop (local.set $i (i32.add (local.get $i) (i32.const 1)))
             (br_if 0 (i32.lt_u (local.get $i) (i32.const {rounds}))))"
        )
    };
    let inner = ContractId([OTHER; 32]);
    let mut data = Data::default();
    let address = env_call("strkey_to_address", &[data.string(inner.to_string().as_bytes())]);
    let fields = format!(
        "{} (func (export \"test\") (result i64) {}
            (call $call {address} {} {}))
         (func (export \"inner\") (result i64) {} (i64.const 2))",
        data.memory(),
        spin(10_000),
        sym("inner"),
        env_call("vec_new", &[]),
        spin(50_000)
    );
    let code = wat::parse_str(format!("(module {} {fields} {ENV_META})", imports())).unwrap();
    let outer = world.contract(SELF, &code);
    world.contract(inner.0[0], &code);
    let run = |fuel: u64| {
        let limits = Limits { fuel, ..limits() };
        run_within(&world, &code, &[outer, inner], &call(outer, "test", &[]), &limits).unwrap()
    };
    let outcome = run(10_000_000);
    assert_eq!(outcome.result, Ok(Vec::new()));
    assert!((240_000..1_000_000).contains(&outcome.fuel), "{}", outcome.fuel);
    assert_eq!(run(10_000_000).fuel, outcome.fuel, "the same every time");
    assert_eq!(run(outcome.fuel).result, Ok(Vec::new()), "the limit itself passes");
    let fault = run(outcome.fuel / 10 * 9).result.unwrap_err();
    assert!(fault.0.contains("units of fuel"), "{fault}");
}

#[test]
fn all_instances_share_one_memory_limit() {
    let grow =
        |pages: u32| test_of(&format!("(drop (memory.grow (i32.const {pages}))) (i64.const 2)"));
    run(&grow(1023)).rows(0);
    run(&grow(1024)).fault("more than 64 MiB of memory");
    run(&grow(u32::MAX)).within(limits().wall);
    run(&test_of("(loop (drop (memory.grow (i32.const 1))) (br 0)) (i64.const 2)"))
        .fault("more than 64 MiB of memory");
    // Each instance takes 4 MiB; re-entry is refused before the memory is used up.
    let recursive = format!(
        "(memory (export \"memory\") 64) (func (export \"test\") (result i64)
            (call $call (call $get_current_contract_address) {} (call $vec_new)))",
        sym("test")
    );
    run(&recursive).fault("'call' failed with Error(Context, InvalidAction)").within(limits().wall);
    let within = Limits { memory: 2 << 20, ..limits() };
    run_with(&recursive, &within, &World::default()).fault("more than 2 MiB of memory");
    // Memory that was grown within the limit is usable.
    run(&test_of("(drop (memory.grow (i32.const 900))) (i64.store (i32.const 50000000) (i64.const 1)) (i64.const 2)"))
        .rows(0);
}

#[test]
fn deep_recursion_ends_without_a_stack_overflow() {
    run(&format!("{MEMORY} (func $down (result i64) (call $down)) (func (export \"test\") (result i64) (call $down))"))
        .fault("too deeply")
        .within(limits().wall);
    let locals = "(local i64 i64 i64 i64 i64 i64 i64 i64)".repeat(100);
    run(&format!(
        "{MEMORY} (func $down (param i64) (result i64) {locals}
        (i64.add (call $down (i64.add (local.get 0) (i64.const 1))) (local.get 0)))
        (func (export \"test\") (result i64) (call $down (i64.const 0)))"
    ))
    .fault("too deeply");
    // Mutual recursion through a table.
    run(&format!(
        "{MEMORY} (type $t (func (result i64))) (table 1 1 funcref) (elem (i32.const 0) $down)
        (func $down (result i64) (call_indirect (type $t) (i32.const 0)))
        (func (export \"test\") (result i64) (call $down))"
    ))
    .fault("too deeply");
}

/// Each contract of a chain uses its share of the stack before it calls the next one: the host's
/// depth limit is reached before the stack overflows.
#[test]
fn calls_up_to_the_host_depth_limit_do_not_overflow_the_stack() {
    let mut world = World::default();
    let mut ids = Vec::new();
    let mut programs = Vec::new();
    // Each contract reads the next one, with its own number plus one, from its data.
    let body = format!(
        "(memory (export \"memory\") 1)
         (func $deep (param $left i32) (result i64)
            (if (result i64) (local.get $left)
                (then (call $deep (i32.sub (local.get $left) (i32.const 1))))
                (else (call $next))))
         (func $next (result i64)
            (call $call (call $get_contract_data {} (i64.const 1)) {} (call $vec_new)))
         (func (export \"test\") (result i64) (call $deep (i32.const 5000)))",
        sym("next"),
        sym("test")
    );
    let code = wat::parse_str(format!("(module {} {body} {ENV_META})", imports())).unwrap();
    for number in 1..=120 {
        ids.push(world.contract(number, &code));
        let next = orrery_testkit::engine_world::address(ContractId([number + 1; 32]));
        world.data(
            ContractId([number; 32]),
            orrery_testkit::values::symbol("next"),
            ScVal::Address(next),
        );
    }
    programs.extend(ids.iter().copied());
    let outcome =
        run_within(&world, &code, &programs, &call(ids[0], "test", &[]), &limits()).unwrap();
    let fault = outcome.result.unwrap_err();
    assert!(fault.0.contains("Error(Context, ExceededLimit)"), "{fault}");
    // Every second contract runs in the interpreter.
    let half: Vec<_> = ids.iter().copied().step_by(2).collect();
    let outcome = run_within(&world, &code, &half, &call(ids[0], "test", &[]), &limits()).unwrap();
    outcome.result.unwrap_err();
}

#[test]
fn emits_are_limited_in_number_and_columns_and_validated() {
    let row = map_of(&[("a", u32v(1))]);
    let many = |count: u32| {
        test_of(&format!(
            "(local $i i32) (local $row i64) (local.set $row {row})
             (loop (drop (call $emit {} (local.get $row)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if 0 (i32.lt_u (local.get $i) (i32.const {count}))))
             (i64.const 2)",
            sym("row")
        ))
    };
    run(&many(1_000)).rows(1_000);
    run(&many(1_001)).fault("more than 1000 rows");
    run(&many(1_000_000)).fault("more than 1000 rows").within(limits().wall);

    let columns = |count: u32| {
        let entries = (0..count).fold(env_call("map_new", &[]), |map, i| {
            env_call("map_put", &[map, sym(&format!("c{i}")), u32v(i)])
        });
        test_of(&emit("row", &entries))
    };
    run(&columns(100)).rows(1);
    run(&columns(101)).fault("'row' has 101 fields; a row may have 100");
    run(&columns(0)).rows(1);

    let nested = |levels: u32| {
        let inner = (1..levels).fold(u32v(1), |value, _| vec_of(&[value]));
        test_of(&emit("row", &map_of(&[("a", inner)])))
    };
    run(&nested(8)).rows(1);
    run(&nested(9)).fault("nested deeper than 8 levels");
    run(&nested(150)).fault("nested deeper than");
    let maps = (1..9).fold(u32v(1), |value, _| map_of(&[("m", value)]));
    run(&test_of(&emit("row", &map_of(&[("a", maps)])))).fault("nested deeper than 8 levels");
}

#[test]
fn emitted_bytes_are_limited_per_row_and_per_run() {
    // XDR size of a map with one field of bytes, without the bytes: 4 (number of entries) + 8 (head
    // of the key) + 4 (name) + 8 (head of the value).
    const AROUND: u32 = 4 + 4 + 4 + 4 + 4 + 4;
    let bytes = |length: u32, times: u32| {
        let object = env_call("bytes_new_from_linear_memory", &[u32v(0), u32v(length)]);
        let row = map_of(&[("b", object)]);
        let emits = emit("row", &row);
        format!(
            "(memory (export \"memory\") 32) (func (export \"test\") (result i64) {} (i64.const 2))",
            format!("(drop {emits})").repeat(times as usize)
        )
    };
    run(&bytes((1 << 20) - AROUND, 1)).rows(1);
    run(&bytes((1 << 20) - AROUND + 4, 1)).fault("more than 1 MiB in one run");
    run(&bytes((1 << 19) - AROUND, 2)).rows(2);
    run(&bytes((1 << 19) - AROUND + 4, 2)).fault("more than 1 MiB in one run");
    run(&bytes(2_000_000, 1)).fault("more than 1 MiB in one run").within(limits().wall);
}

#[test]
fn emits_that_are_not_rows_are_refused_with_a_reason() {
    let data = &mut Data::default();
    let string_key = env_call("map_put", &[env_call("map_new", &[]), data.string(b"a"), u32v(1)]);
    let long = data.symbol(b"a_name_of_thirty_two_characters_");
    for (body, words) in [
        (emit("row", &u32v(1)), "without a struct of named fields"),
        (emit("row", &env_call("vec_new", &[])), "without a struct of named fields"),
        (emit("row", &void()), "without a struct of named fields"),
        (format!("(call $emit {} {})", u32v(5), env_call("map_new", &[])), "target is no symbol"),
        (
            format!("(call $emit {} {})", data.string(b"row"), env_call("map_new", &[])),
            "target is no symbol",
        ),
        (emit("row", &string_key), "field whose name is no symbol"),
        (emit("row", &word(76)), "'emit' failed with Error(Value, InvalidInput)"),
        (emit("row", &word(76 | 1 << 32)), "'emit' failed with Error(Value, InvalidInput)"),
        (format!("(call $emit {} {})", word(74), env_call("map_new", &[])), "'emit' failed"),
        (format!("(call $emit {} {})", word(u64::MAX), env_call("map_new", &[])), "'emit' failed"),
    ] {
        run(&test_with(data, &body)).fault(words);
    }
    run(&test_with(data, &format!("(call $emit {long} {})", env_call("map_new", &[])))).rows(1);
}

#[test]
fn traps_and_invalid_exports_have_explained_errors() {
    let wrong = |export: &str| format!("{MEMORY} {export}");
    for (fields, words) in [
        (test_of("(unreachable)"), "'test' of CAAQC"),
        (test_of("(unreachable)"), "it panicked"),
        (test_of("(i64.div_u (i64.const 1) (i64.const 0))"), "it divided by zero"),
        (
            test_of("(i64.div_s (i64.const -9223372036854775808) (i64.const -1))"),
            "an integer overflowed",
        ),
        (test_of("(i64.trunc_f64_u (f64.const nan))"), "it converted NaN to an integer"),
        (test_of("(i64.load (i32.const -1))"), "beyond the end of its memory"),
        (test_of("(i64.load (i32.const 65529))"), "beyond the end of its memory"),
        (
            test_of("(memory.fill (i32.const 0) (i32.const 0) (i32.const 65537)) (i64.const 2)"),
            "beyond the end of its memory",
        ),
        (
            wrong(
                "(type $t (func (result i64))) (table 2 2 funcref) (func (export \"test\") (result i64) (call_indirect (type $t) (i32.const 1)))",
            ),
            "a function that is not there",
        ),
        (
            wrong(
                "(type $t (func (result i64))) (table 2 2 funcref) (func (export \"test\") (result i64) (call_indirect (type $t) (i32.const 2)))",
            ),
            "beyond the end of a table",
        ),
        (
            wrong(
                "(type $t (func (result i64))) (table 1 1 funcref) (elem (i32.const 0) $f) (func $f) (func (export \"test\") (result i64) (call_indirect (type $t) (i32.const 0)))",
            ),
            "a function of another type",
        ),
        (
            wrong("(func (export \"tset\") (result i64) (i64.const 2))"),
            "exports no function of this name",
        ),
        (
            wrong("(func (export \"test\") (param i64) (result i64) (i64.const 2))"),
            "takes 1 arguments and was called with 0",
        ),
        (wrong("(func (export \"test\") (result i32) (i32.const 2))"), "not all of type i64"),
        (wrong("(func (export \"test\"))"), "not all of type i64"),
        (
            wrong("(func (export \"test\") (result i64 i64) (i64.const 2) (i64.const 2))"),
            "not all of type i64",
        ),
        (wrong("(func (export \"test\") (result f64) (f64.const 2))"), "not all of type i64"),
        (
            wrong(
                "(global (export \"test\") i64 (i64.const 2)) (func (export \"other\") (result i64) (i64.const 2))",
            ),
            "exports no function of this name",
        ),
        (test_of(&word(u64::MAX)), "no value of a contract"),
        (test_of(&word(75 | 7 << 32)), "an object that it was not given"),
        (test_of(&word(75 | 8 << 32)), "an object that it was not given"),
        (
            test_of(&env_call("fail_with_error", &[orrery_testkit::wasm_text::error(9)])),
            "Error(Contract, #9)",
        ),
        (test_of(&orrery_testkit::wasm_text::error(9)), "Error(Contract, #9)"),
        (
            test_of(&env_call("get_contract_data", &[sym("a"), word(1)])),
            "'get_contract_data' failed with Error(Storage, MissingValue)",
        ),
    ] {
        let ran = run(&fields);
        ran.fault(words).within(limits().wall);
        assert!(ran.outcome.fuel < 1_000, "{fields}");
    }
}

#[test]
fn out_of_bounds_data_and_table_segments_fail_the_run() {
    run(&format!("{MEMORY} (data (i32.const 65535) \"ab\") (func (export \"test\") (result i64) (i64.const 2))"))
        .fault("beyond the end of its memory");
    run(&format!("{MEMORY} (table 1 1 funcref) (elem (i32.const 1) $f) (func $f) (func (export \"test\") (result i64) (i64.const 2))"))
        .fault("beyond the end of a table");
    // Growing a table past the limit fails as the specification says: the guest gets -1.
    run(&format!(
        "{MEMORY} (table 1 funcref) (func (export \"test\") (result i64)
            (if (i32.ne (table.grow (ref.null func) (i32.const 20000)) (i32.const -1)) (then (unreachable)))
            (if (i32.ne (table.grow (ref.null func) (i32.const 19999)) (i32.const 1)) (then (unreachable)))
            (if (i32.ne (table.grow (ref.null func) (i32.const 1000000)) (i32.const -1)) (then (unreachable)))
            (i64.const 2))"
    ))
    .rows(0);
}

#[test]
fn host_work_is_bounded() {
    // Creates objects in an endless loop.
    let objects =
        test_of(&format!("(loop (drop {}) (br 0)) (i64.const 2)", env_call("vec_new", &[])));
    let ran = run(&objects);
    ran.within(limits().wall);
    assert!(ran.outcome.result.is_err());
    // Doubles one object in an endless loop.
    let doubling = test_of(&format!(
        "(local $b i64) (local.set $b {})
         (loop (local.set $b (call $bytes_append (local.get $b) (local.get $b))) (br 0)) (i64.const 2)",
        env_call("bytes_new_from_linear_memory", &[u32v(0), u32v(1000)])
    ));
    let long = Limits { wall: Duration::from_secs(60), ..limits() };
    run_with(&doubling, &long, &World::default()).fault("of memory, as the network counts them");
    // Calls an expensive function in an endless loop.
    let data = &mut Data::default();
    let (message, dst) = (data.bytes(&[1; 40_000]), data.bytes(b"dst"));
    let hashing = format!(
        "(local $m i64) (local $d i64) (local.set $m {message}) (local.set $d {dst})
         (loop (drop (call $bls12_381_hash_to_g2 (local.get $m) (local.get $d))) (br 0)) (i64.const 2)"
    );
    run(&test_with(data, &hashing)).within(limits().wall);
    // Emits events in an endless loop.
    let events = test_of(&format!(
        "(local $t i64) (local.set $t {}) (loop (drop (call $contract_event (local.get $t) (i64.const 2))) (br 0)) (i64.const 2)",
        vec_of(&[sym("t")])
    ));
    run(&events).within(limits().wall);
    // Serialises a value that is nested more deeply than the host allows.
    let nesting = test_of(
        "(local $v i64) (local $i i32) (local.set $v (call $vec_new))
         (loop (local.set $v (call $vec_push_back (call $vec_new) (local.get $v)))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if 0 (i32.lt_u (local.get $i) (i32.const 5000))))
         (call $serialize_to_bytes (local.get $v))",
    );
    run(&nesting).fault("Error(").within(limits().wall);
}

#[test]
fn a_loop_in_an_interpreted_contract_ends_with_the_host_budget() {
    let mut world = World::default();
    let endless = module(
        "(memory (export \"memory\") 1) (func (export \"spin\") (result i64) (loop (br 0)) (i64.const 2))",
    );
    let other = world.contract(OTHER, &endless);
    let data = &mut Data::default();
    let address = env_call("strkey_to_address", &[data.string(other.to_string().as_bytes())]);
    for function in ["call", "try_call"] {
        let body = env_call(function, &[address.clone(), sym("spin"), env_call("vec_new", &[])]);
        let ran = run_with(&test_with(data, &body), &Limits::default(), &world);
        println!("a loop in the interpreter ended after {:?}", ran.outcome.cpu_time);
        ran.outcome.result.unwrap_err();
    }
}

#[test]
fn forged_object_handles_are_refused() {
    // The two arguments are the objects 0 and 1 of this instance, with the handles 0 and 2; the
    // host itself has many more objects.
    let args = [ScVal::Vec(Some(Default::default())), ScVal::Vec(Some(Default::default()))];
    for handle in (0..64).chain([1 << 30, u64::from(u32::MAX)]) {
        let fields = format!(
            "{MEMORY} (func (export \"test\") (param i64 i64) (result i64)
                (drop (call $vec_len {})) (i64.const 2))",
            word(75 | handle << 32)
        );
        let code = wat::parse_str(format!("(module {} {fields} {ENV_META})", imports())).unwrap();
        let ran = run_code(&code, &limits(), &World::default(), &args);
        match handle {
            0 | 2 => ran.rows(0),
            _ => ran.fault("'vec_len' failed with Error(Value, InvalidInput)"),
        };
    }
}

#[test]
fn nan_results_are_canonical() {
    // The bits of a NaN that an operation produces are always those of the canonical NaN.
    let nan = test_of(&format!(
        "(local $x f64) (local.set $x (f64.reinterpret_i64 (i64.const 0x7ff0dead0000beef)))
         {}",
        emit(
            "nan",
            &map_of(&[(
                "bits",
                env_call(
                    "obj_from_u64",
                    &["(i64.reinterpret_f64 (f64.add (local.get $x) (f64.const 1)))".to_owned()],
                ),
            )]),
        )
    ));
    let ran = run(&nan);
    let emits = ran.outcome.result.as_ref().unwrap();
    assert_eq!(emits[0].fields[0].val, ScVal::U64(0x7ff8_0000_0000_0000));
}

#[test]
fn the_engine_keeps_working_after_traps() {
    let row = map_of(&[("a", u32v(1))]);
    let good = test_of(&seq(&[emit("row", &row), val(soroban_env_host::Val::from_void())]));
    for _ in 0..20 {
        run(&test_of("(unreachable)")).fault("it panicked");
        run(&good).rows(1);
    }
}
