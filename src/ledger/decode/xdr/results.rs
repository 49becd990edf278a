//! `Stellar-transaction.x`, second half: results of operations and transactions.

use super::blocks::*;
use super::common::*;
use super::entries::*;
use super::operations::OperationType;
use super::{Cursor, Depth, XdrError};

schema! {
    enum ClaimAtomType { V0 = 0, ORDER_BOOK = 1, LIQUIDITY_POOL = 2 }
    struct ClaimOfferAtomV0 {
        seller_ed25519: Uint256,
        offer_id: Int64,
        asset_sold: Asset,
        amount_sold: Int64,
        asset_bought: Asset,
        amount_bought: Int64,
    }
    struct ClaimOfferAtom {
        seller_id: AccountId,
        offer_id: Int64,
        asset_sold: Asset,
        amount_sold: Int64,
        asset_bought: Asset,
        amount_bought: Int64,
    }
    struct ClaimLiquidityAtom {
        liquidity_pool_id: PoolId,
        asset_sold: Asset,
        amount_sold: Int64,
        asset_bought: Asset,
        amount_bought: Int64,
    }
    union ClaimAtom(ClaimAtomType) {
        V0 => ClaimOfferAtomV0,
        ORDER_BOOK => ClaimOfferAtom,
        LIQUIDITY_POOL => ClaimLiquidityAtom,
    }
    enum CreateAccountResultCode {
        SUCCESS = 0, MALFORMED = -1, UNDERFUNDED = -2, LOW_RESERVE = -3, ALREADY_EXIST = -4,
    }
    union CreateAccountResult(CreateAccountResultCode) { _ => Void }
    enum PaymentResultCode {
        SUCCESS = 0, MALFORMED = -1, UNDERFUNDED = -2, SRC_NO_TRUST = -3, SRC_NOT_AUTHORIZED = -4,
        NO_DESTINATION = -5, NO_TRUST = -6, NOT_AUTHORIZED = -7, LINE_FULL = -8, NO_ISSUER = -9,
    }
    union PaymentResult(PaymentResultCode) { _ => Void }
    enum PathPaymentStrictReceiveResultCode {
        SUCCESS = 0, MALFORMED = -1, UNDERFUNDED = -2, SRC_NO_TRUST = -3, SRC_NOT_AUTHORIZED = -4,
        NO_DESTINATION = -5, NO_TRUST = -6, NOT_AUTHORIZED = -7, LINE_FULL = -8, NO_ISSUER = -9,
        TOO_FEW_OFFERS = -10, OFFER_CROSS_SELF = -11, OVER_SENDMAX = -12,
    }
    struct SimplePaymentResult { destination: AccountId, asset: Asset, amount: Int64 }
    struct PathPaymentStrictReceiveResultSuccess {
        offers: VarArray<ClaimAtom>,
        last: SimplePaymentResult,
    }
    union PathPaymentStrictReceiveResult(PathPaymentStrictReceiveResultCode) {
        SUCCESS => PathPaymentStrictReceiveResultSuccess,
        NO_ISSUER => Asset,
        _ => Void,
    }
    enum PathPaymentStrictSendResultCode {
        SUCCESS = 0, MALFORMED = -1, UNDERFUNDED = -2, SRC_NO_TRUST = -3, SRC_NOT_AUTHORIZED = -4,
        NO_DESTINATION = -5, NO_TRUST = -6, NOT_AUTHORIZED = -7, LINE_FULL = -8, NO_ISSUER = -9,
        TOO_FEW_OFFERS = -10, OFFER_CROSS_SELF = -11, UNDER_DESTMIN = -12,
    }
    struct PathPaymentStrictSendResultSuccess {
        offers: VarArray<ClaimAtom>,
        last: SimplePaymentResult,
    }
    union PathPaymentStrictSendResult(PathPaymentStrictSendResultCode) {
        SUCCESS => PathPaymentStrictSendResultSuccess,
        NO_ISSUER => Asset,
        _ => Void,
    }
    enum ManageSellOfferResultCode {
        SUCCESS = 0, MALFORMED = -1, SELL_NO_TRUST = -2, BUY_NO_TRUST = -3,
        SELL_NOT_AUTHORIZED = -4, BUY_NOT_AUTHORIZED = -5, LINE_FULL = -6, UNDERFUNDED = -7,
        CROSS_SELF = -8, SELL_NO_ISSUER = -9, BUY_NO_ISSUER = -10, NOT_FOUND = -11,
        LOW_RESERVE = -12,
    }
    enum ManageOfferEffect { CREATED = 0, UPDATED = 1, DELETED = 2 }
    union ManageOfferSuccessResultOffer(ManageOfferEffect) {
        CREATED | UPDATED => OfferEntry,
        DELETED => Void,
    }
    struct ManageOfferSuccessResult {
        offers_claimed: VarArray<ClaimAtom>,
        offer: ManageOfferSuccessResultOffer,
    }
    union ManageSellOfferResult(ManageSellOfferResultCode) {
        SUCCESS => ManageOfferSuccessResult,
        _ => Void,
    }
    enum ManageBuyOfferResultCode {
        SUCCESS = 0, MALFORMED = -1, SELL_NO_TRUST = -2, BUY_NO_TRUST = -3,
        SELL_NOT_AUTHORIZED = -4, BUY_NOT_AUTHORIZED = -5, LINE_FULL = -6, UNDERFUNDED = -7,
        CROSS_SELF = -8, SELL_NO_ISSUER = -9, BUY_NO_ISSUER = -10, NOT_FOUND = -11,
        LOW_RESERVE = -12,
    }
    union ManageBuyOfferResult(ManageBuyOfferResultCode) {
        SUCCESS => ManageOfferSuccessResult,
        _ => Void,
    }
    enum SetOptionsResultCode {
        SUCCESS = 0, LOW_RESERVE = -1, TOO_MANY_SIGNERS = -2, BAD_FLAGS = -3,
        INVALID_INFLATION = -4, CANT_CHANGE = -5, UNKNOWN_FLAG = -6, THRESHOLD_OUT_OF_RANGE = -7,
        BAD_SIGNER = -8, INVALID_HOME_DOMAIN = -9, AUTH_REVOCABLE_REQUIRED = -10,
    }
    union SetOptionsResult(SetOptionsResultCode) { _ => Void }
    enum ChangeTrustResultCode {
        SUCCESS = 0, MALFORMED = -1, NO_ISSUER = -2, INVALID_LIMIT = -3, LOW_RESERVE = -4,
        SELF_NOT_ALLOWED = -5, TRUST_LINE_MISSING = -6, CANNOT_DELETE = -7,
        NOT_AUTH_MAINTAIN_LIABILITIES = -8,
    }
    union ChangeTrustResult(ChangeTrustResultCode) { _ => Void }
    enum AllowTrustResultCode {
        SUCCESS = 0, MALFORMED = -1, NO_TRUST_LINE = -2, TRUST_NOT_REQUIRED = -3, CANT_REVOKE = -4,
        SELF_NOT_ALLOWED = -5, LOW_RESERVE = -6,
    }
    union AllowTrustResult(AllowTrustResultCode) { _ => Void }
    enum AccountMergeResultCode {
        SUCCESS = 0, MALFORMED = -1, NO_ACCOUNT = -2, IMMUTABLE_SET = -3, HAS_SUB_ENTRIES = -4,
        SEQNUM_TOO_FAR = -5, DEST_FULL = -6, IS_SPONSOR = -7,
    }
    union AccountMergeResult(AccountMergeResultCode) { SUCCESS => Int64, _ => Void }
    enum InflationResultCode { SUCCESS = 0, NOT_TIME = -1 }
    struct InflationPayout { destination: AccountId, amount: Int64 }
    union InflationResult(InflationResultCode) {
        SUCCESS => VarArray<InflationPayout>,
        NOT_TIME => Void,
    }
    enum ManageDataResultCode {
        SUCCESS = 0, NOT_SUPPORTED_YET = -1, NAME_NOT_FOUND = -2, LOW_RESERVE = -3,
        INVALID_NAME = -4,
    }
    union ManageDataResult(ManageDataResultCode) { _ => Void }
    enum BumpSequenceResultCode { SUCCESS = 0, BAD_SEQ = -1 }
    union BumpSequenceResult(BumpSequenceResultCode) { _ => Void }
    enum CreateClaimableBalanceResultCode {
        SUCCESS = 0, MALFORMED = -1, LOW_RESERVE = -2, NO_TRUST = -3, NOT_AUTHORIZED = -4,
        UNDERFUNDED = -5,
    }
    union CreateClaimableBalanceResult(CreateClaimableBalanceResultCode) {
        SUCCESS => ClaimableBalanceId,
        _ => Void,
    }
    enum ClaimClaimableBalanceResultCode {
        SUCCESS = 0, DOES_NOT_EXIST = -1, CANNOT_CLAIM = -2, LINE_FULL = -3, NO_TRUST = -4,
        NOT_AUTHORIZED = -5, TRUSTLINE_FROZEN = -6,
    }
    union ClaimClaimableBalanceResult(ClaimClaimableBalanceResultCode) { _ => Void }
    enum BeginSponsoringFutureReservesResultCode {
        SUCCESS = 0, MALFORMED = -1, ALREADY_SPONSORED = -2, RECURSIVE = -3,
    }
    union BeginSponsoringFutureReservesResult(BeginSponsoringFutureReservesResultCode) { _ => Void }
    enum EndSponsoringFutureReservesResultCode { SUCCESS = 0, NOT_SPONSORED = -1 }
    union EndSponsoringFutureReservesResult(EndSponsoringFutureReservesResultCode) { _ => Void }
    enum RevokeSponsorshipResultCode {
        SUCCESS = 0, DOES_NOT_EXIST = -1, NOT_SPONSOR = -2, LOW_RESERVE = -3,
        ONLY_TRANSFERABLE = -4, MALFORMED = -5,
    }
    union RevokeSponsorshipResult(RevokeSponsorshipResultCode) { _ => Void }
    enum ClawbackResultCode {
        SUCCESS = 0, MALFORMED = -1, NOT_CLAWBACK_ENABLED = -2, NO_TRUST = -3, UNDERFUNDED = -4,
    }
    union ClawbackResult(ClawbackResultCode) { _ => Void }
    enum ClawbackClaimableBalanceResultCode {
        SUCCESS = 0, DOES_NOT_EXIST = -1, NOT_ISSUER = -2, NOT_CLAWBACK_ENABLED = -3,
    }
    union ClawbackClaimableBalanceResult(ClawbackClaimableBalanceResultCode) { _ => Void }
    enum SetTrustLineFlagsResultCode {
        SUCCESS = 0, MALFORMED = -1, NO_TRUST_LINE = -2, CANT_REVOKE = -3, INVALID_STATE = -4,
        LOW_RESERVE = -5,
    }
    union SetTrustLineFlagsResult(SetTrustLineFlagsResultCode) { _ => Void }
    enum LiquidityPoolDepositResultCode {
        SUCCESS = 0, MALFORMED = -1, NO_TRUST = -2, NOT_AUTHORIZED = -3, UNDERFUNDED = -4,
        LINE_FULL = -5, BAD_PRICE = -6, POOL_FULL = -7, TRUSTLINE_FROZEN = -8,
    }
    union LiquidityPoolDepositResult(LiquidityPoolDepositResultCode) { _ => Void }
    enum LiquidityPoolWithdrawResultCode {
        SUCCESS = 0, MALFORMED = -1, NO_TRUST = -2, UNDERFUNDED = -3, LINE_FULL = -4,
        UNDER_MINIMUM = -5, TRUSTLINE_FROZEN = -6,
    }
    union LiquidityPoolWithdrawResult(LiquidityPoolWithdrawResultCode) { _ => Void }
    enum InvokeHostFunctionResultCode {
        SUCCESS = 0, MALFORMED = -1, TRAPPED = -2, RESOURCE_LIMIT_EXCEEDED = -3,
        ENTRY_ARCHIVED = -4, INSUFFICIENT_REFUNDABLE_FEE = -5,
    }
    union InvokeHostFunctionResult(InvokeHostFunctionResultCode) { SUCCESS => Hash, _ => Void }
    enum ExtendFootprintTtlResultCode {
        SUCCESS = 0, MALFORMED = -1, RESOURCE_LIMIT_EXCEEDED = -2, INSUFFICIENT_REFUNDABLE_FEE = -3,
    }
    union ExtendFootprintTtlResult(ExtendFootprintTtlResultCode) { _ => Void }
    enum RestoreFootprintResultCode {
        SUCCESS = 0, MALFORMED = -1, RESOURCE_LIMIT_EXCEEDED = -2, INSUFFICIENT_REFUNDABLE_FEE = -3,
    }
    union RestoreFootprintResult(RestoreFootprintResultCode) { _ => Void }
    enum OperationResultCode {
        INNER = 0, BAD_AUTH = -1, NO_ACCOUNT = -2, NOT_SUPPORTED = -3,
        TOO_MANY_SUBENTRIES = -4, EXCEEDED_WORK_LIMIT = -5, TOO_MANY_SPONSORING = -6,
    }
    union OperationResultTr(OperationType) {
        CREATE_ACCOUNT => CreateAccountResult,
        PAYMENT => PaymentResult,
        PATH_PAYMENT_STRICT_RECEIVE => PathPaymentStrictReceiveResult,
        MANAGE_SELL_OFFER => ManageSellOfferResult,
        CREATE_PASSIVE_SELL_OFFER => ManageSellOfferResult,
        SET_OPTIONS => SetOptionsResult,
        CHANGE_TRUST => ChangeTrustResult,
        ALLOW_TRUST => AllowTrustResult,
        ACCOUNT_MERGE => AccountMergeResult,
        INFLATION => InflationResult,
        MANAGE_DATA => ManageDataResult,
        BUMP_SEQUENCE => BumpSequenceResult,
        MANAGE_BUY_OFFER => ManageBuyOfferResult,
        PATH_PAYMENT_STRICT_SEND => PathPaymentStrictSendResult,
        CREATE_CLAIMABLE_BALANCE => CreateClaimableBalanceResult,
        CLAIM_CLAIMABLE_BALANCE => ClaimClaimableBalanceResult,
        BEGIN_SPONSORING_FUTURE_RESERVES => BeginSponsoringFutureReservesResult,
        END_SPONSORING_FUTURE_RESERVES => EndSponsoringFutureReservesResult,
        REVOKE_SPONSORSHIP => RevokeSponsorshipResult,
        CLAWBACK => ClawbackResult,
        CLAWBACK_CLAIMABLE_BALANCE => ClawbackClaimableBalanceResult,
        SET_TRUST_LINE_FLAGS => SetTrustLineFlagsResult,
        LIQUIDITY_POOL_DEPOSIT => LiquidityPoolDepositResult,
        LIQUIDITY_POOL_WITHDRAW => LiquidityPoolWithdrawResult,
        INVOKE_HOST_FUNCTION => InvokeHostFunctionResult,
        EXTEND_FOOTPRINT_TTL => ExtendFootprintTtlResult,
        RESTORE_FOOTPRINT => RestoreFootprintResult,
    }
    union OperationResult(OperationResultCode) { INNER => OperationResultTr, _ => Void }
    enum TransactionResultCode {
        FEE_BUMP_INNER_SUCCESS = 1, SUCCESS = 0, FAILED = -1, TOO_EARLY = -2,
        TOO_LATE = -3, MISSING_OPERATION = -4, BAD_SEQ = -5, BAD_AUTH = -6,
        INSUFFICIENT_BALANCE = -7, NO_ACCOUNT = -8, INSUFFICIENT_FEE = -9,
        BAD_AUTH_EXTRA = -10, INTERNAL_ERROR = -11, NOT_SUPPORTED = -12,
        FEE_BUMP_INNER_FAILED = -13, BAD_SPONSORSHIP = -14, BAD_MIN_SEQ_AGE_OR_GAP = -15,
        MALFORMED = -16, SOROBAN_INVALID = -17, FROZEN_KEY_ACCESSED = -18,
    }
    union InnerTransactionResultResult(TransactionResultCode) {
        SUCCESS | FAILED => VarArray<OperationResult>,
        TOO_EARLY | TOO_LATE | MISSING_OPERATION | BAD_SEQ | BAD_AUTH => Void,
        INSUFFICIENT_BALANCE | NO_ACCOUNT | INSUFFICIENT_FEE | BAD_AUTH_EXTRA => Void,
        INTERNAL_ERROR | NOT_SUPPORTED | BAD_SPONSORSHIP | BAD_MIN_SEQ_AGE_OR_GAP => Void,
        MALFORMED | SOROBAN_INVALID | FROZEN_KEY_ACCESSED => Void,
    }
    struct InnerTransactionResult {
        fee_charged: Int64,
        result: InnerTransactionResultResult,
        ext: ExtensionPoint,
    }
}
