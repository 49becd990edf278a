//! Interfaces that come with the program, for protocols whose contracts declare no events.

use std::sync::OnceLock;

use super::interface::Interface;

/// Each with its name and its JSON. The documentation of an entry has the repository and the commit
/// in which the contract emits such an event.
const TEXTS: [(&str, &str); 4] = [
    ("soroswap", include_str!("../../schema/interfaces/soroswap.json")),
    ("blend", include_str!("../../schema/interfaces/blend.json")),
    ("aquarius", include_str!("../../schema/interfaces/aquarius.json")),
    ("phoenix", include_str!("../../schema/interfaces/phoenix.json")),
];

static READ: [OnceLock<Interface>; TEXTS.len()] = [const { OnceLock::new() }; TEXTS.len()];

/// Returns the names of the bundled interfaces.
pub fn bundled_names() -> impl Iterator<Item = &'static str> {
    TEXTS.iter().map(|(name, _)| *name)
}

/// Returns the JSON of the bundled interface of this name.
pub fn bundled_text(name: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(bundled, _)| *bundled == name).map(|(_, text)| *text)
}

/// Returns the bundled interface of this name.
pub fn bundled(name: &str) -> Option<&'static Interface> {
    let at = TEXTS.iter().position(|(bundled, _)| *bundled == name)?;
    let read = || Interface::from_json(TEXTS[at].1.as_bytes()).expect("a bundled text is read");
    Some(READ[at].get_or_init(read))
}
