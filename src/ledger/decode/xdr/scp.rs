//! `Stellar-SCP.x`: messages of the consensus protocol.

use super::blocks::*;
use super::common::*;
use super::{Cursor, Depth, XdrError};

schema! {
    typedef Value { VarOpaque }
    struct ScpBallot { counter: Uint32, value: Value }
    enum ScpStatementType { PREPARE = 0, CONFIRM = 1, EXTERNALIZE = 2, NOMINATE = 3 }
    struct ScpNomination {
        quorum_set_hash: Hash,
        votes: VarArray<Value>,
        accepted: VarArray<Value>,
    }
    struct ScpStatementPrepare {
        quorum_set_hash: Hash,
        ballot: ScpBallot,
        prepared: Optional<ScpBallot>,
        prepared_prime: Optional<ScpBallot>,
        n_c: Uint32,
        n_h: Uint32,
    }
    struct ScpStatementConfirm {
        ballot: ScpBallot,
        n_prepared: Uint32,
        n_commit: Uint32,
        n_h: Uint32,
        quorum_set_hash: Hash,
    }
    struct ScpStatementExternalize { commit: ScpBallot, n_h: Uint32, commit_quorum_set_hash: Hash }
    union ScpStatementPledges(ScpStatementType) {
        PREPARE => ScpStatementPrepare,
        CONFIRM => ScpStatementConfirm,
        EXTERNALIZE => ScpStatementExternalize,
        NOMINATE => ScpNomination,
    }
    struct ScpStatement { node_id: NodeId, slot_index: Uint64, pledges: ScpStatementPledges }
    struct ScpEnvelope { statement: ScpStatement, signature: Signature }
    struct ScpQuorumSet {
        threshold: Uint32,
        validators: VarArray<NodeId>,
        inner_sets: VarArray<ScpQuorumSet>,
    }
}
