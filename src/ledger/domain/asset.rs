//! Assets: their text (SEP-11), and the id of the contract that each has (CAP-46).

use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, AlphaNum4, AlphaNum12, Asset, AssetCode4, AssetCode12, ContractIdPreimage, Hash,
    HashIdPreimage, HashIdPreimageContractId, Limits, WriteXdr,
};

use super::{ContractId, NetworkId};

/// Text of the network's own asset.
const NATIVE: &str = "native";

/// Returns `native` or `CODE:ISSUER` (SEP-11).
pub fn asset_text(asset: &Asset) -> String {
    let (code, issuer) = match asset {
        Asset::Native => return NATIVE.to_owned(),
        Asset::CreditAlphanum4(asset) => (asset.asset_code.0.as_slice(), &asset.issuer),
        Asset::CreditAlphanum12(asset) => (asset.asset_code.0.as_slice(), &asset.issuer),
    };
    let code: String =
        code.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    format!("{code}:{issuer}")
}

/// Returns the asset with this text, as [`asset_text`] writes it.
pub fn parse_asset(text: &str) -> Option<Asset> {
    if text == NATIVE {
        return Some(Asset::Native);
    }
    let (code, issuer) = text.split_once(':')?;
    if !code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let issuer: AccountId = issuer.parse().ok()?;
    match code.len() {
        1..=4 => {
            let asset_code = AssetCode4(filled(code));
            Some(Asset::CreditAlphanum4(AlphaNum4 { asset_code, issuer }))
        }
        5..=12 => {
            let asset_code = AssetCode12(filled(code));
            Some(Asset::CreditAlphanum12(AlphaNum12 { asset_code, issuer }))
        }
        _ => None,
    }
}

/// Returns the code's bytes followed by zeros. The code is not longer than `N`.
fn filled<const N: usize>(code: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..code.len()].copy_from_slice(code.as_bytes());
    bytes
}

/// Returns the id of an asset's contract: the SHA-256 of the preimage that contains network and
/// asset (CAP-46).
pub fn asset_contract_id(network: &NetworkId, asset: &Asset) -> ContractId {
    let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash(network.0),
        contract_id_preimage: ContractIdPreimage::Asset(asset.clone()),
    });
    let xdr = preimage.to_xdr(Limits::none()).expect("a preimage of fixed size is written");
    ContractId(Sha256::digest(xdr).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Network;

    const ISSUER: &str = "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN";

    #[test]
    fn texts_of_assets_round_trip() {
        for code in ["A", "USDC", "HARBO", "TWELVELETTER"] {
            let text = format!("{code}:{ISSUER}");
            assert_eq!(asset_text(&parse_asset(&text).unwrap()), text);
        }
        assert_eq!(parse_asset("native"), Some(Asset::Native));
        for bad in [
            "",
            "Native",
            "USDC",
            ":",
            &format!(":{ISSUER}"),
            &format!("THIRTEENLETTE:{ISSUER}"),
            &format!("US C:{ISSUER}"),
            &format!("USDC:{ISSUER} "),
            &format!("USDC:{}", ISSUER.to_lowercase()),
            &format!("USDC:{ISSUER}:{ISSUER}"),
        ] {
            assert_eq!(parse_asset(bad), None, "{bad}");
        }
    }

    #[test]
    fn known_assets_have_their_known_contracts() {
        let network = Network::from_name_or_passphrase("mainnet");
        for (text, contract) in [
            ("native", "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA"),
            (&format!("USDC:{ISSUER}"), "CCW67TSZV3SSS2HXMBQ5JFGCKJNXKZM7UQUWUZPUTHXSTZLEO7SJMI75"),
        ] {
            let asset = parse_asset(text).unwrap();
            assert_eq!(asset_contract_id(network.id(), &asset).to_string(), contract);
        }
    }
}
