//! Reading interfaces from modules and from JSON, and the reasons why there is none.

use orrery_interfaces::{
    Interface, MOST_EVENTS, MOST_PARAMETERS, MOST_TYPES, Origin, ReadError, asset_contract,
    bundled, bundled_names, declaration,
};
use orrery_testkit::values::symbol;
use stellar_xdr::{ScSpecEntry, ScVal};

use crate::made::{
    SingleValue, Type, custom_section, event, module, numbers, option, structure, udt, xdr,
};

fn small() -> Vec<ScSpecEntry> {
    vec![
        event("E", &["e"], &[], SingleValue, &[("v", udt("S"))]),
        structure("S", &[("a".to_owned(), option(Type::U32))]),
        numbers("N", &[1]),
    ]
}

fn names(interface: &Interface) -> Vec<String> {
    let name = |event: &stellar_xdr::ScSpecEventV0| event.name.to_string();
    interface.events().map(name).collect()
}

#[test]
fn all_sections_of_a_module_are_joined() {
    let bytes = xdr(&small());
    // An entry may begin in one section and end in another.
    for at in [0, 1, 4, 33, bytes.len() / 2, bytes.len()] {
        let mut code = b"\0asm\x01\0\0\0".to_vec();
        custom_section(&mut code, b"contractspecv0", &bytes[..at]);
        custom_section(&mut code, b"contractmetav0", b"something else");
        custom_section(&mut code, b"contractspecv0", &bytes[at..]);
        let interface = Interface::from_module(&code, Origin::Chain).unwrap();
        assert_eq!(names(&interface), ["E"]);
        assert!(interface.definition(b"S").is_some() && interface.definition(b"E").is_none());
        assert_eq!(names(&Interface::from_file(&code).unwrap()), ["E"]);
    }
}

#[test]
fn json_is_read_as_the_command_line_prints_it() {
    let text = serde_json::to_string(&small()).unwrap();
    assert!(text.contains("\"type\":") && !text.contains("\"type_\":"));
    for text in [text.clone(), text.replace("\"type\":", "\"type_\":")] {
        let interface = Interface::from_file(text.as_bytes()).unwrap();
        assert_eq!(names(&interface), ["E"]);
        assert!(interface.definition(b"S").is_some());
    }
    let deep = (0..100).fold(Type::U32, |kind, _| option(kind));
    let deep = [structure("S", &[("a".to_owned(), deep)])];
    let deep = serde_json::to_string(&deep).unwrap();
    for (text, reason) in [
        ("", "EOF"),
        ("{}", "invalid type: map, expected a sequence"),
        ("[{\"event_v1\":{}}]", "unknown variant `event_v1`"),
        (&text[..text.len() - 1], "EOF"),
        (&deep, "recursion limit"),
    ] {
        let error = Interface::from_json(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason) && error.starts_with("the JSON is not"), "{error}");
    }
}

#[test]
fn the_reason_is_given_when_there_is_no_interface() {
    let bytes = xdr(&small());
    let read = |code: &[u8]| Interface::from_module(code, Origin::Chain).unwrap_err();
    assert!(matches!(read(b""), ReadError::Module(_)));
    assert!(matches!(read(b"\0asm\x0d\0\x01\0"), ReadError::Module(_)));
    assert_eq!(read(b"\0asm\x01\0\0\0"), ReadError::NoSection);
    for end in 1..bytes.len() {
        let whole = [xdr(&small()[..1]).len(), xdr(&small()[..2]).len()].contains(&end);
        let read = Interface::from_module(&module(&[&bytes[..end]]), Origin::Chain);
        assert_eq!(read.is_ok(), whole, "cut after {end} bytes");
    }
    let code = module(&[&bytes]);
    for end in 9..code.len() {
        assert!(matches!(read(&code[..end]), ReadError::Module(_)), "cut after {end} bytes");
    }
    let large = vec![0; (128 << 10) + 1];
    let error = read(&module(&[&large]));
    assert_eq!(error, ReadError::TooLarge { size: large.len(), limit: 128 << 10 });
    assert_eq!(read(&module(&[&large[1..], &[0]])), error);
    let large = vec![b' '; (2 << 20) + 1];
    let error = ReadError::TooLarge { size: large.len(), limit: 2 << 20 };
    assert_eq!(Interface::from_file(&large).unwrap_err(), error);
    let code = module(&[&large[..2 << 20]]);
    assert!(matches!(Interface::from_file(&code), Err(ReadError::TooLarge { .. })));
}

#[test]
fn limits_are_inclusive() {
    let events = |count| vec![event("E", &["e"], &[], SingleValue, &[]); count];
    let types = |count| vec![numbers("N", &[1]); count];
    let nested = |count| {
        let kind = (1..count).fold(Type::U32, |kind, _| option(kind));
        vec![structure("S", &[("a".to_owned(), kind)])]
    };
    let params = |count| vec![event("E", &[], &[], SingleValue, &vec![("a", Type::U32); count])];
    let read = |entries: &[ScSpecEntry]| {
        let by_entries = Interface::from_entries(entries.to_vec()).map(|_| ());
        let by_module = Interface::from_file(&module(&[&xdr(entries)])).map(|_| ());
        assert_eq!(by_entries, by_module);
        by_entries
    };
    assert_eq!(read(&events(MOST_EVENTS)), Ok(()));
    assert_eq!(read(&events(MOST_EVENTS + 1)), Err(ReadError::TooManyEvents(MOST_EVENTS + 1)));
    assert_eq!(read(&types(MOST_TYPES)), Ok(()));
    assert_eq!(read(&types(MOST_TYPES + 1)), Err(ReadError::TooManyTypes(MOST_TYPES + 1)));
    assert_eq!(read(&nested(100)), Ok(()));
    assert_eq!(read(&nested(101)), Err(ReadError::TooDeep));
    assert_eq!(read(&params(MOST_PARAMETERS)), Ok(()));
    let many = MOST_PARAMETERS + 1;
    assert_eq!(read(&params(many)), Err(ReadError::TooManyParameters(many)));
}

#[test]
fn types_are_looked_up_among_types_and_the_first_wins() {
    let one = |name: &str| structure("S", &[(name.to_owned(), Type::U32)]);
    let event = || event("S", &["e"], &[], SingleValue, &[("v", udt("S"))]);
    let interface = Interface::from_entries(vec![event(), one("a"), one("b")]).unwrap();
    let topics = [symbol("e")];
    let data = |name| orrery_testkit::values::fields([(name, ScVal::U32(1))]);
    assert!(declaration(&[&interface], &topics, &data("a")).is_some());
    assert!(declaration(&[&interface], &topics, &data("b")).is_none());
}

#[test]
fn bundled_interfaces_name_their_source() {
    for name in bundled_names() {
        let interface = bundled(name).unwrap();
        assert!(interface.events().count() > 15, "{name}");
        for event in interface.events() {
            let doc = event.doc.to_string();
            let is_commit =
                |word: &&str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let commit = doc.split([' ', ',', ':']).find(is_commit);
            assert!(doc.contains('/') && commit.is_some(), "{name}: {doc}");
        }
    }
    assert!(bundled("unknown").is_none());
    assert_eq!(asset_contract().events().count(), 16);
}
