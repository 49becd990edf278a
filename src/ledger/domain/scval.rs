//! Contract values in the forms that users enter: the base64 XDR of an `ScVal`, and addresses as
//! strkeys.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use stellar_xdr::{Limits, ReadXdr, ScAddress, ScVal, WriteXdr};

use super::{ParseError, excerpt};

/// The nesting that the contract host allows in a value (`DEFAULT_XDR_RW_DEPTH_LIMIT` of
/// soroban-env-host).
pub const DEEPEST_VALUE: u32 = 500;

/// Limits of a value that a user enters: more bytes than a URI can carry.
pub const ENTERED_VALUE: Limits = Limits { depth: DEEPEST_VALUE, len: 32 << 10 };

/// Accepts base64 without padding, which some encoders leave out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes the base64 of one `ScVal`, with or without padding, and returns its XDR. A space is read
/// as a `+` that was not percent-encoded.
///
/// # Errors
/// When `text` is empty, not base64 or not an `ScVal`.
pub fn scval_xdr(text: &str) -> Result<Vec<u8>, ParseError> {
    decode_base64(text).map_err(|what| {
        let value = excerpt(text);
        ParseError(format!("holds '{value}', {what}: give the base64 XDR of an ScVal"))
    })
}

/// Like [`scval_xdr`]. The error says what is wrong with the text.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, &'static str> {
    if text.is_empty() {
        return Err("an empty value");
    }
    let bytes = BASE64.decode(text.replace(' ', "+")).map_err(|_| "which is not base64")?;
    ScVal::from_xdr(&bytes, ENTERED_VALUE).map_err(|_| "which is not an ScVal")?;
    Ok(bytes)
}

/// Returns the XDR of the `ScVal::Address` for a strkey (SEP-23): an account `G…`, a contract `C…`,
/// or another kind of address that an `ScAddress` can hold.
///
/// # Errors
/// When `text` is not such a strkey.
pub fn address_xdr(text: &str) -> Result<Vec<u8>, ParseError> {
    let expected = "an address: give a strkey, such as one that starts with G or C";
    let problem = || ParseError::of_strkey(text, &['C', 'G'], expected);
    let address: ScAddress = text.parse().map_err(|_| problem())?;
    ScVal::Address(address).to_xdr(ENTERED_VALUE).map_err(|_| problem())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_is_refused_without_a_stack_overflow() {
        // Nested vectors of one element each, 2000 deep: 12 bytes per level.
        let level = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1];
        let deep = base64::engine::general_purpose::STANDARD.encode(level.repeat(2000));
        assert!(scval_xdr(&deep).is_err());
    }

    #[test]
    fn addresses_are_encoded_as_event_topics_hold_them() {
        let account = "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ";
        let contract = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
        // ScVal::Address is 18; an account is address type 0 and key type 0, a contract address type 1.
        assert_eq!(address_xdr(account).unwrap()[..12], [0, 0, 0, 18, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(address_xdr(contract).unwrap()[..8], [0, 0, 0, 18, 0, 0, 0, 1]);
        assert_eq!(
            (address_xdr(account).unwrap().len(), address_xdr(contract).unwrap().len()),
            (44, 40)
        );
        for bad in ["", "G", "x", &account.to_lowercase(), &account[1..]] {
            let error = address_xdr(bad).unwrap_err().to_string();
            assert!(error.contains("is not an address"), "{error}");
        }
        let mistyped = address_xdr(&contract.replace('W', "V")).unwrap_err().to_string();
        assert!(mistyped.contains("is mistyped"), "{mistyped}");
        // A secret seed is not an address.
        assert!(address_xdr("SBU2RRGLXH3E5CQHTD3ODLDF2BWDCYUSSBLLZ5GNW7JXHDIYKXZWHXL7").is_err());
    }
}
