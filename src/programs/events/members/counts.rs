//! What the status of a project says of its members.

use serde::Serialize;

use super::index::MemberIndex;
use super::state::MembersOf;
use crate::manifest::Manifest;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{LedgerSeq, ProgramId};
use orrery_membership::Facts;
use orrery_store::{Store, StoreError};

/// What helps where it is not known what a contract ran.
const HELP: &str = "a server that answers for entries of the ledger, an earlier first ledger, or naming \
                    the contracts";

/// Maximum number of contracts of which names of events are not known that are counted.
const MOST_COUNTED: usize = 10_000;

/// What the status of a project says of its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MembersStatus {
    /// Number of its contracts: those that it names, and those that its selectors select.
    pub members: usize,
    /// Nothing in a ledger binds what they follow from.
    members_are: &'static str,
    /// Why there are not more, if their number is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    members_limited: Option<String>,
    /// How many have changed their code so often that only some of the times are recorded in which they ran codes of
    /// the project, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    members_cut: Option<String>,
    /// Where contracts are selected by what they run: of how many this is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_unread: Option<CodeUnread>,
    /// Where contracts are selected by who created them: of how many this is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    creations_unread: Option<CreationsUnread>,
    /// Where events of any contract are selected by name: the number of contracts of which some events have no
    /// name yet because their code is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    names_unread: Option<NamesUnread>,
    /// That other contracts are not seen, where the service stores those of a list alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    members_not_seen: Option<&'static str>,
}

/// Contracts with stored events of which it is not known what they ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CodeUnread {
    contracts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'static str>,
}

/// Contracts with stored events of which it is not known what they are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct NamesUnread {
    contracts: usize,
    /// Whether there are more, which are not counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'static str>,
}

impl NamesUnread {
    fn of(store: &Store, program: ProgramId) -> Result<Self, StoreError> {
        let (mut contracts, mut more) = (0, false);
        storage::unnamed_after(store, program, None, |_, _| {
            more = contracts >= MOST_COUNTED;
            contracts += usize::from(!more);
            Ok(storage::more_if(!more))
        })?;
        Ok(Self { contracts, more, help: (contracts > 0).then_some(HELP) })
    }
}

/// Contracts that stored ledgers created, nobody knows by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CreationsUnread {
    contracts: u64,
    first_ledger: Option<LedgerSeq>,
    last_ledger: Option<LedgerSeq>,
}

impl MembersStatus {
    /// Returns what is said of a project's members; `None` for a project without selectors.
    pub fn of(
        store: &Store,
        (index, of): (&MemberIndex, &MembersOf),
        manifest: &Manifest,
        is_listed: bool,
    ) -> Result<Option<Self>, ProgramError> {
        let selectors = manifest.events.as_ref().map(|project| &project.selectors);
        let Some(selectors) = selectors.filter(|it| !it.is_empty()) else { return Ok(None) };
        let unread = match selectors.have_members() {
            true => Some(Facts::new(store)?.unread()?),
            false => None,
        };
        let code = unread.filter(|_| !selectors.wasm.is_empty()).map(|unread| CodeUnread {
            contracts: unread.code,
            help: (unread.code > 0).then_some(HELP),
        });
        let has_creations = |ledger: LedgerSeq| (ledger.0 > 0).then_some(ledger);
        let creations = unread.filter(|_| !selectors.created_by.is_empty());
        let creations = creations.map(|unread| CreationsUnread {
            contracts: unread.creations,
            first_ledger: has_creations(unread.first),
            last_ledger: has_creations(unread.last),
        });
        let names = match selectors.all.is_empty() {
            true => None,
            false => Some(NamesUnread::of(store, manifest.id)?),
        };
        Ok(Some(Self {
            members: index.count(manifest.id),
            members_are: "unbound",
            members_limited: limited(of.left_out(), index.most()),
            members_cut: cut(of.cut()),
            names_unread: names,
            code_unread: code,
            creations_unread: creations,
            members_not_seen: is_listed.then_some(
                "this service stores the contracts of a list alone ([index] contracts): others are not seen",
            ),
        }))
    }
}

fn limited(left_out: usize, most: usize) -> Option<String> {
    (left_out > 0).then(|| {
        format!(
            "the project has {most} members, as many as there may be: those that became members first, by the \
             order of the ledgers; {left_out} others are none"
        )
    })
}

fn cut(cut: usize) -> Option<String> {
    (cut > 0).then(|| {
        format!(
            "{cut} of the members changed their code so often that member_changes and members have only the \
             first times in which they ran it; their events are rows all the same"
        )
    })
}
