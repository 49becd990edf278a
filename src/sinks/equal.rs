//! Finds the tables and the ledgers whose rows are the same after all was derived anew: they are not sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use orrery_ledger::domain::{LedgerSeq, ProgramId};
use orrery_postgres::{
    Connection, EqualRows, RowsDigest, SinkError, TableRows, Writer, grouped_digests,
};
use orrery_programs::ProgramError;

use super::gather::{Failed, Made, Source, Wanted, push, without_table};

/// Number of digests that are kept at most; of more ledgers, several share one.
const MOST_DIGESTS: usize = 100_000;
/// Rows that are copied within the server in one transaction, about.
const ROWS_AT_ONCE: u64 = orrery_postgres::MOST_ROWS;
/// Bytes after which rows that were only counted are dropped.
const SCRATCH: usize = 1 << 20;

/// Digests of rows by table and by some ledgers each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Digests {
    /// Ledgers with equal numbers but for so many last bits share a digest.
    shift: u32,
    digests: BTreeMap<(usize, u32), RowsDigest>,
}

impl Digests {
    fn add(&mut self, table: usize, ledger: u32, digest: &RowsDigest) {
        self.digests.entry((table, ledger >> self.shift)).or_default().add(digest);
        while self.digests.len() > MOST_DIGESTS {
            self.widen(self.shift + 1);
        }
    }

    fn widen(&mut self, shift: u32) {
        let before = std::mem::take(&mut self.digests);
        for ((table, ledgers), digest) in before {
            let ledgers = ledgers >> (shift - self.shift);
            self.digests.entry((table, ledgers)).or_default().add(&digest);
        }
        self.shift = shift;
    }

    fn of_table(&self, table: usize) -> impl Iterator<Item = (u32, &RowsDigest)> {
        self.digests.range((table, 0)..=(table, u32::MAX)).map(|((_, at), it)| (*at, it))
    }
}

/// Rows that are sent again, and those that are not.
pub(crate) struct Compared {
    shift: u32,
    /// Positions of the tables whose rows are not all the same.
    pub changed: BTreeSet<usize>,
    /// Ledgers of these tables whose rows are the same.
    equal: BTreeSet<(usize, u32)>,
    /// The same, as they are copied: each in one transaction.
    pub copied: Vec<EqualRows>,
}

impl Wanted for Compared {
    fn wants(&self, table: usize, ledger: LedgerSeq) -> bool {
        self.changed.contains(&table) && !self.equal.contains(&(table, ledger.0 >> self.shift))
    }
}

/// Adds up the digests of all rows of a program's log up to an entry, by table.
///
/// # Errors
/// When the store fails; [`Failed::Over`] when rows are derived anew meanwhile, or `stop` says so.
pub(crate) fn table_digests(
    source: &Source,
    made: &Made,
    up_to: u64,
    stop: &dyn Fn() -> bool,
) -> Result<BTreeMap<String, RowsDigest>, Failed> {
    let mut totals = BTreeMap::<usize, RowsDigest>::new();
    each_digest(source, made, up_to, stop, &mut |table, _, digest| {
        totals.entry(table).or_default().add(digest);
    })?;
    let tables = made.layout.project.tables.iter().enumerate();
    Ok(tables
        .map(|(at, table)| (table.target.clone(), totals.get(&at).copied().unwrap_or_default()))
        .collect())
}

/// Visits the digest of each row of a program's log up to an entry: with its table and ledger.
fn each_digest(
    source: &Source,
    made: &Made,
    up_to: u64,
    stop: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(usize, u32, &RowsDigest),
) -> Result<(), Failed> {
    let id: ProgramId = made.manifest.id;
    let layout = &made.layout;
    let mut scratch = BTreeMap::<usize, TableRows>::new();
    let mut after = 0;
    while after < up_to {
        if stop() {
            return Err(Failed::Over("the service stops".to_owned()));
        }
        let read = source.programs.runs_to_copy(id, after, up_to)?;
        let read = read.filter(|read| made.has_rows_of(&read.manifest));
        let derived = || Failed::Over("its rows are derived again meanwhile".to_owned());
        let read = read.ok_or_else(derived)?;
        let Some(last) = read.runs.last() else { return Ok(()) };
        after = last.number;
        for run in &read.runs {
            let mut misfit = None;
            source.programs.rows_of(&read.manifest, run, &mut |place, row| {
                let Some(table) = layout.table_of(&read.manifest, &row.emit.target) else {
                    misfit = Some(without_table(place, &row));
                    return Ok(());
                };
                let fresh = || TableRows::new(&layout.project.tables[table]);
                let rows = scratch.entry(table).or_insert_with(fresh);
                if rows.bytes() >= SCRATCH {
                    *rows = fresh();
                }
                let before = rows.digest();
                match push(&source.store, layout, (table, rows), place, &row)? {
                    Ok(()) => visit(table, place.ledger.0, &difference(rows.digest(), before)),
                    Err(sentence) => misfit = Some(sentence),
                }
                Ok::<(), ProgramError>(())
            })?;
            if let Some(sentence) = misfit {
                return Err(Failed::Misfit(sentence));
            }
        }
    }
    Ok(())
}

fn difference(now: RowsDigest, before: RowsDigest) -> RowsDigest {
    let sum = |at: usize| now.sums[at].wrapping_sub(before.sums[at]);
    RowsDigest { rows: now.rows - before.rows, sums: [sum(0), sum(1)] }
}

/// Adds up the digests of all rows of a program's log up to an entry, by table and ledgers.
///
/// # Errors
/// As [`table_digests`].
pub(crate) fn own_digests(
    source: &Source,
    made: &Made,
    up_to: u64,
    stop: &dyn Fn() -> bool,
) -> Result<OwnDigests, Failed> {
    let mut own = Digests::default();
    each_digest(source, made, up_to, stop, &mut |table, ledger, digest| {
        own.add(table, ledger, digest);
    })?;
    Ok(OwnDigests(own))
}

/// Digests of the rows of a program's log.
pub(crate) struct OwnDigests(Digests);

impl OwnDigests {
    /// Compares them with what the server has. `retyped` are targets of tables whose columns have other types: nothing of
    /// them is the same. The rows of `outgrown` ones, which have columns too many, may be.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn compare(
        self,
        connection: &Connection,
        writer: &Writer,
        made: &Made,
        retyped: &BTreeSet<String>,
        outgrown: &BTreeSet<String>,
    ) -> Result<Compared, SinkError> {
        let Self(own) = self;
        let shift = own.shift;
        let project = &made.layout.project;
        let (mut changed, mut equal, mut copied) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for (at, table) in project.tables.iter().enumerate() {
            if retyped.contains(&table.target) {
                changed.insert(at);
                continue;
            }
            let names = (&*project.name, &*project.schema);
            let there = grouped_digests(connection, writer, names, &table.target, shift).await?;
            let ours: BTreeMap<u32, RowsDigest> =
                own.of_table(at).map(|(ledgers, digest)| (ledgers, *digest)).collect();
            if ours == there && !outgrown.contains(&table.target) {
                continue;
            }
            changed.insert(at);
            let same = ours.iter().filter(|(ledgers, digest)| there.get(ledgers) == Some(digest));
            let same: Vec<(u32, u64)> = same.map(|(ledgers, it)| (*ledgers, it.rows)).collect();
            equal.extend(same.iter().map(|(ledgers, _)| (at, *ledgers)));
            copied.extend(portions(&table.target, &same, shift));
        }
        Ok(Compared { shift, changed, equal, copied })
    }
}

/// Returns consecutive ledgers with the same rows, as many as are copied in one transaction.
fn portions(target: &str, same: &[(u32, u64)], shift: u32) -> Vec<EqualRows> {
    let all_of = |first: u32, last: u32| -> RangeInclusive<u32> {
        let end = (u64::from(last) + 1) << shift;
        first << shift..=u32::try_from(end - 1).unwrap_or(u32::MAX)
    };
    let mut portions: Vec<(u32, u32, u64)> = Vec::new();
    for (ledgers, rows) in same {
        match portions.last_mut() {
            Some((_, last, sum)) if *last + 1 == *ledgers && *sum + rows <= ROWS_AT_ONCE => {
                (*last, *sum) = (*ledgers, *sum + rows);
            }
            _ => portions.push((*ledgers, *ledgers, *rows)),
        }
    }
    let portion =
        |(first, last, _)| EqualRows { target: target.to_owned(), ledgers: all_of(first, last) };
    portions.into_iter().map(portion).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: i128) -> RowsDigest {
        RowsDigest { rows: 1, sums: [number, -number] }
    }

    #[test]
    fn digests_of_many_ledgers_are_joined() {
        let mut digests = Digests::default();
        for ledger in 0..2 * MOST_DIGESTS as u32 {
            digests.add(1, ledger, &digest(ledger.into()));
        }
        assert_eq!((digests.shift, digests.digests.len()), (1, MOST_DIGESTS));
        assert_eq!(digests.digests[&(1, 3)], RowsDigest { rows: 2, sums: [13, -13] });
        assert_eq!(digests.of_table(0).count(), 0);
    }

    #[test]
    fn equal_ledgers_are_copied_together() {
        let copied = portions("t", &[(2, 10), (3, ROWS_AT_ONCE - 10), (4, 1), (9, 5)], 4);
        let ledgers: Vec<_> = copied.into_iter().map(|it| it.ledgers).collect();
        assert_eq!(ledgers, [32..=63, 64..=79, 144..=159]);
        let last = portions("t", &[(u32::MAX >> 1, 1)], 1);
        assert_eq!(last[0].ledgers, u32::MAX - 1..=u32::MAX);
        assert_eq!(difference(digest(5), digest(5)).rows, 0);
    }
}
