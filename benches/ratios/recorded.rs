//! Recorded ledgers, from which every load is made.

use std::error::Error;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use orrery::domain::Network;
use stellar_xdr::{LedgerCloseMeta, LedgerCloseMetaV2, Limits, ReadXdr, WriteXdr};

use super::measure::sized;

/// Number of ledgers of the public network, and maximum number of synthetic ones.
const LEDGERS: [usize; 2] = sized([12, 30], [2, 2]);

/// Consecutive ledgers of one network.
pub struct Recorded {
    /// Description of the ledgers in the report.
    pub name: &'static str,
    pub network: Network,
    pub ledgers: Vec<LedgerCloseMetaV2>,
}

/// Returns the directory of the recorded ledgers.
pub fn directory() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    std::env::var_os("ORRERY_TEST_DATA").map_or(beside, PathBuf::from).join("ledgers")
}

/// Reads consecutive ledgers of the public network.
pub fn public(directory: &Path) -> Result<Recorded, Box<dyn Error>> {
    let mut ledgers = Vec::new();
    for sequence in (63_092_982..).take(LEDGERS[0]) {
        let path = directory.join(format!("pubnet/ledger-{sequence}.xdr.gz"));
        let mut xdr = Vec::new();
        GzDecoder::new(std::fs::File::open(path)?).read_to_end(&mut xdr)?;
        ledgers.push(decoded(&xdr)?);
    }
    Ok(Recorded {
        name: "public ledgers",
        network: Network::from_name_or_passphrase("mainnet"),
        ledgers,
    })
}

/// Reads ledgers that a stellar-core filled with smart-contract transactions for load tests:
/// one file of XDR records, each preceded by four bytes with its length.
pub fn synthetic(directory: &Path) -> Result<Recorded, Box<dyn Error>> {
    let path = directory.join("synthetic/horizon-load-test-ledgers-v28.xdr.zstd");
    let bytes = zstd::decode_all(std::fs::File::open(path)?)?;
    let mut rest = bytes.as_slice();
    let mut ledgers = Vec::new();
    while let Some((mark, after)) = rest.split_first_chunk::<4>()
        && ledgers.len() < LEDGERS[1]
    {
        let length = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
        let (ledger, after) = after.split_at_checked(length).ok_or("the bundle is cut off")?;
        ledgers.push(decoded(ledger)?);
        rest = after;
    }
    Ok(Recorded {
        name: "synthetic ledgers",
        network: Network::from_passphrase("Apply Load"),
        ledgers,
    })
}

/// Writes a ledger to a stream of XDR records, as `orrery import` reads it: a record mark (RFC 5531),
/// which is the bit of the last fragment and its length, and the ledger.
pub fn write_record(stream: &mut impl Write, ledger: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(ledger.len()).map_err(std::io::Error::other)?;
    stream.write_all(&(0x8000_0000 | length).to_be_bytes())?;
    stream.write_all(ledger)
}

fn decoded(xdr: &[u8]) -> Result<LedgerCloseMetaV2, Box<dyn Error>> {
    match LedgerCloseMeta::from_xdr(xdr, Limits::none())? {
        LedgerCloseMeta::V2(ledger) => Ok(ledger),
        _ => Err("only ledgers in the format of protocol 23 and later can be amplified".into()),
    }
}

/// Encodes a value that was decoded from XDR.
pub fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap_or_else(|error| unreachable!("it was XDR before: {error}"))
}
