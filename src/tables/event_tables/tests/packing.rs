//! Rows that are packed from the bytes of events are those that are made from their values.
//!
//! Small: 300 worlds and 600 interfaces; full: 20,000 each.

use orrery_interfaces::{Origin, Scalar};
use orrery_ledger::domain::{CloseTime, LedgerSeq, ProgramId, TxHash};
use orrery_testkit::account_events::xdr;
use orrery_testkit::random_events::Generator;
use orrery_testkit::size;
use stellar_xdr::ScVal;

use super::worlds::World;
use super::{Known, Made, amount, layout, made};
use crate::event_tables::{Event, FlatEvent, Layout, Packer};
use crate::frame::{Frame, MAX_ROWS};

const PROGRAM: ProgramId = ProgramId(7);

/// Packs the rows of events, from their bytes where these tell them if `may_be_flat`. Returns the
/// frames, and how many events were told by their bytes.
fn packed(
    layout: &Layout,
    events: &[Made],
    known: &[Known],
    may_be_flat: bool,
) -> (Vec<Frame>, usize) {
    let (mut packer, mut flat) = (Packer::new(PROGRAM, layout), 0);
    for event in events {
        let hash = TxHash::from([event.number as u8; 32]);
        packer.begin(hash, LedgerSeq(event.number), CloseTime::Seconds(event.number.into()));
        let is_flat = may_be_flat && add_flat(&mut packer, event, known);
        flat += usize::from(is_flat);
        if !is_flat {
            packer.add(&event.rows(layout, known), event.number % 2).unwrap();
        }
    }
    (packer.finish().unwrap(), flat)
}

fn add_flat(packer: &mut Packer<'_>, event: &Made, known: &[Known]) -> bool {
    let Some(known) = event.by.map(|at| &known[at]).filter(|_| !event.is_system) else {
        return false;
    };
    let topics: Vec<Vec<u8>> = event.topics.iter().map(xdr).collect();
    let data = xdr(&event.data);
    let mut values = Vec::new();
    let topics = topics.iter().map(Vec::as_slice);
    let number = known.interface.flat_declaration(topics, &data, |at, value| {
        values.resize(values.len().max(at + 1), Scalar::Absent);
        values[at] = value;
    });
    let Some(number) = number else { return false };
    let of = |event: &Event<'_>| (event.id, event.place.index(), event.contract);
    let (id, index, contract) = Made { by: None, ..event.clone() }.with(&[], of);
    let flat = FlatEvent { id, index, contract, number, values: &values };
    packer.add_flat((&known.declarations, &known.interface), &flat).unwrap()
}

fn assert_same(events: &[Made], known: &[Known], of: &str) -> usize {
    let layout = layout(events, known);
    let (from_bytes, flat) = packed(&layout, events, known, true);
    let (from_values, _) = packed(&layout, events, known, false);
    assert_eq!(from_bytes.len(), from_values.len(), "{of}");
    for (bytes, values) in from_bytes.iter().zip(&from_values) {
        assert_eq!(bytes.target, values.target, "{of}");
        assert_eq!(bytes.columns, values.columns, "{of}");
    }
    flat
}

#[test]
fn rows_from_bytes_are_those_from_values() {
    let mut flat = 0;
    for seed in 0..size::choose(300, 20_000) {
        let World { known, mut events, .. } = World::new(seed);
        events.iter_mut().for_each(|event| event.by = event.by.filter(|_| !event.is_system));
        flat += assert_same(&events, &known, &format!("world {seed}"));
    }
    for seed in 0..size::choose(600, 20_000) {
        let mut generator = Generator::new(seed, false);
        let declared = generator.declared();
        let known = [Known::new(1, Origin::Chain, generator.entries(&declared))];
        let events: Vec<Made> = (0..6)
            .filter_map(|number| {
                let (topics, data) = generator.event(&declared, None)?;
                Some(made(number, Some(0), &topics, data))
            })
            .collect();
        flat += assert_same(&events, &known, &format!("interface {seed}"));
    }
    println!("{flat} events told by their bytes");
    assert!(flat > 300, "{flat}");
}

#[test]
fn transfers_of_assets_are_told_by_their_bytes() {
    let address = |number| {
        orrery_testkit::account_events::address(&orrery_testkit::account_events::account(number))
    };
    let transfer = |number: u32, data: ScVal| {
        let topics = [
            orrery_testkit::values::symbol("transfer"),
            address(1),
            address(2),
            orrery_testkit::values::string("native"),
        ];
        made(number, Some(0), &topics, data)
    };
    let amounts = [0, 1, -1, i128::MAX, i128::MIN, 10_i128.pow(38), 10_i128.pow(38) - 1];
    let single = amounts.iter().map(|amount| orrery_testkit::values::i128(*amount));
    // A map has the amount and a muxed id; one without is left to its values.
    let data = single.chain(amounts.map(amount));
    let events: Vec<Made> =
        data.enumerate().map(|(number, data)| transfer(number as u32, data)).collect();
    assert_eq!(assert_same(&events, &[Known::asset()], "transfers"), amounts.len());
}

#[test]
fn many_rows_are_several_frames() {
    let count = 2 * MAX_ROWS + 5;
    let topics = [
        orrery_testkit::values::symbol("set_admin"),
        orrery_testkit::account_events::address(&orrery_testkit::account_events::account(1)),
        orrery_testkit::values::string("native"),
    ];
    let data = orrery_testkit::account_events::address(&orrery_testkit::account_events::account(2));
    let events: Vec<Made> =
        (0..count).map(|at| made(at as u32, Some(0), &topics, data.clone())).collect();
    let known = [Known::asset()];
    let layout = layout(&events[..1], &known);
    let (frames, flat) = packed(&layout, &events, &known, true);
    assert_eq!(flat, count);
    for target in ["set_admin", "events"] {
        let of_target = frames.iter().filter(|frame| frame.target == target);
        let rows: Vec<usize> = of_target.map(|frame| frame.columns.num_rows()).collect();
        assert_eq!(rows, [MAX_ROWS, MAX_ROWS, 5], "{target}");
    }
}

/// Fields of structs that values leave out take no room in an event, and some in a column.
#[test]
fn fields_that_are_left_out_count() {
    use orrery_testkit::specs::{Map, Type, event, option, structure, udt, vec};
    let fields: Vec<_> = (0..50).map(|at| (format!("f{at}"), Type::U32)).collect();
    let of_items = [("items", vec(option(udt("Item"))))];
    let entries =
        vec![structure("Item", &fields), event("listed", &["listed"], &[], Map, &of_items)];
    let known = [Known::chain(1, entries)];
    let bytes = |items: usize| {
        let items = orrery_testkit::values::list((0..items).map(|_| ScVal::Void));
        let data = orrery_testkit::values::fields([("items", items)]);
        let event = made(1, Some(0), &[orrery_testkit::values::symbol("listed")], data);
        let layout = layout(std::slice::from_ref(&event), &known);
        let mut packer = Packer::new(PROGRAM, &layout);
        packer.add(&event.rows(&layout, &known), 0).unwrap();
        packer.bytes()
    };
    assert!(bytes(100) > bytes(0) + 100 * 50 * 16, "{} {}", bytes(0), bytes(100));
}
