//! Messages for webhooks of Discord (discord.com/developers/docs/resources/webhook#execute-webhook).

use serde_json::json;

use super::fit::Markup;
use super::piece::Piece;

/// Flag of a message without previews of its links (`SUPPRESS_EMBEDS`).
const WITHOUT_PREVIEWS: u32 = 1 << 2;
/// What stands for a backtick in a value: there is no way to write one in inline code that all clients
/// read alike.
const INSTEAD_OF_BACKTICK: char = '\u{2cb}';

static MARKUP: Markup = Markup {
    most: 2000,
    word: escaped,
    value: in_code,
    // Nothing in inline code is markup, a mention, a link or an emoji.
    marks: ("`", "`"),
    link: |url, out| {
        out.push('<');
        out.push_str(url);
        out.push('>');
    },
    counts_markup: true,
};

/// Returns the body of a message.
pub fn body(pieces: Vec<Piece>) -> serde_json::Value {
    json!({
        "content": MARKUP.write(pieces),
        "allowed_mentions": { "parse": [] },
        "flags": WITHOUT_PREVIEWS,
    })
}

/// Writes a character so that it has no meaning in Markdown: a backslash may stand before each sign of
/// ASCII.
fn escaped(letter: char, out: &mut String) {
    if letter.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(letter);
}

fn in_code(letter: char, out: &mut String) {
    out.push(if letter == '`' { INSTEAD_OF_BACKTICK } else { letter });
}
