//! Version of the on-disk layout.

use std::fmt;

/// Version of the layout on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormatVersion {
    /// Raised when old directories can no longer be read.
    pub major: u16,
    /// Raised with every migration.
    pub minor: u16,
}

impl FormatVersion {
    pub(crate) fn encode(self) -> [u8; 4] {
        let mut bytes = [0; 4];
        bytes[..2].copy_from_slice(&self.major.to_be_bytes());
        bytes[2..].copy_from_slice(&self.minor.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, d] = bytes.as_array()?;
        Some(Self { major: u16::from_be_bytes([a, b]), minor: u16::from_be_bytes([c, d]) })
    }
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
