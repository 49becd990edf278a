//! `Stellar-transaction.x`, first half: operations and other parts of a transaction.

use super::blocks::*;
use super::common::*;
use super::contract::*;
use super::entries::*;
use super::{Cursor, Depth, Part, Visit, XdrError};

schema! {
    union LiquidityPoolParameters(LiquidityPoolType) {
        CONSTANT_PRODUCT => LiquidityPoolConstantProductParameters,
    }
    struct MuxedAccountMed25519 { id: Uint64, ed25519: Uint256 }
    union MuxedAccount(CryptoKeyType) { ED25519 => Uint256, MUXED_ED25519 => MuxedAccountMed25519 }
    struct DecoratedSignature { hint: SignatureHint, signature: Signature }
    enum OperationType {
        CREATE_ACCOUNT = 0, PAYMENT = 1, PATH_PAYMENT_STRICT_RECEIVE = 2, MANAGE_SELL_OFFER = 3,
        CREATE_PASSIVE_SELL_OFFER = 4, SET_OPTIONS = 5, CHANGE_TRUST = 6, ALLOW_TRUST = 7,
        ACCOUNT_MERGE = 8, INFLATION = 9, MANAGE_DATA = 10, BUMP_SEQUENCE = 11,
        MANAGE_BUY_OFFER = 12, PATH_PAYMENT_STRICT_SEND = 13, CREATE_CLAIMABLE_BALANCE = 14,
        CLAIM_CLAIMABLE_BALANCE = 15, BEGIN_SPONSORING_FUTURE_RESERVES = 16,
        END_SPONSORING_FUTURE_RESERVES = 17, REVOKE_SPONSORSHIP = 18, CLAWBACK = 19,
        CLAWBACK_CLAIMABLE_BALANCE = 20, SET_TRUST_LINE_FLAGS = 21, LIQUIDITY_POOL_DEPOSIT = 22,
        LIQUIDITY_POOL_WITHDRAW = 23, INVOKE_HOST_FUNCTION = 24, EXTEND_FOOTPRINT_TTL = 25,
        RESTORE_FOOTPRINT = 26,
    }
    struct CreateAccountOp { destination: AccountId, starting_balance: Int64 }
    struct PaymentOp { destination: MuxedAccount, asset: Asset, amount: Int64 }
    struct PathPaymentStrictReceiveOp {
        send_asset: Asset,
        send_max: Int64,
        destination: MuxedAccount,
        dest_asset: Asset,
        dest_amount: Int64,
        path: VarArray<Asset, 5>,
    }
    struct PathPaymentStrictSendOp {
        send_asset: Asset,
        send_amount: Int64,
        destination: MuxedAccount,
        dest_asset: Asset,
        dest_min: Int64,
        path: VarArray<Asset, 5>,
    }
    struct ManageSellOfferOp {
        selling: Asset,
        buying: Asset,
        amount: Int64,
        price: Price,
        offer_id: Int64,
    }
    struct ManageBuyOfferOp {
        selling: Asset,
        buying: Asset,
        buy_amount: Int64,
        price: Price,
        offer_id: Int64,
    }
    struct CreatePassiveSellOfferOp { selling: Asset, buying: Asset, amount: Int64, price: Price }
    struct SetOptionsOp {
        inflation_dest: Optional<AccountId>,
        clear_flags: Optional<Uint32>,
        set_flags: Optional<Uint32>,
        master_weight: Optional<Uint32>,
        low_threshold: Optional<Uint32>,
        med_threshold: Optional<Uint32>,
        high_threshold: Optional<Uint32>,
        home_domain: Optional<String32>,
        signer: Optional<Signer>,
    }
    union ChangeTrustAsset(AssetType) {
        NATIVE => Void,
        CREDIT_ALPHANUM4 => AlphaNum4,
        CREDIT_ALPHANUM12 => AlphaNum12,
        POOL_SHARE => LiquidityPoolParameters,
    }
    struct ChangeTrustOp { line: ChangeTrustAsset, limit: Int64 }
    struct AllowTrustOp { trustor: AccountId, asset: AssetCode, authorize: Uint32 }
    struct ManageDataOp { data_name: String64, data_value: Optional<DataValue> }
    struct BumpSequenceOp { bump_to: SequenceNumber }
    struct CreateClaimableBalanceOp {
        asset: Asset,
        amount: Int64,
        claimants: VarArray<Claimant, 10>,
    }
    struct ClaimClaimableBalanceOp { balance_id: ClaimableBalanceId }
    struct BeginSponsoringFutureReservesOp { sponsored_id: AccountId }
    enum RevokeSponsorshipType { LEDGER_ENTRY = 0, SIGNER = 1 }
    struct RevokeSponsorshipOpSigner { account_id: AccountId, signer_key: SignerKey }
    union RevokeSponsorshipOp(RevokeSponsorshipType) {
        LEDGER_ENTRY => LedgerKey,
        SIGNER => RevokeSponsorshipOpSigner,
    }
    struct ClawbackOp { asset: Asset, from: MuxedAccount, amount: Int64 }
    struct ClawbackClaimableBalanceOp { balance_id: ClaimableBalanceId }
    struct SetTrustLineFlagsOp {
        trustor: AccountId,
        asset: Asset,
        clear_flags: Uint32,
        set_flags: Uint32,
    }
    struct LiquidityPoolDepositOp {
        liquidity_pool_id: PoolId,
        max_amount_a: Int64,
        max_amount_b: Int64,
        min_price: Price,
        max_price: Price,
    }
    struct LiquidityPoolWithdrawOp {
        liquidity_pool_id: PoolId,
        amount: Int64,
        min_amount_a: Int64,
        min_amount_b: Int64,
    }
    enum HostFunctionType {
        INVOKE_CONTRACT = 0, CREATE_CONTRACT = 1, UPLOAD_CONTRACT_WASM = 2, CREATE_CONTRACT_V2 = 3,
    }
    enum ContractIdPreimageType { ADDRESS = 0, ASSET = 1 }
    struct ContractIdPreimageFromAddress { address: ScAddress, salt: Uint256 }
    union ContractIdPreimage(ContractIdPreimageType) {
        ADDRESS => ContractIdPreimageFromAddress,
        ASSET => Asset,
    }
    enum SorobanAuthorizedFunctionType {
        CONTRACT_FN = 0, CREATE_CONTRACT_HOST_FN = 1, CREATE_CONTRACT_V2_HOST_FN = 2,
    }
    enum SorobanCredentialsType {
        SOURCE_ACCOUNT = 0, ADDRESS = 1, ADDRESS_V2 = 2, ADDRESS_WITH_DELEGATES = 3,
    }
    struct ExtendFootprintTtlOp { ext: ExtensionPoint, extend_to: Uint32 }
    struct RestoreFootprintOp { ext: ExtensionPoint }
    enum MemoType { NONE = 0, TEXT = 1, ID = 2, HASH = 3, RETURN = 4 }
    union Memo(MemoType) {
        NONE => Void,
        TEXT => Text<28>,
        ID => Uint64,
        HASH => Hash,
        RETURN => Hash,
    }
    struct TimeBounds { min_time: TimePoint, max_time: TimePoint }
    struct LedgerBounds { min_ledger: Uint32, max_ledger: Uint32 }
    struct PreconditionsV2 {
        time_bounds: Optional<TimeBounds>,
        ledger_bounds: Optional<LedgerBounds>,
        min_seq_num: Optional<SequenceNumber>,
        min_seq_age: Duration,
        min_seq_ledger_gap: Uint32,
        extra_signers: VarArray<SignerKey, 2>,
    }
    enum PreconditionType { NONE = 0, TIME = 1, V2 = 2 }
    union Preconditions(PreconditionType) {
        NONE => Void,
        TIME => TimeBounds,
        V2 => PreconditionsV2,
    }
    struct SorobanResourcesExtV0 { archived_soroban_entries: VarArray<Uint32> }
    union SorobanTransactionDataExt(Int32) { 0 => Void, 1 => SorobanResourcesExtV0 }
}

visited! {
    part FootprintKey { LedgerKey }
    part Address { ScAddress }
    part Preimage { ContractIdPreimage }
    struct InvokeContractArgs {
        contract_address: Address,
        function_name: ScSymbol,
        args: VarArray<ScVal>,
    }
    struct CreateContractArgs {
        contract_id_preimage: Preimage,
        executable: ContractExecutable,
    }
    struct CreateContractArgsV2 {
        contract_id_preimage: Preimage,
        executable: ContractExecutable,
        constructor_args: VarArray<ScVal>,
    }
    union HostFunction(HostFunctionType) {
        INVOKE_CONTRACT => InvokeContractArgs,
        CREATE_CONTRACT => CreateContractArgs,
        UPLOAD_CONTRACT_WASM => VarOpaque,
        CREATE_CONTRACT_V2 => CreateContractArgsV2,
    }
    union SorobanAuthorizedFunction(SorobanAuthorizedFunctionType) {
        CONTRACT_FN => InvokeContractArgs,
        CREATE_CONTRACT_HOST_FN => CreateContractArgs,
        CREATE_CONTRACT_V2_HOST_FN => CreateContractArgsV2,
    }
    struct SorobanAuthorizedInvocation {
        function: SorobanAuthorizedFunction,
        sub_invocations: VarArray<SorobanAuthorizedInvocation>,
    }
    struct SorobanAddressCredentials {
        address: Address,
        nonce: Int64,
        signature_expiration_ledger: Uint32,
        signature: ScVal,
    }
    struct SorobanDelegateSignature {
        address: Address,
        signature: ScVal,
        nested_delegates: VarArray<SorobanDelegateSignature>,
    }
    struct SorobanAddressCredentialsWithDelegates {
        address_credentials: SorobanAddressCredentials,
        delegates: VarArray<SorobanDelegateSignature>,
    }
    union SorobanCredentials(SorobanCredentialsType) {
        SOURCE_ACCOUNT => Void,
        ADDRESS => SorobanAddressCredentials,
        ADDRESS_V2 => SorobanAddressCredentials,
        ADDRESS_WITH_DELEGATES => SorobanAddressCredentialsWithDelegates,
    }
    struct SorobanAuthorizationEntry {
        credentials: SorobanCredentials,
        root_invocation: SorobanAuthorizedInvocation,
    }
    struct InvokeHostFunctionOp {
        host_function: HostFunction,
        auth: VarArray<SorobanAuthorizationEntry>,
    }
    union OperationBody(OperationType) {
        CREATE_ACCOUNT => CreateAccountOp,
        PAYMENT => PaymentOp,
        PATH_PAYMENT_STRICT_RECEIVE => PathPaymentStrictReceiveOp,
        MANAGE_SELL_OFFER => ManageSellOfferOp,
        CREATE_PASSIVE_SELL_OFFER => CreatePassiveSellOfferOp,
        SET_OPTIONS => SetOptionsOp,
        CHANGE_TRUST => ChangeTrustOp,
        ALLOW_TRUST => AllowTrustOp,
        ACCOUNT_MERGE => MuxedAccount,
        INFLATION => Void,
        MANAGE_DATA => ManageDataOp,
        BUMP_SEQUENCE => BumpSequenceOp,
        MANAGE_BUY_OFFER => ManageBuyOfferOp,
        PATH_PAYMENT_STRICT_SEND => PathPaymentStrictSendOp,
        CREATE_CLAIMABLE_BALANCE => CreateClaimableBalanceOp,
        CLAIM_CLAIMABLE_BALANCE => ClaimClaimableBalanceOp,
        BEGIN_SPONSORING_FUTURE_RESERVES => BeginSponsoringFutureReservesOp,
        END_SPONSORING_FUTURE_RESERVES => Void,
        REVOKE_SPONSORSHIP => RevokeSponsorshipOp,
        CLAWBACK => ClawbackOp,
        CLAWBACK_CLAIMABLE_BALANCE => ClawbackClaimableBalanceOp,
        SET_TRUST_LINE_FLAGS => SetTrustLineFlagsOp,
        LIQUIDITY_POOL_DEPOSIT => LiquidityPoolDepositOp,
        LIQUIDITY_POOL_WITHDRAW => LiquidityPoolWithdrawOp,
        INVOKE_HOST_FUNCTION => InvokeHostFunctionOp,
        EXTEND_FOOTPRINT_TTL => ExtendFootprintTtlOp,
        RESTORE_FOOTPRINT => RestoreFootprintOp,
    }
    struct Operation { source_account: Optional<MuxedAccount>, body: OperationBody }
    struct LedgerFootprint { read_only: VarArray<FootprintKey>, read_write: VarArray<FootprintKey> }
    struct SorobanResources {
        footprint: LedgerFootprint,
        instructions: Uint32,
        disk_read_bytes: Uint32,
        write_bytes: Uint32,
    }
    struct SorobanTransactionData {
        ext: SorobanTransactionDataExt,
        resources: SorobanResources,
        resource_fee: Int64,
    }
}
