//! Secret seeds of accounts and validators, which people paste where their public keys belong.

use std::borrow::Cow;

use stellar_strkey::ed25519::PrivateKey;

/// Length of the strkey of a seed (SEP-23), and its first letter.
const LENGTH: usize = 56;
const FIRST: char = 'S';
/// What is shown in place of a seed.
const HIDDEN: &str = "(a secret seed, hidden)";

/// Returns whether a text is a secret seed, in either case and with a valid checksum.
pub(super) fn is_seed(text: &str) -> bool {
    text.len() == LENGTH
        && text.is_ascii()
        && PrivateKey::from_string(&text.to_ascii_uppercase()).is_ok()
}

/// Returns a text without the secret seeds in it.
pub fn without_seeds(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((at, seed)) = first_seed(rest) {
        shown.push_str(&rest[..at]);
        shown.push_str(HIDDEN);
        rest = &rest[at + seed..];
    }
    if shown.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(shown + rest) }
}

/// Returns where the first seed in a text begins, and its length.
fn first_seed(text: &str) -> Option<(usize, usize)> {
    // Letters and digits in a row; a hostile text costs no more than its length, because most rows
    // do not have the length of a seed.
    let is_part = |letter: char| letter.is_ascii_alphanumeric();
    let mut from = 0;
    while let Some(begin) = text[from..].find(is_part).map(|at| from + at) {
        let row = text[begin..].find(|letter| !is_part(letter)).unwrap_or(text.len() - begin);
        let word = &text[begin..begin + row];
        if word.starts_with([FIRST, FIRST.to_ascii_lowercase()]) && is_seed(word) {
            return Some((begin, row));
        }
        from = begin + row;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds whose bytes are all 0, all 7 and all 255.
    const SEEDS: [&str; 3] = [
        "SAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABSU2",
        "SADQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQOBYHA4DQP54X",
        "SD7777777777777777777777777777777777777777777777777767Q6",
    ];

    #[test]
    fn seeds_are_hidden_and_nothing_else() {
        for seed in SEEDS {
            assert!(is_seed(seed) && is_seed(&seed.to_lowercase()));
            for text in [seed.to_owned(), format!("a '{seed}', b"), format!("x={seed}&y={seed}")] {
                let shown = without_seeds(&text);
                assert!(!shown.contains(&seed[..20]) && shown.contains(HIDDEN), "{shown}");
            }
            assert_eq!(without_seeds(&format!("é {seed}: ä")), format!("é {HIDDEN}: ä"));
            let mistyped =
                seed.replace(&seed[10..11], if &seed[10..11] == "A" { "B" } else { "A" });
            assert_eq!(without_seeds(&mistyped), mistyped);
        }
        let key = "GCGB2S2KGYARPVIA37HYZXVRM2YZUEXA6S33ZU5BUDC6THSB62LZSTYH";
        for text in ["", "S", key, &SEEDS[1][..55], "ünï"] {
            assert_eq!(without_seeds(text), text);
        }
    }
}
