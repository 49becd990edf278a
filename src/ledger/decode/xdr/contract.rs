//! `Stellar-contract.x`: values of smart contracts.

use super::blocks::*;
use super::common::*;
use super::{Cursor, Depth, XdrError};

schema! {
    typedef ScBytes { VarOpaque }
    typedef ScString { Text }
    typedef ScSymbol { Text<32> }
    enum ScValType {
        BOOL = 0, VOID = 1, ERROR = 2, U32 = 3, I32 = 4, U64 = 5, I64 = 6, TIMEPOINT = 7,
        DURATION = 8, U128 = 9, I128 = 10, U256 = 11, I256 = 12, BYTES = 13, STRING = 14,
        SYMBOL = 15, VEC = 16, MAP = 17, ADDRESS = 18, CONTRACT_INSTANCE = 19,
        LEDGER_KEY_CONTRACT_INSTANCE = 20, LEDGER_KEY_NONCE = 21, EXECUTABLE_TAG = 22,
    }
    enum ScErrorType {
        CONTRACT = 0, WASM_VM = 1, CONTEXT = 2, STORAGE = 3, OBJECT = 4, CRYPTO = 5, EVENTS = 6,
        BUDGET = 7, VALUE = 8, AUTH = 9,
    }
    enum ScErrorCode {
        ARITH_DOMAIN = 0, INDEX_BOUNDS = 1, INVALID_INPUT = 2, MISSING_VALUE = 3,
        EXISTING_VALUE = 4, EXCEEDED_LIMIT = 5, INVALID_ACTION = 6, INTERNAL_ERROR = 7,
        UNEXPECTED_TYPE = 8, UNEXPECTED_SIZE = 9,
    }
    union ScError(ScErrorType) {
        CONTRACT => Uint32,
        WASM_VM | CONTEXT | STORAGE | OBJECT | CRYPTO => ScErrorCode,
        EVENTS | BUDGET | VALUE | AUTH => ScErrorCode,
    }
    struct UInt128Parts { hi: Uint64, lo: Uint64 }
    struct Int128Parts { hi: Int64, lo: Uint64 }
    struct UInt256Parts { hi_hi: Uint64, hi_lo: Uint64, lo_hi: Uint64, lo_lo: Uint64 }
    struct Int256Parts { hi_hi: Int64, hi_lo: Uint64, lo_hi: Uint64, lo_lo: Uint64 }
    enum ContractExecutableType { WASM = 0, STELLAR_ASSET = 1, EXTERNAL_REF = 2 }
    enum ScAddressType {
        ACCOUNT = 0, CONTRACT = 1, MUXED_ACCOUNT = 2, CLAIMABLE_BALANCE = 3, LIQUIDITY_POOL = 4,
        MUXED_CONTRACT = 5,
    }
    struct MuxedEd25519Account { id: Uint64, ed25519: Uint256 }
    struct MuxedContract { id: Uint64, contract_id: ContractId }
    union ScAddress(ScAddressType) {
        ACCOUNT => AccountId,
        CONTRACT => ContractId,
        MUXED_ACCOUNT => MuxedEd25519Account,
        CLAIMABLE_BALANCE => ClaimableBalanceId,
        LIQUIDITY_POOL => PoolId,
        MUXED_CONTRACT => MuxedContract,
    }
    struct ContractExecutableExternalRef { executable_owner: ScAddress, tag: ScString }
    union ContractExecutable(ContractExecutableType) {
        WASM => Hash,
        STELLAR_ASSET => Void,
        EXTERNAL_REF => ContractExecutableExternalRef,
    }
    typedef ScVec { VarArray<ScVal> }
    typedef ScMap { VarArray<ScMapEntry> }
    struct ScNonceKey { nonce: Int64 }
    struct ScContractInstance { executable: ContractExecutable, storage: Optional<ScMap> }
    union ScVal(ScValType) {
        BOOL => Bool,
        VOID => Void,
        ERROR => ScError,
        U32 => Uint32,
        I32 => Int32,
        U64 => Uint64,
        I64 => Int64,
        TIMEPOINT => TimePoint,
        DURATION => Duration,
        U128 => UInt128Parts,
        I128 => Int128Parts,
        U256 => UInt256Parts,
        I256 => Int256Parts,
        BYTES => ScBytes,
        STRING => ScString,
        SYMBOL => ScSymbol,
        VEC => Optional<ScVec>,
        MAP => Optional<ScMap>,
        ADDRESS => ScAddress,
        CONTRACT_INSTANCE => ScContractInstance,
        LEDGER_KEY_CONTRACT_INSTANCE => Void,
        LEDGER_KEY_NONCE => ScNonceKey,
        EXECUTABLE_TAG => ScString,
    }
    struct ScMapEntry { key: ScVal, val: ScVal }
}
