//! `Stellar-types.x`: hashes, keys and other small types.

use super::blocks::*;
use super::{Cursor, Depth, XdrError};

schema! {
    typedef Hash { Opaque<32> }
    typedef Uint256 { Opaque<32> }
    typedef TimePoint { Uint64 }
    typedef Duration { Uint64 }
    typedef TimePointMs { Uint64 }
    union ExtensionPoint(Int32) { 0 => Void }
    enum CryptoKeyType {
        ED25519 = 0, PRE_AUTH_TX = 1, HASH_X = 2, ED25519_SIGNED_PAYLOAD = 3, MUXED_ED25519 = 256,
    }
    enum PublicKeyType { ED25519 = 0 }
    enum SignerKeyType { ED25519 = 0, PRE_AUTH_TX = 1, HASH_X = 2, ED25519_SIGNED_PAYLOAD = 3 }
    union PublicKey(PublicKeyType) { ED25519 => Uint256 }
    struct SignerKeyEd25519SignedPayload { ed25519: Uint256, payload: VarOpaque<64> }
    union SignerKey(SignerKeyType) {
        ED25519 => Uint256,
        PRE_AUTH_TX => Uint256,
        HASH_X => Uint256,
        ED25519_SIGNED_PAYLOAD => SignerKeyEd25519SignedPayload,
    }
    typedef Signature { VarOpaque<64> }
    typedef SignatureHint { Opaque<4> }
    typedef NodeId { PublicKey }
    typedef AccountId { PublicKey }
    typedef ContractId { Hash }
    typedef PoolId { Hash }
    enum ClaimableBalanceIdType { V0 = 0 }
    union ClaimableBalanceId(ClaimableBalanceIdType) { V0 => Hash }
}
