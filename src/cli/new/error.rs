//! Why a contract's interface is refused.

/// Why an interface cannot be written in Rust. The message continues a sentence that begins with
/// the name of the contract or file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// The interface has no function.
    #[error("has no function: its section contractspecv0 is missing or empty")]
    NoFunction,
    /// A name that is invalid in Rust or reserved by the SDK.
    #[error("calls {what} '{name:.60}', a name that soroban-sdk does not allow")]
    Name {
        /// Kind of the named item, such as "a type".
        what: &'static str,
        /// The invalid name.
        name: String,
    },
    /// A type that can have no value.
    #[error(
        "has a type '{0}' that can have no value, because it has no variant or contains itself"
    )]
    NoValue(String),
    /// A construct that the SDK does not support in that position.
    #[error("has {0}, which soroban-sdk does not support there")]
    Misplaced(String),
}
