//! `like`: `%` stands for any text, `_` for one character, and nothing for these two themselves.

/// Whether a text is of a pattern. Takes at most as many steps as there are pairs of a character of the
/// pattern and one of the text.
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
    let mut places = text.char_indices().map(|(at, _)| at);
    places.find_map(|at| after(&text[at..], part))
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
            let found = is_like(&as_text(&text), &as_text(&pattern));
            assert_eq!(found, expected, "{text:?} like {pattern:?}");
            likes += usize::from(expected);
        }
        assert!(likes > 10_000, "{likes}");
    }
}
