//! Serialised form of a sandbox between two ledgers, from which it continues the same chain.
//!
//! Format 1: the magic, a version, a digest of the configuration, visitors, the header and all
//! ledger entries as XDR, and a digest of everything before it. All numbers are big-endian.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use stellar_xdr::{LedgerEntry, LedgerHeader, Limits, ReadXdr, VecM, WriteXdr};

use super::close::Tip;
use super::config::SandboxConfig;
use super::error::{Result, SandboxError};
use super::sandbox::Sandbox;
use super::state::LedgerState;

const MAGIC: &[u8; 8] = b"ORRYSBOX";
const VERSION: u32 = 1;
const DIGEST: usize = 32;

impl Sandbox {
    /// Serialises the sandbox, to be continued with [`Self::restore`].
    ///
    /// # Errors
    /// When the state does not fit its XDR types.
    pub fn snapshot(&self) -> Result<Vec<u8>> {
        let entries: Vec<LedgerEntry> =
            self.state.entries().map(|(_, entry)| entry.clone()).collect();
        let entries: VecM<LedgerEntry> = entries.try_into()?;
        let present: VecM<u32> = self.visitors.present.clone().try_into()?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(configuration_digest(&self.config));
        bytes.extend(self.visitors.arrivals.to_be_bytes());
        bytes.extend(present.to_xdr(Limits::none())?);
        bytes.extend(self.tip.header.to_xdr(Limits::none())?);
        bytes.extend(entries.to_xdr(Limits::none())?);
        let digest = Sha256::digest(&bytes);
        bytes.extend(digest);
        Ok(bytes)
    }

    /// Restores a sandbox from its [`Self::snapshot`]. The configuration must be the same, except
    /// for the start time: it only determines the close time of ledger 2.
    ///
    /// # Errors
    /// When the bytes are not a complete snapshot of this version, or belong to another
    /// configuration.
    pub fn restore(config: SandboxConfig, bytes: &[u8]) -> Result<Self> {
        let Some((body, digest)) = bytes.split_last_chunk::<DIGEST>() else {
            return Err(SandboxError::snapshot("they are too short"));
        };
        let Some(body) = body.strip_prefix(MAGIC) else {
            return Err(SandboxError::snapshot("they do not begin with the magic bytes"));
        };
        let Some(body) = body.strip_prefix(&VERSION.to_be_bytes()) else {
            return Err(SandboxError::snapshot("they have another version"));
        };
        if <[u8; DIGEST]>::from(Sha256::digest(&bytes[..bytes.len() - DIGEST])) != *digest {
            return Err(SandboxError::snapshot("they are damaged"));
        }
        let Some(mut body) = body.strip_prefix(&configuration_digest(&config)) else {
            return Err(SandboxError(
                "the snapshot was taken of a sandbox with another configuration: continue it with \
                 the one it was started with"
                    .to_owned(),
            ));
        };
        let mut sandbox = Self::new(config)?;
        let limits = Limits { depth: 500, len: body.len() };
        let mut reader = stellar_xdr::Limited::new(&mut body, limits);
        sandbox.visitors.arrivals = u32::read_xdr(&mut reader)?;
        sandbox.visitors.present = VecM::<u32>::read_xdr(&mut reader)?.into();
        sandbox.tip = Tip::new(LedgerHeader::read_xdr(&mut reader)?)?;
        let entries = VecM::<LedgerEntry>::read_xdr(&mut reader)?;
        if !body.is_empty() {
            return Err(SandboxError::snapshot("more bytes follow the end"));
        }
        sandbox.state = Arc::new(LedgerState::from_entries(entries.into())?);
        Ok(sandbox)
    }
}

fn configuration_digest(config: &SandboxConfig) -> [u8; DIGEST] {
    let range = &config.transactions_per_ledger;
    let mut digest = Sha256::new();
    digest.update(config.network.id().as_bytes());
    for number in [config.seed, config.close_interval, *range.start() as u64, *range.end() as u64] {
        digest.update(number.to_be_bytes());
    }
    digest.finalize().into()
}
