//! Interfaces that were made to cost much: each is refused with a reason, or read; and comparing an
//! event with it takes a number of steps that the sizes of both bound.

use std::time::Instant;

use orrery_interfaces::{Interface, Params, Plain, ReadError, Steps, declaration_counted};
use orrery_testkit::costly_interface::{self, ITEMS};
use orrery_testkit::random_events::Generator;
use orrery_testkit::size;
use orrery_testkit::values::{fields, i128, list, map as map_of, string, symbol};
use stellar_xdr::{ScSpecEntry, ScVal};

use crate::made::{
    Map, SingleValue, Type, Vector, bytes_n, errors, event, map, module, numbers, option, result,
    structure, tuple, udt, union, vec, xdr,
};

/// An interface of which nothing good is to be expected.
struct Shape {
    name: String,
    code: Vec<u8>,
}

fn shape(name: impl Into<String>, entries: &[ScSpecEntry]) -> Shape {
    Shape { name: name.into(), code: module(&[&xdr(entries)]) }
}

fn single(kind: Type) -> ScSpecEntry {
    event("E", &["e"], &[], SingleValue, &[("v", kind)])
}

fn field(name: &str, kind: Type) -> (String, Type) {
    (name.to_owned(), kind)
}

/// Puts something around a type.
type Around = fn(Type) -> Type;

fn nested(levels: usize, around: Around, inner: Type) -> Type {
    (1..levels).fold(inner, |kind, _| around(kind))
}

fn shapes() -> Vec<Shape> {
    [cut(), many(), deep(), cyclic(), wide(), named()].into_iter().flatten().collect()
}

/// Cut and changed bytes.
fn cut() -> Vec<Shape> {
    let entries = [single(udt("S")), structure("S", &[field("a", vec(Type::U32))])];
    let bytes = xdr(&entries);
    let mut shapes = Vec::new();
    for part in 1..20 {
        let end = bytes.len() * part / 20;
        let code = module(&[&bytes[..end]]);
        shapes.push(Shape { name: format!("section cut at {end}"), code });
        let mut changed = bytes.clone();
        changed[end..(end + 4).min(bytes.len())].fill(0xff);
        shapes.push(Shape { name: format!("bytes changed at {end}"), code: module(&[&changed]) });
    }
    let whole = module(&[&bytes]);
    for part in 1..10 {
        let code = whole[..whole.len() * part / 10].to_vec();
        shapes.push(Shape { name: format!("module cut at {}", code.len()), code });
    }
    let lengths = [&b"\0asm\x01\0\0\0\0\xff\xff\xff\xff\x0f"[..], b"\0asm\x01\0\0\0\0\x80\x80\x80"];
    for code in lengths {
        shapes.push(Shape { name: "length of a section".to_owned(), code: code.to_vec() });
    }
    shapes
}

fn many() -> Vec<Shape> {
    let topic = [symbol_param("t"), symbol_param("u")];
    let hungry = event("E", &[], &topic[..1], SingleValue, &[("v", vec(Type::Val))]);
    let numbered: Vec<u32> = (0..10_000).collect();
    let fields: Vec<_> = (0..2_000).map(|at| field(&format!("f{at}"), Type::Val)).collect();
    let case = |at: usize| (format!("C{at}"), Some(vec![Type::Val; 3]));
    vec![
        shape("1,000 events", &vec![hungry.clone(); 1_000]),
        shape("10,000 events", &vec![single(Type::U32); 10_000]),
        shape("10,000 types", &vec![numbers("N", &[]); 10_000]),
        shape("10,001 types", &vec![numbers("N", &[]); 10_001]),
        shape("enum of 10,000", &[single(vec(udt("N"))), numbers("N", &numbered[..5_000])]),
        shape("errors of 5,000", &[single(vec(udt("N"))), errors("N", &numbered[..5_000])]),
        shape("struct of 2,000", &[single(vec(udt("S"))), structure("S", &fields)]),
        shape(
            "one name 2,000 times",
            &[single(vec(udt("S"))), structure("S", &vec![field("a", Type::Val); 2_000])],
        ),
        shape(
            "union of 1,000",
            &[single(vec(udt("U"))), union("U", &(0..1_000).map(case).collect::<Vec<_>>())],
        ),
        shape(
            "case 1,000 times",
            &[
                single(vec(udt("U"))),
                union("U", &vec![("C".to_owned(), Some(vec![Type::Val; 3])); 1_000]),
            ],
        ),
        shape("1,000 parameters", &[event("E", &["e"], &[], Map, &vec![("a", Type::Val); 1_000])]),
        shape("1,001 parameters", &[event("E", &["e"], &[], Map, &vec![("a", Type::Val); 1_001])]),
        shape("1,000 topics", &[event("E", &[], &vec![("a", Type::Val); 1_000], Vector, &[])]),
        shape(
            "hungry maps",
            &vec![
                event("E", &[], &topic[..1], Map, &[("a", vec(Type::Val)), ("z", Type::Bool)]);
                900
            ],
        ),
        shape(
            "hungry vectors",
            &vec![
                event("E", &[], &topic[..1], Vector, &[("a", vec(Type::Val)), ("z", Type::Bool)]);
                900
            ],
        ),
        shape(
            "hungry amounts",
            &vec![event("E", &[], &topic[..1], SingleValue, &[("amount", vec(Type::Bool))]); 900],
        ),
    ]
}

fn symbol_param(name: &str) -> (&str, Type) {
    (name, Type::Val)
}

fn deep() -> Vec<Shape> {
    let mut shapes = Vec::new();
    let pair = |kind: Type| map(Type::Val, kind);
    let ways: [(&str, Around); 5] = [
        ("options", option),
        ("vectors", vec),
        ("maps", pair),
        ("tuples", |kind| tuple(vec![kind])),
        ("results", |kind| result(kind, Type::Error)),
    ];
    for levels in [100, 101, 140] {
        for (name, around) in ways {
            let kind = nested(levels, around, Type::U32);
            shapes.push(shape(format!("{levels} {name}"), &[single(kind)]));
        }
    }
    let both = |levels| nested(levels, |kind| result(kind.clone(), kind), Type::U32);
    shapes.push(shape("results on both sides", &[single(both(10))]));
    shapes.push(shape(
        "tuples of tuples",
        &[single(nested(
            5,
            |kind| tuple(vec![kind.clone(), kind.clone(), kind.clone(), kind]),
            Type::Val,
        ))],
    ));
    // Deeper than any crate would write it: an event, then one option inside the other.
    let mut bytes = xdr(&[single(Type::Bool)]);
    let tail = bytes.split_off(bytes.len() - 12);
    assert_eq!(tail[..4], 1_u32.to_be_bytes(), "the type, the location, the format");
    bytes.extend(1000_u32.to_be_bytes().repeat(20_000));
    bytes.extend(tail);
    shapes.push(Shape { name: "20,000 options".to_owned(), code: module(&[&bytes]) });
    shapes
}

fn cyclic() -> Vec<Shape> {
    let itself = |kind: Type| [single(udt("S")), structure("S", &[field("a", kind)])];
    let options = nested(99, option, udt("S"));
    let doubling: Vec<_> = (0..100)
        .map(|at| {
            let next = udt(&format!("T{}", at + 1));
            structure(&format!("T{at}"), &[field("0", next.clone()), field("1", next)])
        })
        .chain([single(udt("T0"))])
        .collect();
    let chain: Vec<_> = (0..5_000)
        .map(|at| structure(&format!("T{at}"), &[field("a", udt(&format!("T{}", at + 1)))]))
        .chain([single(udt("T0"))])
        .collect();
    let around = |case: &str, kind| union("U", &[(case.to_owned(), Some(vec![kind; 2]))]);
    vec![
        shape("struct of itself", &itself(udt("S"))),
        shape("struct of options of itself", &itself(options.clone())),
        shape(
            "struct of results of itself",
            &itself(nested(99, |kind| result(kind, udt("S")), udt("S"))),
        ),
        shape("struct of lists of itself", &itself(vec(udt("S")))),
        shape(
            "tuple of itself",
            &[
                single(udt("T")),
                structure("T", &[field("0", options.clone()), field("1", options)]),
            ],
        ),
        shape("union of itself", &[single(udt("U")), around("C", udt("U"))]),
        shape(
            "two of each other",
            &[
                single(udt("S")),
                structure("S", &[field("a", option(udt("U")))]),
                around("C", option(udt("S"))),
            ],
        ),
        shape("map of itself", &itself(map(udt("S"), udt("S")))),
        shape("doubling tuples", &doubling),
        shape("chain of structs", &chain),
        shape("a type that is missing", &[single(udt("S")), single(option(udt("")))]),
    ]
}

fn wide() -> Vec<Shape> {
    let twelve = |kind: Type| tuple(vec![kind; 12]);
    vec![
        shape("tuple of tuples of twelve", &[single(twelve(twelve(twelve(Type::Val))))]),
        shape("bytes of any length", &[single(bytes_n(u32::MAX))]),
        shape("events without anything", &vec![event("", &[], &[], SingleValue, &[]); 1_000]),
        shape("text", &vec![event(&"n".repeat(60), &[], &[], Map, &[]); 1_000]),
        Shape { name: "zeros".to_owned(), code: module(&[&vec![0; 100_000]]) },
        Shape { name: "ones".to_owned(), code: module(&[&vec![0xff; 100_000]]) },
        Shape { name: "empty sections".to_owned(), code: module(&[&b""[..]; 10_000]) },
        Shape { name: "too large".to_owned(), code: module(&[&vec![0; (2 << 20) + 1]]) },
    ]
}

/// Names that mean something to a reader of SQL, HTML, JSON, a shell or a terminal.
fn named() -> Vec<Shape> {
    let names = [
        "'; DROP TABLE x; --",
        "\"quoted\"",
        "a\0b",
        "<script>",
        "$(reboot)",
        "../../etc",
        "\u{1b}[2J",
        "{{7*7}}",
        "\u{202e}evil",
        "%s%n",
        "_rest",
        "CONTRACT_ID",
        "",
    ];
    let shape_of = |name: &&str| {
        let params = [(*name, Type::Val), (*name, Type::Val)];
        let entries = [
            event(name, &["e"], &params[..1], Map, &params),
            structure(name, &[field(name, udt(name))]),
            union(name, &[((*name).to_owned(), Some(vec![udt(name)]))]),
        ];
        shape(format!("named {name:?}"), &entries)
    };
    names.iter().map(shape_of).collect()
}

/// Events that give a matcher much to do.
fn events() -> Vec<(Vec<ScVal>, ScVal)> {
    let flat = || list((0..1_000).map(ScVal::U32));
    let deep = |around: fn(ScVal) -> ScVal| (0..120).fold(ScVal::Void, |inner, _| around(inner));
    let entries = || (0..300).map(|at| (symbol(&format!("f{at}")), ScVal::Bool(true)));
    let datas = [
        ScVal::Void,
        flat(),
        deep(|inner| list([inner])),
        deep(|inner| list([inner.clone(), ScVal::Void])),
        deep(|inner| fields([("a", inner)])),
        deep(|inner| list([symbol("C"), inner.clone(), ScVal::Void])),
        fields([("a", flat()), ("z", ScVal::Void)]),
        fields([("amount", list([ScVal::Bool(true), i128(1)]))]),
        list([flat(), ScVal::Void]),
        list((0..300).map(|_| list([symbol("C"), ScVal::Void, ScVal::Void, ScVal::Void]))),
        map_of(entries()),
        list([map_of(entries())]),
        string("x"),
    ];
    let topics = [vec![], vec![symbol("e")], vec![symbol("e"), flat()], vec![symbol("e"); 40]];
    let with = |data: &ScVal| topics.clone().map(|topics| (topics, data.clone()));
    datas.iter().flat_map(with).collect()
}

/// What an event may take, whatever the interface declares.
fn most_steps(topics: &[ScVal], data: &ScVal) -> u64 {
    20 * (1 + topics.iter().map(parts).sum::<u64>() + parts(data)) + 1
}

fn parts(value: &ScVal) -> u64 {
    1 + match value {
        ScVal::Vec(Some(items)) => items.iter().map(parts).sum(),
        ScVal::Map(Some(entries)) => {
            entries.iter().map(|entry| parts(&entry.key) + parts(&entry.val)).sum()
        }
        _ => 0,
    }
}

#[test]
fn the_work_is_bounded_by_the_sizes() {
    let shapes = shapes();
    assert!(shapes.len() >= 100, "{} shapes", shapes.len());
    let (mut read, mut refused, mut most) = (0, 0, (0, String::new()));
    for Shape { name, code } in &shapes {
        let interface = match Interface::from_file(code) {
            Ok(interface) => interface,
            Err(error) => {
                let text = error.to_string();
                assert!(text.len() < 400 && !text.contains(char::is_control), "{name}: {text}");
                refused += 1;
                continue;
            }
        };
        read += 1;
        for (topics, data) in &events() {
            let interfaces = [&interface];
            let (matched, Steps(steps)) = declaration_counted(&interfaces, topics, data);
            let bound = most_steps(topics, data);
            assert!(steps <= bound, "{name}: {steps} steps, at most {bound}");
            most = most.max((steps, name.clone()));
            if let Some(matched) = matched {
                assert!(matched.name().len() <= 64);
                let json = serde_json::to_vec(&Params(&matched)).unwrap();
                let whole = Plain::undeclared(data, interface.types());
                let whole = serde_json::to_vec(&whole).unwrap();
                let names: usize =
                    matched.parameters.iter().map(|parameter| parameter.name.len() + 8).sum();
                // No type makes a value much longer than it is by itself.
                let topics = topics.iter().map(|it| size_of_json(it, &interface)).sum::<usize>();
                assert!(json.len() <= names + 8 * (whole.len() + topics) + 64, "{name}");
            }
        }
    }
    println!("{read} read, {refused} refused; most steps: {most:?}");
    assert!(refused > 40 && read > 40);
}

/// 61 KB with a thousand declarations of one type, which 96 results enclose, and an event of 16 KB
/// that fits it up to its first part: each part is compared once, and once more with what the results
/// enclose.
#[test]
fn declarations_cost_an_event_no_more_than_its_size() {
    let code = module(&[&xdr(&costly_interface::entries())]);
    assert!(code.len() < 100_000);
    let interface = Interface::from_file(&code).unwrap();
    let (topics, data) = costly_interface::event_that_nearly_fits();
    let (matched, steps) = declaration_counted(&[&interface], &topics, &data);
    assert!(matched.is_none() && steps.0 <= 2 * parts(&data) + 40, "{steps:?}");
    let (topics, data) = ([symbol("e")], list([list((0..ITEMS).map(|_| ScVal::Void))]));
    let (matched, steps) = declaration_counted(&[&interface], &topics, &data);
    assert!(matched.is_some() && steps.0 <= 2 * parts(&data) + 10, "{steps:?}");
}

/// Declarations with the same types in some parameters, of which another does not fit.
#[test]
fn a_value_is_compared_once_with_each_type() {
    let with = |last: usize| {
        let last = ("z", tuple(vec![Type::Bool; last]));
        let params = [("a", vec(Type::Val)), ("b", map(Type::Val, Type::Val)), last];
        event("e", &["e"], &[], Map, &params)
    };
    let interface = Interface::from_entries((1..=12).map(with).collect()).unwrap();
    let flat = || list((0..1_000).map(ScVal::U32));
    let entries = map_of((0..1_000).map(|at| (ScVal::U32(at), ScVal::Void)));
    let event = |last| fields([("a", flat()), ("b", entries.clone()), ("z", last)]);
    for (last, is_declared) in
        [(list([ScVal::Void]), false), (list(vec![ScVal::Bool(true); 12]), true)]
    {
        let (topics, data) = ([symbol("e")], event(last));
        let (matched, steps) = declaration_counted(&[&interface], &topics, &data);
        assert_eq!(matched.is_some(), is_declared);
        assert!(steps.0 <= parts(&data) + 200, "{steps:?}");
    }
}

/// Results with different errors do not join, so that each value is compared with all of them: within
/// the budget, or the event has no declaration.
#[test]
fn results_that_do_not_join_use_up_the_budget() {
    let results = |levels: usize| {
        (0..levels).fold(Type::Void, |kind, at| result(kind, udt(&format!("E{at}"))))
    };
    let fits = |levels| {
        let interface = Interface::from_entries(vec![single(vec(results(levels)))]).unwrap();
        let (topics, data) = ([symbol("e")], list((0..1_000).map(|_| ScVal::Void)));
        let (matched, steps) = declaration_counted(&[&interface], &topics, &data);
        assert!(steps.0 <= most_steps(&topics, &data));
        matched.is_some()
    };
    assert!(fits(3) && fits(18));
    assert!(!fits(30) && !fits(95));
}

/// Only the first sixteen declarations with a prefix are compared, those with as many topics first.
#[test]
fn an_event_is_compared_with_sixteen_declarations() {
    let of =
        |count: usize, kind| vec![event("No", &["e"], &[], SingleValue, &[("v", kind)]); count];
    let last = |others: usize| {
        let mut entries = of(others, Type::Bool);
        entries.push(event("Yes", &["e"], &[], SingleValue, &[("v", Type::U32)]));
        let interface = Interface::from_entries(entries).unwrap();
        declaration_counted(&[&interface], &[symbol("e")], &ScVal::U32(1)).0.is_some()
    };
    assert!(last(15) && !last(16));
    // Others take no place: with more topics, or with another prefix.
    let mut entries = vec![event("More", &["e"], &[("t", Type::Val)], SingleValue, &[]); 400];
    entries.extend(vec![event("Other", &["f"], &[], SingleValue, &[("v", Type::Val)]); 400]);
    entries.extend(of(1, Type::U32));
    let interface = Interface::from_entries(entries).unwrap();
    assert!(declaration_counted(&[&interface], &[symbol("e")], &ScVal::U32(1)).0.is_some());
}

/// An interface that was generated, and an event of it.
struct Generated {
    entries: Vec<ScSpecEntry>,
    event: (Vec<ScVal>, ScVal),
}

impl Generated {
    fn new(seed: u64) -> Self {
        let mut generator = Generator::new(seed, false);
        let declared = generator.declared();
        let entries = generator.entries(&declared);
        Self { entries, event: generator.event(&declared, None).unwrap() }
    }
}

/// Steps of events, as parts of what each may take.
#[derive(Default)]
struct Taken {
    events: u64,
    matched: u64,
    steps: u64,
    parts: u64,
    most: f64,
}

impl Taken {
    /// Looks for the declaration of an event in these interfaces. Asserts that it takes at most twenty
    /// steps for each of its parts with each of them.
    fn find(&mut self, interfaces: &[&Interface], (topics, data): &(Vec<ScVal>, ScVal)) {
        let (matched, Steps(steps)) = declaration_counted(interfaces, topics, data);
        let parts = 1 + topics.iter().map(parts).sum::<u64>() + parts(data);
        let bound = interfaces.len() as u64 * most_steps(topics, data);
        assert!(steps <= bound, "{steps} steps, at most {bound}: {topics:?} {data:?}");
        self.events += 1;
        self.matched += u64::from(matched.is_some());
        self.steps += steps;
        self.parts += parts;
        self.most = self.most.max(steps as f64 / (parts * interfaces.len() as u64) as f64);
    }
}

/// Each generated event with each generated interface: its own, that of every other event, three of
/// them as a contract has them that is upgraded, and very many declarations of one interface.
///
/// Small: 300 interfaces and 300 events; full: 10,000 of each.
#[test]
fn generated_interfaces_cost_events_no_more_than_their_size() {
    let count = size::choose(300, 10_000);
    let mut generated: Vec<_> = (0..count).map(Generated::new).collect();
    let interface = |entries: Vec<ScSpecEntry>| Interface::from_entries(entries).unwrap();
    let taken = |what: &str, find: &mut dyn FnMut(&mut Taken)| {
        let (mut taken, begun) = (Taken::default(), Instant::now());
        find(&mut taken);
        println!(
            "{what}: {} events, {} declared; {} steps for {} parts, at most {:.1} for each; {:.1?}",
            taken.events,
            taken.matched,
            taken.steps,
            taken.parts,
            taken.most,
            begun.elapsed(),
        );
        assert!(taken.matched > 0);
        taken
    };
    let own = taken("own interface", &mut |taken| {
        for Generated { entries, event } in &generated {
            taken.find(&[&interface(entries.clone())], event);
        }
    });
    assert_eq!(own.matched, count, "each event has a declaration");
    taken("interfaces of others", &mut |taken| {
        for of in &generated {
            let of = interface(of.entries.clone());
            generated.iter().for_each(|it| taken.find(&[&of], &it.event));
        }
    });
    taken("three interfaces", &mut |taken| {
        for three in generated.windows(3) {
            let of: Vec<_> = three.iter().map(|it| interface(it.entries.clone())).collect();
            for of in [[0, 1, 2], [2, 1, 0]].map(|order| order.map(|at| &of[at])) {
                three.iter().for_each(|it| taken.find(&of, &it.event));
            }
        }
    });
    let hungry = events();
    taken("the same declarations again and again", &mut |taken| {
        for Generated { entries, event } in &generated {
            let most = entries.len().max(900);
            let of = interface(entries.iter().cloned().cycle().take(most).collect());
            hungry.iter().step_by(7).chain([event]).for_each(|it| taken.find(&[&of], it));
        }
    });
    // As many as an interface may have: two of each.
    taken("many declarations", &mut |taken| {
        for many in generated.chunks_mut(500) {
            let entries = many.iter_mut().flat_map(|it| std::mem::take(&mut it.entries));
            let of = interface(entries.collect());
            many.iter().for_each(|it| taken.find(&[&of], &it.event));
        }
    });
}

fn size_of_json(value: &ScVal, interface: &Interface) -> usize {
    serde_json::to_vec(&Plain::undeclared(value, interface.types())).unwrap().len()
}

#[test]
fn what_exceeds_a_limit_is_refused_by_that_limit() {
    let reason = |wanted: &str| {
        let shape = shapes().into_iter().find(|shape| shape.name == wanted).unwrap();
        Interface::from_file(&shape.code).map(|_| ()).unwrap_err()
    };
    assert_eq!(reason("10,000 events"), ReadError::TooManyEvents(10_000));
    assert_eq!(reason("10,001 types"), ReadError::TooManyTypes(10_001));
    assert_eq!(reason("1,001 parameters"), ReadError::TooManyParameters(1_001));
    for shape in ["101 options", "140 results", "101 maps", "20,000 options"] {
        assert_eq!(reason(shape), ReadError::TooDeep, "{shape}");
    }
    assert!(matches!(reason("too large"), ReadError::TooLarge { .. }));
}
