//! Messages for incoming webhooks of Slack, made of blocks (docs.slack.dev/reference/block-kit).

use serde_json::{Value, json};

use super::fit::{Markup, verbatim};
use super::piece::Piece;

/// Text of a block: `plain_text` has no markup at all, and no emoji if that is said, so values and words
/// are written as they are.
static MARKUP: Markup = Markup {
    most: 3000,
    word: verbatim,
    value: verbatim,
    marks: ("", ""),
    link: |url, out| out.push_str(url),
    counts_markup: true,
};

/// Returns the body of a message. There is no text beside the blocks: it would be shown in notifications,
/// with markup.
pub fn body(pieces: Vec<Piece>) -> Value {
    let link = pieces.iter().find_map(|piece| match piece {
        Piece::Link(url) => Some(link(url)),
        Piece::Words(_) | Piece::Value(_) => None,
    });
    let text = MARKUP.write(pieces);
    let text = json!({
        "type": "section",
        "text": { "type": "plain_text", "text": text, "emoji": false },
    });
    let blocks: Vec<Value> = std::iter::once(text).chain(link).collect();
    json!({ "blocks": blocks, "unfurl_links": false, "unfurl_media": false })
}

/// A block with a page of this service, because plain text has no links.
fn link(url: &str) -> Value {
    let escaped = url.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({
        "type": "context",
        "elements": [{ "type": "mrkdwn", "text": format!("<{escaped}>"), "verbatim": true }],
    })
}
