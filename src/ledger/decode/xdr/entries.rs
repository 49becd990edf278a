//! `Stellar-ledger-entries.x`: ledger entries.

use super::blocks::*;
use super::common::*;
use super::contract::*;
use super::settings::{ConfigSettingEntry, ConfigSettingId};
use super::{Cursor, Depth, XdrError};

schema! {
    typedef Thresholds { Opaque<4> }
    typedef String32 { Text<32> }
    typedef String64 { Text<64> }
    typedef SequenceNumber { Int64 }
    typedef DataValue { VarOpaque<64> }
    typedef AssetCode4 { Opaque<4> }
    typedef AssetCode12 { Opaque<12> }
    enum AssetType { NATIVE = 0, CREDIT_ALPHANUM4 = 1, CREDIT_ALPHANUM12 = 2, POOL_SHARE = 3 }
    union AssetCode(AssetType) { CREDIT_ALPHANUM4 => AssetCode4, CREDIT_ALPHANUM12 => AssetCode12 }
    struct AlphaNum4 { asset_code: AssetCode4, issuer: AccountId }
    struct AlphaNum12 { asset_code: AssetCode12, issuer: AccountId }
    union Asset(AssetType) {
        NATIVE => Void,
        CREDIT_ALPHANUM4 => AlphaNum4,
        CREDIT_ALPHANUM12 => AlphaNum12,
    }
    struct Price { n: Int32, d: Int32 }
    struct Liabilities { buying: Int64, selling: Int64 }
    enum LedgerEntryType {
        ACCOUNT = 0, TRUSTLINE = 1, OFFER = 2, DATA = 3, CLAIMABLE_BALANCE = 4, LIQUIDITY_POOL = 5,
        CONTRACT_DATA = 6, CONTRACT_CODE = 7, CONFIG_SETTING = 8, TTL = 9,
    }
    struct Signer { key: SignerKey, weight: Uint32 }
    typedef SponsorshipDescriptor { Optional<AccountId> }
    struct AccountEntryExtensionV3 { ext: ExtensionPoint, seq_ledger: Uint32, seq_time: TimePoint }
    union AccountEntryExtensionV2Ext(Int32) { 0 => Void, 3 => AccountEntryExtensionV3 }
    struct AccountEntryExtensionV2 {
        num_sponsored: Uint32,
        num_sponsoring: Uint32,
        signer_sponsoring_ids: VarArray<SponsorshipDescriptor, 20>,
        ext: AccountEntryExtensionV2Ext,
    }
    union AccountEntryExtensionV1Ext(Int32) { 0 => Void, 2 => AccountEntryExtensionV2 }
    struct AccountEntryExtensionV1 { liabilities: Liabilities, ext: AccountEntryExtensionV1Ext }
    union AccountEntryExt(Int32) { 0 => Void, 1 => AccountEntryExtensionV1 }
    struct AccountEntry {
        account_id: AccountId,
        balance: Int64,
        seq_num: SequenceNumber,
        num_sub_entries: Uint32,
        inflation_dest: Optional<AccountId>,
        flags: Uint32,
        home_domain: String32,
        thresholds: Thresholds,
        signers: VarArray<Signer, 20>,
        ext: AccountEntryExt,
    }
    enum LiquidityPoolType { CONSTANT_PRODUCT = 0 }
    union TrustLineAsset(AssetType) {
        NATIVE => Void,
        CREDIT_ALPHANUM4 => AlphaNum4,
        CREDIT_ALPHANUM12 => AlphaNum12,
        POOL_SHARE => PoolId,
    }
    struct TrustLineEntryExtensionV2 {
        liquidity_pool_use_count: Int32,
        ext: ExtensionPoint,
    }
    union TrustLineEntryV1Ext(Int32) { 0 => Void, 2 => TrustLineEntryExtensionV2 }
    struct TrustLineEntryV1 { liabilities: Liabilities, ext: TrustLineEntryV1Ext }
    union TrustLineEntryExt(Int32) { 0 => Void, 1 => TrustLineEntryV1 }
    struct TrustLineEntry {
        account_id: AccountId,
        asset: TrustLineAsset,
        balance: Int64,
        limit: Int64,
        flags: Uint32,
        ext: TrustLineEntryExt,
    }
    struct OfferEntry {
        seller_id: AccountId,
        offer_id: Int64,
        selling: Asset,
        buying: Asset,
        amount: Int64,
        price: Price,
        flags: Uint32,
        ext: ExtensionPoint,
    }
    struct DataEntry {
        account_id: AccountId,
        data_name: String64,
        data_value: DataValue,
        ext: ExtensionPoint,
    }
    enum ClaimPredicateType {
        UNCONDITIONAL = 0, AND = 1, OR = 2, NOT = 3, BEFORE_ABSOLUTE_TIME = 4,
        BEFORE_RELATIVE_TIME = 5,
    }
    union ClaimPredicate(ClaimPredicateType) {
        UNCONDITIONAL => Void,
        AND => VarArray<ClaimPredicate, 2>,
        OR => VarArray<ClaimPredicate, 2>,
        NOT => Optional<Boxed<ClaimPredicate>>,
        BEFORE_ABSOLUTE_TIME => Int64,
        BEFORE_RELATIVE_TIME => Int64,
    }
    enum ClaimantType { V0 = 0 }
    struct ClaimantV0 { destination: AccountId, predicate: ClaimPredicate }
    union Claimant(ClaimantType) { V0 => ClaimantV0 }
    struct ClaimableBalanceEntryExtensionV1 {
        ext: ExtensionPoint,
        flags: Uint32,
    }
    union ClaimableBalanceEntryExt(Int32) { 0 => Void, 1 => ClaimableBalanceEntryExtensionV1 }
    struct ClaimableBalanceEntry {
        balance_id: ClaimableBalanceId,
        claimants: VarArray<Claimant, 10>,
        asset: Asset,
        amount: Int64,
        ext: ClaimableBalanceEntryExt,
    }
    struct LiquidityPoolConstantProductParameters { asset_a: Asset, asset_b: Asset, fee: Int32 }
    struct LiquidityPoolEntryConstantProduct {
        params: LiquidityPoolConstantProductParameters,
        reserve_a: Int64,
        reserve_b: Int64,
        total_pool_shares: Int64,
        pool_shares_trust_line_count: Int64,
    }
    union LiquidityPoolEntryBody(LiquidityPoolType) {
        CONSTANT_PRODUCT => LiquidityPoolEntryConstantProduct,
    }
    struct LiquidityPoolEntry { liquidity_pool_id: PoolId, body: LiquidityPoolEntryBody }
    enum ContractDataDurability { TEMPORARY = 0, PERSISTENT = 1 }
    struct ContractDataEntry {
        ext: ExtensionPoint,
        contract: ScAddress,
        key: ScVal,
        durability: ContractDataDurability,
        val: ScVal,
    }
    struct ContractCodeCostInputs {
        ext: ExtensionPoint,
        n_instructions: Uint32,
        n_functions: Uint32,
        n_globals: Uint32,
        n_table_entries: Uint32,
        n_types: Uint32,
        n_data_segments: Uint32,
        n_elem_segments: Uint32,
        n_imports: Uint32,
        n_exports: Uint32,
        n_data_segment_bytes: Uint32,
    }
    struct ContractCodeEntryV1 { ext: ExtensionPoint, cost_inputs: ContractCodeCostInputs }
    union ContractCodeEntryExt(Int32) { 0 => Void, 1 => ContractCodeEntryV1 }
    struct ContractCodeEntry { ext: ContractCodeEntryExt, hash: Hash, code: VarOpaque }
    struct TtlEntry { key_hash: Hash, live_until_ledger_seq: Uint32 }
    struct LedgerEntryExtensionV1 {
        sponsoring_id: SponsorshipDescriptor,
        ext: ExtensionPoint,
    }
    union LedgerEntryData(LedgerEntryType) {
        ACCOUNT => AccountEntry,
        TRUSTLINE => TrustLineEntry,
        OFFER => OfferEntry,
        DATA => DataEntry,
        CLAIMABLE_BALANCE => ClaimableBalanceEntry,
        LIQUIDITY_POOL => LiquidityPoolEntry,
        CONTRACT_DATA => ContractDataEntry,
        CONTRACT_CODE => ContractCodeEntry,
        CONFIG_SETTING => ConfigSettingEntry,
        TTL => TtlEntry,
    }
    union LedgerEntryExt(Int32) { 0 => Void, 1 => LedgerEntryExtensionV1 }
    struct LedgerEntry {
        last_modified_ledger_seq: Uint32,
        data: LedgerEntryData,
        ext: LedgerEntryExt,
    }
    struct LedgerKeyAccount { account_id: AccountId }
    struct LedgerKeyTrustLine { account_id: AccountId, asset: TrustLineAsset }
    struct LedgerKeyOffer { seller_id: AccountId, offer_id: Int64 }
    struct LedgerKeyData { account_id: AccountId, data_name: String64 }
    struct LedgerKeyClaimableBalance { balance_id: ClaimableBalanceId }
    struct LedgerKeyLiquidityPool { liquidity_pool_id: PoolId }
    struct LedgerKeyContractData {
        contract: ScAddress,
        key: ScVal,
        durability: ContractDataDurability,
    }
    struct LedgerKeyContractCode { hash: Hash }
    struct LedgerKeyConfigSetting { config_setting_id: ConfigSettingId }
    struct LedgerKeyTtl { key_hash: Hash }
    union LedgerKey(LedgerEntryType) {
        ACCOUNT => LedgerKeyAccount,
        TRUSTLINE => LedgerKeyTrustLine,
        OFFER => LedgerKeyOffer,
        DATA => LedgerKeyData,
        CLAIMABLE_BALANCE => LedgerKeyClaimableBalance,
        LIQUIDITY_POOL => LedgerKeyLiquidityPool,
        CONTRACT_DATA => LedgerKeyContractData,
        CONTRACT_CODE => LedgerKeyContractCode,
        CONFIG_SETTING => LedgerKeyConfigSetting,
        TTL => LedgerKeyTtl,
    }
    enum EnvelopeType {
        TX_V0 = 0, SCP = 1, TX = 2, AUTH = 3, SCPVALUE = 4, TX_FEE_BUMP = 5, OP_ID = 6,
        POOL_REVOKE_OP_ID = 7, CONTRACT_ID = 8, SOROBAN_AUTHORIZATION = 9,
        SOROBAN_AUTHORIZATION_WITH_ADDRESS = 10,
    }
}
