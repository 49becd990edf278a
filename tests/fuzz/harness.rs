//! Generates inputs from a corpus and a seed, and passes them to a target until its time is up.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use orrery_testkit::size;

/// Maximum length of a generated input, in bytes.
const LONGEST: usize = 1 << 20;
/// Maximum number of changes to one input.
const MAX_CHANGES: u32 = 6;

/// Generates a test for each target module, named after the module, and the list of their names.
macro_rules! targets {
    ($($target:ident),+ $(,)?) => {
        /// The names of all targets.
        const TARGETS: &[&str] = &[$(stringify!($target)),+];

        $(
            #[test]
            fn $target() {
                crate::harness::run(stringify!($target), $target::seeds(), &$target::check);
            }
        )+
    };
}
pub(crate) use targets;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Passes a target its corpus, and then inputs that are generated from the corpus and `seeds`.
pub fn run(target: &str, seeds: Vec<Vec<u8>>, check: &dyn Fn(&[u8])) {
    let mut corpus = files(target);
    assert!(!corpus.is_empty(), "tests/fuzz/corpus/{target} holds nothing");
    for input in &corpus {
        attempt(target, input, check);
    }
    corpus.extend(seeds);
    let seconds = setting("ORRERY_TEST_FUZZ_SECONDS").unwrap_or(size::choose(3, 60));
    let first = setting("ORRERY_TEST_FUZZ_SEED").unwrap_or(0);
    let (begun, mut case) = (Instant::now(), first);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let mut rng = ChaCha8Rng::seed_from_u64(case);
        attempt(target, &mutated_input(&corpus, &mut rng), check);
        case += 1;
    }
    println!("{target}: {} inputs of {} files, seeds from {first}", case - first, corpus.len());
}

/// Returns the files of a target's corpus, sorted by name.
fn files(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("every target has a folder in tests/fuzz/corpus");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn attempt(target: &str, input: &[u8], check: &dyn Fn(&[u8])) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) else { return };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{target}"));
    fs::write(&path, input).unwrap();
    eprintln!("{target} fails on {} bytes, which are in {}", input.len(), path.display());
    resume_unwind(panic);
}

/// Returns a corpus entry with a few changes or, rarely, random bytes.
fn mutated_input(corpus: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_bool(0.02) {
        return (0..rng.random_range(0..300)).map(|_| rng.random()).collect();
    }
    let mut input = corpus.choose(rng).unwrap().clone();
    let changes = if rng.random_bool(0.5) { 1 } else { rng.random_range(2..=MAX_CHANGES) };
    for _ in 0..changes {
        change(&mut input, corpus.choose(rng).unwrap(), rng);
    }
    input.truncate(LONGEST);
    input
}

fn change(input: &mut Vec<u8>, donor: &[u8], rng: &mut ChaCha8Rng) {
    if input.is_empty() {
        input.push(rng.random());
    }
    let at = rng.random_range(0..input.len());
    let end = (at + rng.random_range(1..64)).min(input.len());
    match rng.random_range(0..9) {
        0 => input[at] ^= 1 << rng.random_range(0..8),
        1 => input[at] = rng.random(),
        2 => {
            let word = boundary(input.len() - at, rng).to_be_bytes();
            for (byte, new) in input[at / 4 * 4..].iter_mut().zip(word) {
                *byte = new;
            }
        }
        3 => input.truncate(at),
        4 => drop(input.drain(at..end)),
        5 => {
            let part = input[at..end].to_vec();
            let times = rng.random_range(1..4);
            input.splice(at..at, part.repeat(times));
        }
        6 if !donor.is_empty() => {
            let from = rng.random_range(0..donor.len());
            let part = donor[from..(from + rng.random_range(1..256)).min(donor.len())].to_vec();
            let replaced = if rng.random_bool(0.5) { end } else { at };
            input.splice(at..replaced, part);
        }
        7 => input[at] = *b"\0\x01\x7f\x80\xff.,:;\"'{}[]\n=-".choose(rng).unwrap(),
        _ => {
            let other = rng.random_range(0..input.len());
            input.swap(at, other);
        }
    }
}

/// Returns a number of the kinds that parsers often handle wrongly: small, near the remaining
/// length, near the maximum, a power of two, or random.
fn boundary(rest: usize, rng: &mut ChaCha8Rng) -> u32 {
    match rng.random_range(0..5) {
        0 => rng.random_range(0..40),
        1 => (rest as u32).wrapping_sub(rng.random_range(0..9)),
        2 => u32::MAX - rng.random_range(0..4),
        3 => 1 << rng.random_range(0..32),
        _ => rng.random(),
    }
}
