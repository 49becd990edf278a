//! Messages for `sendMessage` of Telegram's Bot API, as HTML (core.telegram.org/bots/api#html-style). The
//! chat stands in the endpoint.

use serde_json::{Value, json};

use super::fit::Markup;
use super::piece::Piece;

/// Keeps clients from taking the words around it for a link, a mention, a hashtag or a command: none of
/// these has a WORD JOINER in it, and nothing is shown for it.
const JOINER: char = '\u{2060}';
/// Characters of the author's words that are part of what clients make links of.
const OF_LINKS: [char; 6] = ['.', ':', '/', '@', '#', '$'];

static MARKUP: Markup = Markup {
    most: 4096,
    word: |letter, out| {
        escaped(letter, out);
        if OF_LINKS.contains(&letter) {
            out.push(JOINER);
        }
    },
    value: escaped,
    // What is in code is never taken for anything else.
    marks: ("<code>", "</code>"),
    link: |url, out| {
        let mut text = String::with_capacity(url.len());
        url.chars().for_each(|letter| escaped(letter, &mut text));
        out.push_str(&format!("<a href=\"{text}\">{text}</a>"));
    },
    counts_markup: false,
};

/// Returns the body of a message.
pub fn body(pieces: Vec<Piece>) -> Value {
    json!({
        "text": MARKUP.write(pieces),
        "parse_mode": "HTML",
        "link_preview_options": { "is_disabled": true },
    })
}

fn escaped(letter: char, out: &mut String) {
    match letter {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        letter => out.push(letter),
    }
}
