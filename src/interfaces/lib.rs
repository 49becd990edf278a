//! Interfaces of contracts (SEP-48): reading them ([`Interface`]), finding the declaration of an
//! event ([`declaration`]), its values as people read them ([`Plain`], [`Params`]) or exactly
//! ([`Typed`]), its name and parameters by itself ([`NamedEvent`]), what contracts hold ([`PlainData`],
//! [`StorageKeys`]), and types as text ([`spelled()`]). Does no I/O, and links no native library.

mod asset;
mod bundled;
mod declaration;
mod difference;
mod event;
mod fits;
mod flat;
mod forms;
mod inferred;
mod interface;
mod joined;
mod named;
pub mod names;
mod parts;
mod plain;
mod plain_data;
mod read;
mod spelled;
mod storage;
mod told;
mod typed;
mod types;
mod weight;

pub use asset::{asset_contract, asset_entries, is_asset_contract};
pub use bundled::{bundled, bundled_names, bundled_text};
pub use declaration::{
    Found, Matched, Parameter, Rest, declaration, declaration_counted, found_counted,
};
pub use difference::{Difference, Names};
pub use fits::Steps;
pub use flat::{Scalar, ScalarKind};
pub use inferred::{DataShape, Inferred, infer};
pub use interface::Interface;
pub use named::NamedEvent;
pub use plain::{Params, Plain, PlainRest};
pub use plain_data::{PlainData, PlainExecutable, data_name, instance_map, undecodable};
pub use read::{MOST_EVENTS, MOST_PARAMETERS, MOST_TYPES, Origin, ReadError, entries_of, sections};
pub use spelled::{spelled, spelled_tuple};
pub use storage::{StorageKeys, value_kind};
pub use typed::{Typed, TypedXdr};
pub use types::{Definition, Fields, Types, Union};
