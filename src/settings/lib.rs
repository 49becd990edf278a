//! The sections of the configuration: each setting is one line of a section, with its type, its
//! default and, where the type does not say enough, what it accepts. Types of values say their units.
//! Parts of the product take the sections that they need as they are; files, environment and flags are
//! read elsewhere.

mod backup;
mod data;
mod export;
mod http;
mod process;
mod programs;
mod rpc;
pub mod section;
mod sinks;
mod source_kinds;
mod sources;
mod trust;
mod units;
mod values;
mod webhooks;

pub use backup::Backup;
pub use data::{Disk, Index, Retention};
pub use export::Export;
pub use http::{Http, Indexers, Limits, Site};
pub use process::{Core, Log, Status};
pub use programs::{Programs, Queries};
pub use rpc::Rpc;
pub use sinks::{Sink, Sinks};
pub use source_kinds::{Source, SourceAddress, SourceKind, SourceSpec, is_directory};
pub use sources::{SourceError, SourcePlan};
pub use trust::{Trust, TrustError, TrustedValidators};
pub use units::{Kib, Mib, Millis, Seconds};
pub use values::{
    CorsOrigin, Header, MetricsReaders, NetworkName, Proxies, PublicUrl, RecordedStorage, Secret,
    SecretUrl, Start, UnknownParameters,
};
pub use webhooks::Webhooks;
