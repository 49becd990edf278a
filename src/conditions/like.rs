//! `like`: `%` stands for any text, `_` for one character, and nothing for these two themselves.

use std::collections::HashMap;

/// Number of pairs of bytes of a part and a text up to which each place of the text is compared by itself.
const FEW_PAIRS: usize = 1 << 12;
/// Number of characters of a part that are compared at once.
const AT_ONCE: usize = 64;

/// Whether a text is of a pattern. Takes at most as many steps as there are pairs of a character of the
/// pattern and one of the text, and where these are many, a part of that.
pub(crate) fn is_like(text: &str, pattern: &str) -> bool {
    let Some((first, others)) = pattern.split_once('%') else {
        return after(text, pattern) == Some("");
    };
    let Some(mut rest) = after(text, first) else { return false };
    let (between, last) = others.rsplit_once('%').unwrap_or(("", others));
    // The first place of each is as good as any other, because any text may follow.
    for part in between.split('%').filter(|part| !part.is_empty()) {
        match behind(rest, part) {
            Some(following) => rest = following,
            None => return false,
        }
    }
    let length = last.chars().count();
    let start = match length {
        0 => return true,
        _ => rest.char_indices().rev().nth(length - 1),
    };
    start.is_some_and(|(start, _)| after(&rest[start..], last) == Some(""))
}

/// Returns what follows the first place of a part without `%`.
fn behind<'t>(text: &'t str, part: &str) -> Option<&'t str> {
    if !part.contains('_') {
        return text.find(part).map(|at| &text[at + part.len()..]);
    }
    if part.len().saturating_mul(text.len()) > FEW_PAIRS {
        return behind_in_parallel(text, part);
    }
    let mut places = text.char_indices().map(|(at, _)| at);
    places.find_map(|at| after(&text[at..], part))
}

/// As [`behind`], for parts and texts that somebody may have made so that most places of the text agree with
/// most of the part. Keeps for each beginning of the part whether the text read so far ends with it, one bit
/// each (the shift-and method of Baeza-Yates and Gonnet).
fn behind_in_parallel<'t>(text: &'t str, part: &str) -> Option<&'t str> {
    let letters: Vec<char> = part.chars().collect();
    let words = letters.len().div_ceil(AT_ONCE);
    let mut any = vec![0_u64; words];
    for (at, _) in letters.iter().enumerate().filter(|(_, letter)| **letter == '_') {
        any[at / AT_ONCE] |= 1 << (at % AT_ONCE);
    }
    // For each letter the places of the part at which it may stand.
    let mut may_stand: HashMap<char, Vec<u64>> = HashMap::new();
    for (at, letter) in letters.iter().enumerate() {
        let places = may_stand.entry(*letter).or_insert_with(|| any.clone());
        places[at / AT_ONCE] |= 1 << (at % AT_ONCE);
    }
    let last = letters.len().checked_sub(1)?;
    let mut ends_with = vec![0_u64; words];
    for (at, letter) in text.char_indices() {
        let places = may_stand.get(&letter).unwrap_or(&any);
        let mut carry = 1;
        for (word, places) in ends_with.iter_mut().zip(places) {
            let next = *word >> (AT_ONCE - 1);
            *word = (*word << 1 | carry) & places;
            carry = next;
        }
        if ends_with[last / AT_ONCE] >> (last % AT_ONCE) & 1 == 1 {
            return Some(&text[at + letter.len_utf8()..]);
        }
    }
    None
}

/// Returns what follows a part without `%` at the beginning of a text.
fn after<'t>(text: &'t str, part: &str) -> Option<&'t str> {
    let mut letters = text.chars();
    for expected in part.chars() {
        let letter = letters.next()?;
        if expected != '_' && expected != letter {
            return None;
        }
    }
    Some(letters.as_str())
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// The rule itself, by recursion.
    fn model(text: &[char], pattern: &[char]) -> bool {
        match (text, pattern) {
            ([], []) => true,
            (text, ['%', rest @ ..]) => (0..=text.len()).any(|at| model(&text[at..], rest)),
            ([_, text @ ..], ['_', rest @ ..]) => model(text, rest),
            ([letter, text @ ..], [expected, rest @ ..]) => letter == expected && model(text, rest),
            _ => false,
        }
    }

    #[test]
    fn patterns_agree_with_the_model() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut likes = 0;
        for _ in 0..100_000 {
            let mut letters = |of: &[char], most: usize| -> Vec<char> {
                let count = rng.random_range(0..=most);
                (0..count).map(|_| of[rng.random_range(0..of.len())]).collect()
            };
            let (text, pattern) = (letters(&['a', 'é', '%'], 8), letters(&['a', 'é', '%', '_'], 6));
            let as_text = |letters: &[char]| letters.iter().collect::<String>();
            let expected = model(&text, &pattern);
            let (text, pattern) = (as_text(&text), as_text(&pattern));
            assert_eq!(is_like(&text, &pattern), expected, "{text:?} like {pattern:?}");
            likes += usize::from(expected);
        }
        assert!(likes > 10_000, "{likes}");
    }

    #[test]
    fn long_parts_are_found_where_short_ones_are() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let mut found = 0;
        for round in 0..400 {
            let mut letters = |of: &[char], count: usize| -> String {
                (0..count).map(|_| of[rng.random_range(0..of.len())]).collect()
            };
            let text = letters(&['a', 'é', 'a'], 300);
            let mut part = letters(&['a', 'é', '_', '_', '_', '_'], 1 + round % 200);
            if round % 2 == 0 {
                // One that is there.
                let begin = text.char_indices().nth(100 - round % 100).unwrap().0;
                let there = text[begin..].chars().zip(part.chars());
                part = there.map(|(own, wanted)| if wanted == '_' { '_' } else { own }).collect();
            }
            let mut places = text.char_indices().map(|(at, _)| at);
            let expected = places.find_map(|at| after(&text[at..], &part));
            assert_eq!(behind_in_parallel(&text, &part), expected, "{text} {part}");
            found += usize::from(expected.is_some());
        }
        assert!((200..400).contains(&found), "{found}");
    }

    /// Each place of the text agrees with all of the pattern but its last letter.
    #[test]
    fn a_hostile_pattern_takes_no_longer_than_another() {
        let (text, pattern) = ("a".repeat(64 << 10), format!("%_{}b%", "a".repeat(4_000)));
        let begun = std::time::Instant::now();
        assert!(!is_like(&text, &pattern));
        // A debug build takes some 100 ms.
        assert!(begun.elapsed() < std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}
