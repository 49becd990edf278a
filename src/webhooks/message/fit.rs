//! Writes the parts of a message with the markup of a service, and within its limit on length: values are
//! cut first, the longest ones, then the whole.

use super::piece::{Piece, joined};

/// What stands where something was cut.
const CUT: char = '…';

/// How a service writes text.
pub struct Markup {
    /// Longest message, in UTF-16 code units. Services count these, code points or bytes of code points;
    /// there are no fewer of these units than of code points.
    pub most: usize,
    /// Writes a character of the author's words so that it is shown as it is.
    pub word: fn(char, &mut String),
    /// Writes a character of a value, between the marks around it.
    pub value: fn(char, &mut String),
    /// Marks around a value.
    pub marks: (&'static str, &'static str),
    /// Writes a link.
    pub link: fn(&str, &mut String),
    /// Whether the limit counts what is written; otherwise it counts what is shown.
    pub counts_markup: bool,
}

/// Writes characters as they are.
pub fn verbatim(letter: char, out: &mut String) {
    out.push(letter);
}

impl Markup {
    /// Writes a message.
    pub fn write(&self, pieces: Vec<Piece>) -> String {
        let mut pieces = joined(pieces);
        self.cut_values(&mut pieces);
        let mut left = self.most;
        let total: usize = pieces.iter().map(|piece| self.cost(piece)).sum();
        let is_cut = total > left;
        if is_cut {
            left -= 1;
        }
        let mut out = String::new();
        for piece in &pieces {
            let cost = self.cost(piece);
            if cost <= left {
                left -= cost;
                self.write_piece(piece, &mut out);
                continue;
            }
            if let Piece::Words(words) = piece {
                let kept = self.within(words, left, self.word);
                kept.chars().for_each(|letter| (self.word)(letter, &mut out));
            }
            break;
        }
        if is_cut {
            out.push(CUT);
        }
        out
    }

    /// Cuts the longest values, all to one length, until the message fits, but none to less than one
    /// character.
    fn cut_values(&self, pieces: &mut [Piece]) {
        let of_value = |piece: &Piece| match piece {
            Piece::Value(text) => Some(self.letters_cost(text, self.value)),
            Piece::Words(_) | Piece::Link(_) => None,
        };
        let total: usize = pieces.iter().map(|piece| self.cost(piece)).sum();
        let mut costs: Vec<usize> = pieces.iter().filter_map(of_value).collect();
        if total <= self.most || costs.is_empty() {
            return;
        }
        let fixed = total - costs.iter().sum::<usize>();
        let longest = level(&mut costs, self.most.saturating_sub(fixed)).max(1);
        for piece in pieces {
            if let Piece::Value(text) = piece
                && self.letters_cost(text, self.value) > longest
            {
                let kept = self.within(text, longest - 1, self.value).len();
                text.truncate(kept);
                text.push(CUT);
            }
        }
    }

    fn write_piece(&self, piece: &Piece, out: &mut String) {
        match piece {
            Piece::Words(words) => words.chars().for_each(|letter| (self.word)(letter, out)),
            Piece::Value(text) => {
                out.push_str(self.marks.0);
                text.chars().for_each(|letter| (self.value)(letter, out));
                out.push_str(self.marks.1);
            }
            Piece::Link(url) => (self.link)(url, out),
        }
    }

    /// Returns the beginning of a text that costs at most this.
    fn within<'t>(&self, text: &'t str, most: usize, write: fn(char, &mut String)) -> &'t str {
        let (mut cost, mut written) = (0, String::new());
        let end = text.char_indices().find(|(_, letter)| {
            cost += self.letter_cost(*letter, write, &mut written);
            cost > most
        });
        end.map_or(text, |(end, _)| &text[..end])
    }

    fn cost(&self, piece: &Piece) -> usize {
        let marks = if self.counts_markup { units(self.marks.0) + units(self.marks.1) } else { 0 };
        match piece {
            Piece::Words(words) => self.letters_cost(words, self.word),
            Piece::Value(text) => marks + self.letters_cost(text, self.value),
            Piece::Link(url) if !self.counts_markup => units(url),
            Piece::Link(url) => {
                let mut written = String::new();
                (self.link)(url, &mut written);
                units(&written)
            }
        }
    }

    fn letters_cost(&self, text: &str, write: fn(char, &mut String)) -> usize {
        let mut written = String::new();
        text.chars().map(|letter| self.letter_cost(letter, write, &mut written)).sum()
    }

    /// Returns the cost of a character, which is written in place of what `written` has.
    fn letter_cost(
        &self,
        letter: char,
        write: fn(char, &mut String),
        written: &mut String,
    ) -> usize {
        written.clear();
        write(letter, written);
        // An escape is shown as one character.
        let is_escape = !self.counts_markup && written.starts_with('&');
        if is_escape { 1 } else { units(written) }
    }
}

/// Returns the level to which the costs must be cut so that their sum is at most `most`.
fn level(costs: &mut [usize], most: usize) -> usize {
    costs.sort_unstable();
    let mut left = most;
    for (at, cost) in costs.iter().enumerate() {
        let share = left / (costs.len() - at);
        if *cost > share {
            return share;
        }
        left -= cost;
    }
    usize::MAX
}

/// Returns the number of UTF-16 code units of a text.
fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_uses_what_there_is() {
        for (costs, most, expected) in [
            (vec![1, 2, 3], 6, usize::MAX),
            (vec![10, 10], 10, 5),
            (vec![100, 1], 11, 10),
            (vec![100, 1, 50], 21, 10),
            (vec![5], 0, 0),
        ] {
            assert_eq!(level(&mut costs.clone(), most), expected, "{costs:?}");
            let cut: usize = costs.iter().map(|cost| expected.min(*cost)).sum();
            assert!(cut <= most);
        }
    }
}
