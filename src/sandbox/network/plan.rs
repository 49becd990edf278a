//! Plans the transactions of one ledger: which accounts may still send one, and how to build one
//! that the network accepts. Does not decide what to submit.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ExtendFootprintTtlOp, ExtensionPoint, Hash, HashIdPreimage, HashIdPreimageSorobanAuthorization,
    HashIdPreimageSorobanAuthorizationWithAddress, HostFunction, InvokeContractArgs,
    InvokeHostFunctionOp, LedgerFootprint, LedgerKey, Limits, Memo, OperationBody,
    RestoreFootprintOp, ScAddress, ScMap, ScMapEntry, ScSymbol, ScVal, ScVec,
    SorobanAddressCredentials, SorobanAuthorizationEntry, SorobanAuthorizedFunction,
    SorobanCredentials, SorobanResources, SorobanTransactionData, SorobanTransactionDataExt,
    WriteXdr,
};

use super::actors::{Actor, PermanentAccounts};
use super::assets::{KnownAsset, byte_string, symbol};
use super::classic::spendable;
use super::contracts::simulate;
use super::dice::Dice;
use super::envelope::{Draft, SignedTransaction};
use super::error::{Result, SandboxError};
use super::fees::{rent_fee, resource_fee, saturate};
use super::footprint::{extension_rent, restoration_rent};
use super::host::MIN_PERSISTENT_TTL;
use super::open_ledger::OpenLedger;
use super::state::LedgerState;

/// Spendable balance that an account needs to send a transaction, in stroops: enough for any fee.
const WORKING_BALANCE: i64 = 20_000_000;
/// Validity of a signed authorisation, in ledgers.
const AUTHORISATION_TTL: u32 = 30;
/// One in this many transactions, on average, is wrapped in a fee bump.
const FEE_BUMP_ONE_IN: u64 = 7;

/// Transactions planned for one ledger.
pub(super) struct Planner<'a> {
    pub(super) permanent: &'a PermanentAccounts,
    pub(super) ledger: &'a OpenLedger<'a>,
    /// State after the previous ledger, which simulations read.
    pub(super) state: &'a Arc<LedgerState>,
    pub(super) dice: Dice,
    busy: BTreeSet<[u8; 32]>,
    transactions: Vec<SignedTransaction>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        permanent: &'a PermanentAccounts,
        ledger: &'a OpenLedger<'a>,
        state: &'a Arc<LedgerState>,
        dice: Dice,
    ) -> Self {
        Self { permanent, ledger, state, dice, busy: BTreeSet::new(), transactions: Vec::new() }
    }

    /// Adds a transaction from outside; its source account sends no other in this ledger.
    pub(super) fn add_submitted(&mut self, transaction: SignedTransaction) -> Result<()> {
        self.busy.insert(transaction.source()?);
        self.transactions.push(transaction);
        Ok(())
    }

    /// Returns whether an account already has a transaction in this ledger.
    pub(super) fn is_busy(&self, key: &[u8; 32]) -> bool {
        self.busy.contains(key)
    }

    /// Returns the hash of the transaction that was added last.
    pub(super) fn latest_hash(&self) -> Option<[u8; 32]> {
        self.transactions.last().map(|transaction| transaction.hash.0)
    }

    /// Returns whether no transaction is planned yet.
    pub(super) fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    pub(super) fn into_transactions(self) -> Vec<SignedTransaction> {
        self.transactions
    }

    /// Returns whether the actor can send a transaction in this ledger: only one, as in a node's
    /// queue, and only with enough balance for its fee.
    pub(super) fn is_idle(&self, actor: &Actor) -> bool {
        let account = self.state.account(&actor.account());
        account.is_some_and(|account| spendable(account) >= WORKING_BALANCE)
            && !self.busy.contains(&actor.public_key())
    }

    /// Returns a random trader that can send a transaction in this ledger.
    pub(super) fn idle_trader(&mut self) -> Option<&'a Actor> {
        let permanent = self.permanent;
        let idle: Vec<_> = permanent.traders.iter().filter(|trader| self.is_idle(trader)).collect();
        self.dice.pick(&idle).copied()
    }

    /// Returns a random trader other than `actor`.
    pub(super) fn other_trader(&mut self, actor: &Actor) -> Option<&'a Actor> {
        let permanent = self.permanent;
        let others: Vec<_> = permanent
            .traders
            .iter()
            .filter(|other| other.public_key() != actor.public_key())
            .collect();
        self.dice.pick(&others).copied()
    }

    /// Submits classic operations; returns `false` when the source cannot send a transaction.
    pub(super) fn submit(
        &mut self,
        source: &Actor,
        operations: Vec<OperationBody>,
        memo: Memo,
    ) -> Result<bool> {
        if !self.is_idle(source) {
            return Ok(false);
        }
        let draft = self.draft(source, operations, memo, None)?;
        self.send(draft)
    }

    /// Calls a function of an asset's contract; returns `false` when the source cannot send or the
    /// simulation fails.
    pub(super) fn call(
        &mut self,
        source: &Actor,
        asset: &KnownAsset,
        function: &str,
        args: Vec<ScVal>,
    ) -> Result<bool> {
        let call = invocation(asset.address(), function, args)?;
        self.invoke(source, &HostFunction::InvokeContract(call), None)
    }

    /// Simulates a call with `args` and submits it with `submitted`, like a client with an outdated
    /// view of the ledger.
    pub(super) fn call_with_other_args(
        &mut self,
        source: &Actor,
        asset: &KnownAsset,
        function: &str,
        args: Vec<ScVal>,
        submitted: Vec<ScVal>,
    ) -> Result<bool> {
        let submitted = invocation(asset.address(), function, submitted)?;
        let call = invocation(asset.address(), function, args)?;
        self.invoke(source, &HostFunction::InvokeContract(call), Some(submitted))
    }

    /// Simulates a host function, signs the required authorisation, sets the fee by the simulation,
    /// and submits the call; with the arguments `submitted` when given.
    pub(super) fn invoke(
        &mut self,
        source: &Actor,
        function: &HostFunction,
        submitted: Option<InvokeContractArgs>,
    ) -> Result<bool> {
        self.submit_call(source, function, submitted, &[])
    }

    /// As [`Self::invoke`], with the keys `more` added to the footprint.
    pub(super) fn invoke_with_extra_keys(
        &mut self,
        source: &Actor,
        function: &HostFunction,
        more: &[LedgerKey],
    ) -> Result<bool> {
        self.submit_call(source, function, None, more)
    }

    fn submit_call(
        &mut self,
        source: &Actor,
        function: &HostFunction,
        submitted: Option<InvokeContractArgs>,
        more: &[LedgerKey],
    ) -> Result<bool> {
        if !self.is_idle(source) {
            return Ok(false);
        }
        let seed = self.dice.seed();
        let account = source.account();
        let Some(simulation) = simulate(self.state, self.ledger, function, &account, seed)? else {
            return Ok(false);
        };
        let mut resources = simulation.resources;
        add_to_footprint(&mut resources, more)?;
        let mut auth = simulation.auth;
        let mut host_function = function.clone();
        if let Some(args) = submitted {
            for entry in &mut auth {
                entry.root_invocation.function =
                    SorobanAuthorizedFunction::ContractFn(args.clone());
            }
            host_function = HostFunction::InvokeContract(args);
        }
        for entry in &mut auth {
            self.authorise(entry)?;
        }
        let call = InvokeHostFunctionOp { host_function, auth: auth.try_into()? };
        let operation = OperationBody::InvokeHostFunction(call);
        self.send_soroban(source, operation, resources, simulation.event_bytes, simulation.rent_fee)
    }

    /// Extends the TTLs of `keys` to `extend_to` ledgers from now.
    pub(super) fn extend(
        &mut self,
        source: &Actor,
        keys: Vec<LedgerKey>,
        extend_to: u32,
    ) -> Result<bool> {
        let until = self.ledger.sequence.saturating_add(extend_to);
        let mut rents = Vec::new();
        for key in &keys {
            rents.extend(extension_rent(self.state, self.ledger.sequence, key, until)?);
        }
        let resources = SorobanResources {
            footprint: LedgerFootprint {
                read_only: keys.try_into()?,
                read_write: Default::default(),
            },
            instructions: 0,
            disk_read_bytes: 0,
            write_bytes: 0,
        };
        let operation = OperationBody::ExtendFootprintTtl(ExtendFootprintTtlOp {
            ext: ExtensionPoint::V0,
            extend_to,
        });
        let rent = rent_fee(&rents, self.ledger.sequence);
        self.send_soroban(source, operation, resources, 0, rent)
    }

    /// Restores `key` when it has expired; returns `false` while it is live or when the source
    /// cannot send.
    pub(super) fn restore(&mut self, source: &Actor, key: LedgerKey) -> Result<bool> {
        let Some(rent) =
            restoration_rent(self.state, self.ledger.sequence, &key, MIN_PERSISTENT_TTL)?
        else {
            return Ok(false);
        };
        let bytes = match self.state.get(&key) {
            Some(entry) => saturate(entry.to_xdr(Limits::none())?.len()),
            None => 0,
        };
        let resources = SorobanResources {
            footprint: LedgerFootprint {
                read_only: Default::default(),
                read_write: vec![key].try_into()?,
            },
            instructions: 0,
            disk_read_bytes: bytes,
            write_bytes: bytes,
        };
        let operation =
            OperationBody::RestoreFootprint(RestoreFootprintOp { ext: ExtensionPoint::V0 });
        let rent = rent_fee(&[rent], self.ledger.sequence);
        self.send_soroban(source, operation, resources, 0, rent)
    }

    fn send_soroban(
        &mut self,
        source: &Actor,
        operation: OperationBody,
        resources: SorobanResources,
        event_bytes: usize,
        rent: i64,
    ) -> Result<bool> {
        if !self.is_idle(source) {
            return Ok(false);
        }
        let data = SorobanTransactionData {
            ext: SorobanTransactionDataExt::V0,
            resources,
            resource_fee: 0,
        };
        let mut draft = self.draft(source, vec![operation], Memo::None, Some(data))?;
        let bytes = draft.signed_bytes(self.ledger.close_time)?;
        if let Some(data) = &mut draft.soroban {
            let fee = resource_fee(&data.resources, event_bytes, bytes);
            // A fifth more than simulated, so that the call does not fail when the ledger has
            // changed since.
            data.resource_fee = fee.fixed + (fee.refundable + rent) * 6 / 5;
        }
        self.send(draft)
    }

    fn draft<'d>(
        &mut self,
        source: &'d Actor,
        operations: Vec<OperationBody>,
        memo: Memo,
        soroban: Option<SorobanTransactionData>,
    ) -> Result<Draft<'d>>
    where
        'a: 'd,
    {
        let account = source.account();
        let last_sequence_number =
            self.state.account(&account).map(|account| account.seq_num.0).ok_or_else(|| {
                SandboxError::inconsistent(format_args!("account {account} does not exist"))
            })?;
        let root = &self.permanent.root;
        let bumped = self.dice.one_in(FEE_BUMP_ONE_IN) && source.public_key() != root.public_key();
        let sponsor = bumped.then_some(root);
        Ok(Draft { source, last_sequence_number, operations, memo, soroban, sponsor })
    }

    fn send(&mut self, draft: Draft<'_>) -> Result<bool> {
        self.busy.insert(draft.source.public_key());
        self.transactions.push(draft.sign(self.ledger.network, self.ledger.close_time)?);
        Ok(true)
    }

    /// Signs an authorisation entry that contains an address; one of the source account needs no
    /// signature.
    fn authorise(&self, entry: &mut SorobanAuthorizationEntry) -> Result<()> {
        let network_id = Hash(self.ledger.network.0);
        let signature_expiration_ledger = self.ledger.sequence.saturating_add(AUTHORISATION_TTL);
        let invocation = entry.root_invocation.clone();
        let (credentials, preimage) = match &mut entry.credentials {
            SorobanCredentials::Address(credentials) => {
                let preimage =
                    HashIdPreimage::SorobanAuthorization(HashIdPreimageSorobanAuthorization {
                        network_id,
                        nonce: credentials.nonce,
                        signature_expiration_ledger,
                        invocation,
                    });
                (credentials, preimage)
            }
            SorobanCredentials::AddressV2(credentials) => {
                let preimage = HashIdPreimage::SorobanAuthorizationWithAddress(
                    HashIdPreimageSorobanAuthorizationWithAddress {
                        network_id,
                        nonce: credentials.nonce,
                        signature_expiration_ledger,
                        address: credentials.address.clone(),
                        invocation,
                    },
                );
                (credentials, preimage)
            }
            SorobanCredentials::SourceAccount => return Ok(()),
            SorobanCredentials::AddressWithDelegates(_) => {
                return Err(SandboxError::inconsistent("a delegated authorisation"));
            }
        };
        let signer = self.signer(credentials)?;
        let payload = Sha256::digest(preimage.to_xdr(Limits::none())?);
        credentials.signature_expiration_ledger = signature_expiration_ledger;
        credentials.signature = account_signature(signer, &payload)?;
        Ok(())
    }

    fn signer(&self, credentials: &SorobanAddressCredentials) -> Result<&'a Actor> {
        let permanent = self.permanent;
        let mut actors = permanent.traders.iter().chain([&permanent.issuer, &permanent.root]);
        actors.find(|actor| actor.address() == credentials.address).ok_or_else(|| {
            SandboxError::inconsistent(format_args!("nobody signs for {}", credentials.address))
        })
    }
}

/// Adds keys to the read-only footprint, and doubles the instructions and disk reads for the code
/// behind them.
fn add_to_footprint(resources: &mut SorobanResources, more: &[LedgerKey]) -> Result<()> {
    if more.is_empty() {
        return Ok(());
    }
    let footprint = &mut resources.footprint;
    let mut read_only = footprint.read_only.to_vec();
    let new = more
        .iter()
        .filter(|key| !footprint.read_only.contains(key) && !footprint.read_write.contains(key));
    read_only.extend(new.cloned());
    read_only.sort();
    footprint.read_only = read_only.try_into()?;
    resources.instructions *= 2;
    resources.disk_read_bytes *= 2;
    Ok(())
}

/// Returns an account's signature in the form that the host expects: one signer's key and
/// signature.
fn account_signature(signer: &Actor, payload: &[u8]) -> Result<ScVal> {
    let fields = vec![
        ScMapEntry { key: symbol("public_key")?, val: byte_string(&signer.public_key())? },
        ScMapEntry { key: symbol("signature")?, val: byte_string(&signer.sign(payload))? },
    ];
    let signature = ScVal::Map(Some(ScMap(fields.try_into()?)));
    Ok(ScVal::Vec(Some(ScVec(vec![signature].try_into()?))))
}

/// Returns the call of a contract's function.
pub(super) fn invocation(
    contract_address: ScAddress,
    function: &str,
    args: Vec<ScVal>,
) -> Result<InvokeContractArgs> {
    Ok(InvokeContractArgs {
        contract_address,
        function_name: ScSymbol(function.try_into()?),
        args: args.try_into()?,
    })
}
