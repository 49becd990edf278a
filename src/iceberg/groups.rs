//! Decides which neighbours in a sequence are merged, so that the sequence stays short and little is written.

use std::ops::Range;

/// Excess of members beyond which the whole sequence is packed at once.
const PACKED: usize = 16;

/// Members of a sequence that become one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    members: Range<usize>,
    size: u64,
    /// Size of the smallest member.
    least: u64,
}

impl Run {
    fn with(&self, next: &Self) -> Self {
        Self {
            members: self.members.start..next.members.end,
            size: self.size.saturating_add(next.size),
            least: self.least.min(next.least),
        }
    }
}

/// Returns the runs of neighbours that are merged into one each, ascending, so that at most
/// `spare + 2 × size / target` members are left of a sequence with these sizes. No run is larger than
/// `target`. When members are added one by one, what is written in all grows with the square root of their
/// number, and not with their number.
pub fn groups(sizes: &[u64], target: u64, spare: usize) -> Vec<Range<usize>> {
    let target = target.max(1);
    let total = sizes.iter().fold(0u64, |all, size| all.saturating_add(*size));
    let allowed = usize::try_from(total.saturating_mul(2) / target).unwrap_or(usize::MAX);
    let most = spare.saturating_add(allowed).max(1);
    let mut runs: Vec<Run> = sizes
        .iter()
        .enumerate()
        .map(|(at, size)| Run { members: at..at + 1, size: *size, least: *size })
        .collect();
    if runs.len() > most.saturating_add(PACKED) {
        runs = packed(runs, target);
    }
    while runs.len() > most {
        let Some(at) = smallest_pair(&runs, target) else { break };
        merge(&mut runs, at);
        carry(&mut runs, at, target);
    }
    runs.into_iter().map(|run| run.members).filter(|members| members.len() > 1).collect()
}

/// Merges each member with those before it as long as they are no larger than `target`: no two neighbours
/// are left that would be.
fn packed(runs: Vec<Run>, target: u64) -> Vec<Run> {
    let mut packed = Vec::<Run>::new();
    for run in runs {
        match packed.last_mut() {
            Some(last) if last.size.saturating_add(run.size) <= target => *last = last.with(&run),
            _ => packed.push(run),
        }
    }
    packed
}

/// Returns the place of the first of two neighbours that are the smallest together. If there are more than
/// `1 + 2 × size / target` members, two are no larger than `target`.
fn smallest_pair(runs: &[Run], target: u64) -> Option<usize> {
    let sizes = runs.windows(2).map(|pair| pair[0].size.saturating_add(pair[1].size));
    let smallest = sizes.enumerate().min_by_key(|(_, size)| *size);
    smallest.filter(|(_, size)| *size <= target).map(|(at, _)| at)
}

/// Merges a run with the next one.
fn merge(runs: &mut Vec<Run>, at: usize) {
    runs[at] = runs[at].with(&runs[at + 1]);
    runs.remove(at + 1);
}

/// Merges a run with those before it that are not much larger: a run that grows by small members would
/// otherwise be written again with each of them, until it is as large as a target.
fn carry(runs: &mut Vec<Run>, mut at: usize, target: u64) {
    while at > 0 {
        let (before, run) = (&runs[at - 1], &runs[at]);
        let is_worth = u128::from(run.size) * u128::from(run.size)
            >= 2 * u128::from(before.size) * u128::from(run.least);
        if !is_worth || before.size.saturating_add(run.size) > target {
            return;
        }
        at -= 1;
        merge(runs, at);
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Merges the runs, and returns what was written.
    fn merged(sizes: &mut Vec<u64>, target: u64, spare: usize) -> u64 {
        let mut written = 0;
        for run in groups(sizes, target, spare).into_iter().rev() {
            let size = sizes[run.clone()].iter().sum();
            assert!(size <= target);
            written += size;
            sizes.splice(run, [size]);
        }
        written
    }

    #[test]
    fn few_members_are_left() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        for _ in 0..300 {
            let target = random.random_range(1..500);
            let spare = random.random_range(2..20);
            let (mut sizes, mut total) = (Vec::new(), 0);
            for _ in 0..random.random_range(1..30) {
                for _ in 0..random.random_range(1..40) {
                    let at = random.random_range(0..=sizes.len());
                    let size = random.random_range(0..300);
                    sizes.insert(at, size);
                    total += size;
                }
                merged(&mut sizes, target, spare);
                assert_eq!(sizes.iter().sum::<u64>(), total);
                let most = spare as u64 + 2 * total / target;
                assert!(sizes.len() as u64 <= most, "{sizes:?} {target} {spare}");
                assert!(groups(&sizes, target, spare).is_empty(), "nothing more");
            }
        }
    }

    #[test]
    fn little_is_written_when_members_come_one_by_one() {
        for (target, spare, most) in [(2560, 2, 40), (1000, 16, 20), (4000, 16, 40)] {
            let (mut sizes, mut written, count) = (Vec::new(), 0, 20_000);
            for _ in 0..count {
                sizes.push(1);
                written += merged(&mut sizes, target, spare);
            }
            assert!(written / count <= most, "{target} {spare}: {}", written / count);
        }
        assert_eq!(groups(&[], 10, 2), []);
        assert_eq!(groups(&[1, 1, 1], 0, 0), [], "a target of one member");
    }
}
