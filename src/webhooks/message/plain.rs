//! Messages as plain text.

use super::fit::{Markup, verbatim};
use super::piece::Piece;

static MARKUP: Markup = Markup {
    most: 8000,
    word: verbatim,
    value: verbatim,
    marks: ("", ""),
    link: |url, out| out.push_str(url),
    counts_markup: true,
};

/// Returns the text of a message.
pub fn text(pieces: Vec<Piece>) -> String {
    MARKUP.write(pieces)
}
