//! Hostile texts in messages: what each service makes of them, by a parser of its syntax. Nothing that a
//! contract says is anything but text there.

use markdown::mdast::Node;
use markdown::{Constructs, ParseOptions};
use orrery::webhooks::message::format::Format;
use orrery::webhooks::message::{Facts, Message};
use orrery_testkit::histories;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Pieces of which texts are made: markup, mentions, links, commands and emoji of all services, characters
/// that hide or turn text, and what ends any of these.
const PIECES: [&str; 78] = [
    "@everyone",
    "@here",
    "@channel",
    "<@123456789>",
    "<@!1>",
    "<@&42>",
    "<#77>",
    "<!channel>",
    "<!here>",
    "<!subteam^S1|x>",
    "<@U024BE7LH>",
    "<#C024BE7LR>",
    "<https://evil.example|gift>",
    "<https://evil.example>",
    "https://evil.example/a?b=c",
    "http://127.0.0.1",
    "www.evil.example",
    "evil.example",
    "mailto:a@b.example",
    "tg://user?id=1",
    "t.me/joinchat",
    "discord.gg/evil",
    "[gift](https://evil.example)",
    "![x](http://e.example/i.png)",
    "<a href=\"https://evil.example\">",
    "</a>",
    "<b>",
    "</b>",
    "<code>",
    "</code>",
    "<pre>",
    "</pre>",
    "<tg-spoiler>",
    "<script>",
    "&lt;",
    "&gt;",
    "&amp;",
    "&#64;",
    "&",
    "<",
    ">",
    "\"",
    "'",
    "`",
    "``",
    "```",
    "```js\n",
    "*",
    "**",
    "_",
    "__",
    "~~",
    "||",
    "> ",
    ">>> ",
    "# ",
    "-# ",
    "- ",
    "1. ",
    "\\",
    ":smile:",
    "<:evil:1234>",
    "<a:evil:1234>",
    "<t:1618953630:R>",
    "</airhorn:816437322781949972>",
    "/start",
    "/kick@bot",
    "#tag",
    "$USDT",
    "\n",
    "\r\n",
    "\u{202e}",
    "\u{200b}",
    "\u{2028}",
    "\u{0}",
    "…",
    "{amount}",
    "}}",
];

fn text(rng: &mut ChaCha8Rng) -> String {
    let mut text = String::new();
    for _ in 0..rng.random_range(0..12) {
        match rng.random_range(0..5) {
            0 => text.push(rng.random()),
            1 => text.push_str("word "),
            _ => text.push_str(PIECES.choose(rng).unwrap()),
        }
    }
    if rng.random_bool(0.02) { text.repeat(400) } else { text }
}

/// A template of some words and the names `a` and `b`, with what the author writes between them.
fn template(rng: &mut ChaCha8Rng) -> (Vec<String>, String) {
    let words: Vec<String> = (0..3)
        .map(|_| {
            let words = text(rng).replace(|letter: char| letter.is_control(), " ");
            let words = words.trim().chars().take(300).collect::<String>();
            // Otherwise nobody could tell where the words end and the values begin.
            if words.is_empty() { "·".to_owned() } else { format!("·{words}·") }
        })
        .collect();
    let escaped: Vec<String> =
        words.iter().map(|it| it.replace('{', "{{").replace('}', "}}")).collect();
    let [first, second, third] = &escaped[..] else { unreachable!() };
    (words, format!("{first}{{a}}{second}{{b}}{third}"))
}

fn body(a: &str, b: &str) -> Vec<u8> {
    let event = json!({
        "contract_id": "", "body": { "v0": { "topics": [{ "symbol": "x" }], "data": "void" } }, "id": 7, "ledger": 9,
        "name": "x", "params": { "a": a, "b": b },
    });
    json!({ "event": event, "tx_hash": "00" }).to_string().into_bytes()
}

fn written(format: Format, template: &str, a: &str, b: &str) -> Value {
    let message = Message::parse(format, template).unwrap();
    let facts = Facts { subscription: 1, decimals: &[], public_url: None };
    serde_json::from_slice(&message.write(&body(a, b), &facts)).unwrap()
}

/// What of a text may be hidden, by the names of Unicode's categories and properties rather than by ranges.
fn is_shown(letter: char) -> bool {
    let hidden =
        "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180e}\u{3164}\u{feff}\u{ffa0}";
    let number = u32::from(letter);
    let blocks = [
        (0x200b, 0x200f),
        (0x2028, 0x202e),
        (0x2060, 0x206f),
        (0xfe00, 0xfe0f),
        (0xe0000, 0xe0fff),
    ];
    !letter.is_control()
        && !hidden.contains(letter)
        && !blocks.iter().any(|(first, last)| (*first..=*last).contains(&number))
}

/// A part of a message as its readers see it.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Text(String),
    Code(String),
    Other(String),
}

fn add(seen: &mut Vec<Seen>, part: Seen) {
    match (seen.last_mut(), part) {
        (Some(Seen::Text(before)), Seen::Text(more)) => before.push_str(&more),
        (_, part) => seen.push(part),
    }
}

/// Reads Markdown: what Discord has in common with others, and bare links.
fn discord(content: &str) -> Vec<Seen> {
    let constructs = Constructs { html_flow: true, html_text: true, ..Constructs::gfm() };
    let options = ParseOptions { constructs, ..ParseOptions::gfm() };
    let mut seen = Vec::new();
    fn walk(node: &Node, seen: &mut Vec<Seen>) {
        match node {
            Node::Root(_) | Node::Paragraph(_) => {
                node.children().unwrap().iter().for_each(|child| walk(child, seen));
            }
            Node::Text(text) => add(seen, Seen::Text(text.value.clone())),
            Node::InlineCode(code) => add(seen, Seen::Code(code.value.clone())),
            other => add(seen, Seen::Other(format!("{other:?}"))),
        }
    }
    walk(&markdown::to_mdast(content, &options).unwrap(), &mut seen);
    seen
}

/// What Discord reads out of text outside of code and beside Markdown
/// (discord.com/developers/docs/reference#message-formatting): mentions, emoji, times, commands, spoilers, links,
/// small text and headings, none of them behind a backslash.
fn discord_extras(content: &str) -> Vec<String> {
    let letters: Vec<char> = content.chars().collect();
    let mut outside = String::new();
    let (mut at, mut in_code) = (0, false);
    while at < letters.len() {
        match letters[at] {
            '\\' if !in_code => {
                // Whatever follows is text.
                outside.push('\u{1}');
                at += 1;
            }
            '`' => in_code = !in_code,
            letter if !in_code => outside.push(letter),
            _ => {}
        }
        at += 1;
    }
    assert!(!in_code, "code is not closed: {content}");
    let marks =
        ["<", ">", "@", "#", "|", "*", "_", "~", "http:", "https:", ":", "[", "]", "-", "/"];
    marks.iter().filter(|mark| outside.contains(**mark)).map(|it| (*it).to_owned()).collect()
}

/// Reads the HTML of Telegram's Bot API (core.telegram.org/bots/api#html-style).
fn telegram(text: &str) -> Vec<Seen> {
    let (mut seen, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix("<code>") {
            let (code, behind) = inner.split_once("</code>").expect("code is closed");
            assert!(!code.contains(['<', '>']), "{code}");
            add(&mut seen, Seen::Code(unescaped(code)));
            rest = behind;
        } else {
            let end = rest.find('<').unwrap_or(rest.len());
            assert!(end > 0, "an unknown tag: {rest}");
            assert!(!rest[..end].contains('>'), "{rest}");
            add(&mut seen, Seen::Text(unescaped(&rest[..end])));
            rest = &rest[end..];
        }
    }
    seen
}

fn unescaped(text: &str) -> String {
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entity, rest) = part.split_once(';').expect("an entity ends");
        out.push(match entity {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            other => panic!("an unknown entity: {other}"),
        });
        out.push_str(rest);
    }
    out
}

/// What Telegram's clients find in text without any markup: links, mentions, hashtags, cashtags, commands.
fn telegram_entities(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let is_word =
        |letter: Option<&char>| letter.is_some_and(|it| it.is_alphanumeric() || *it == '_');
    let mut found = Vec::new();
    for (at, letter) in letters.iter().enumerate() {
        let next = letters.get(at + 1);
        let before = at.checked_sub(1).map(|before| letters[before]);
        let is_entity = match letter {
            '@' | '#' | '$' | '/' => is_word(next) || (*letter == '/' && next == Some(&'/')),
            '.' => is_word(before.as_ref()) && is_word(next),
            ':' => is_word(before.as_ref()) && next == Some(&'/'),
            _ => false,
        };
        if is_entity {
            found.push(letters[at.saturating_sub(5)..(at + 6).min(letters.len())].iter().collect());
        }
    }
    found
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Checks that a value is the given text, with what cannot be shown replaced, or the beginning of it.
fn assert_value(shown: &str, given: &str, is_cut: bool) {
    let expected: String =
        given.chars().map(|it| if is_shown(it) { it } else { '\u{fffd}' }).collect();
    let is_empty = expected.chars().all(|it| it.is_whitespace() || it == '\u{2800}');
    if is_empty {
        assert_eq!(shown, "(empty)");
        return;
    }
    // Rare format characters are replaced, too.
    let is_same = |one: char, other: char| one == other || one == '\u{fffd}';
    let kept = match shown
        .strip_suffix('…')
        .filter(|_| is_cut && shown.chars().count() <= expected.chars().count())
    {
        Some(kept) => kept,
        None => {
            assert_eq!(shown.chars().count(), expected.chars().count(), "{shown:?} {given:?}");
            shown
        }
    };
    assert!(
        kept.chars().zip(expected.chars()).all(|(one, other)| is_same(one, other)),
        "{shown:?} {given:?}"
    );
}

fn trimmed(code: &str) -> &str {
    code.trim_matches(' ')
}

fn check_discord(rng: &mut ChaCha8Rng) {
    let ((words, template), a, b) = (template(rng), text(rng), text(rng));
    let sent = written(Format::Discord, &template, &a, &b);
    assert_eq!(sent["allowed_mentions"], json!({ "parse": [] }));
    assert_eq!(sent["flags"], 4);
    let content = sent["content"].as_str().unwrap();
    assert!((1..=2000).contains(&units(content)));
    assert_eq!(discord_extras(content), Vec::<String>::new(), "{content}");
    let seen = discord(content);
    let [
        Seen::Text(first),
        Seen::Code(one),
        Seen::Text(second),
        Seen::Code(two),
        Seen::Text(third),
    ] = &seen[..]
    else {
        panic!("{seen:?} of {content}")
    };
    assert_eq!([first, second, third], [&words[0], &words[1], &words[2]], "{content}");
    let is_cut = units(content) > 1990;
    for (shown, given) in [(one, &a), (two, &b)] {
        let given = given.replace('`', "\u{2cb}");
        // A parser takes one blank from each end.
        assert_value(trimmed(shown), trimmed(&given), is_cut);
    }
}

fn check_telegram(rng: &mut ChaCha8Rng) {
    let ((words, template), a, b) = (template(rng), text(rng), text(rng));
    let sent = written(Format::Telegram, &template, &a, &b);
    assert_eq!(
        (&sent["parse_mode"], &sent["link_preview_options"]),
        (&json!("HTML"), &json!({ "is_disabled": true }))
    );
    let seen = telegram(sent["text"].as_str().unwrap());
    let [
        Seen::Text(first),
        Seen::Code(one),
        Seen::Text(second),
        Seen::Code(two),
        Seen::Text(third),
    ] = &seen[..]
    else {
        panic!("{seen:?}")
    };
    let length: usize = [first, one, second, two, third].iter().map(|it| units(it)).sum();
    assert!(length <= 4096);
    for (shown, given) in [first, second, third].iter().zip(&words) {
        assert_eq!(telegram_entities(shown), Vec::<String>::new(), "{shown}");
        let (shown, given) = (shown.replace('\u{2060}', ""), given.replace('\u{2060}', ""));
        assert_eq!(shown, given);
    }
    let is_cut = length > 4086;
    assert_value(one, &a, is_cut);
    assert_value(two, &b, is_cut);
}

fn check_slack(rng: &mut ChaCha8Rng) {
    let ((words, template), a, b) = (template(rng), text(rng), text(rng));
    let sent = written(Format::Slack, &template, &a, &b);
    // Anything beside the one block of plain text could have markup.
    let text = sent["blocks"][0]["text"]["text"].clone();
    let block = json!({ "type": "section", "text": { "type": "plain_text", "text": text, "emoji": false } });
    assert_eq!(sent, json!({ "blocks": [block], "unfurl_links": false, "unfurl_media": false }));
    let text = text.as_str().unwrap();
    assert!((1..=3000).contains(&units(text)));
    let rest = text.strip_prefix(&*words[0]).unwrap();
    let rest = rest.strip_suffix(&*words[2]).unwrap();
    assert!(
        rest.contains(&*words[1]) && rest.chars().filter(|it| *it != '\n').count() > 2,
        "{rest}"
    );
    assert!(!rest.replacen(&*words[1], "", 1).contains(|it: char| !is_shown(it)), "{rest:?}");
}

/// `ORRERY_TEST_SIZE=full` takes ten times as many texts as the ten thousand for each service.
#[test]
fn nothing_that_a_contract_says_is_more_than_text() {
    histories::run(10, 100, |seed| {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..500 {
            check_discord(rng);
            check_telegram(rng);
            check_slack(rng);
        }
    });
}

#[test]
fn the_only_link_is_the_page_of_this_service() {
    let url = Some("https://orrery.example");
    for (format, expected) in [
        (Format::Text, "see https://orrery.example/event/7 of x"),
        (Format::Discord, r"see <https://orrery.example/event/7> of `x`"),
        (
            Format::Telegram,
            "see <a href=\"https://orrery.example/event/7\">https://orrery.example/event/7</a> of <code>x</code>",
        ),
    ] {
        let message = Message::parse(format, "see {link} of {name}").unwrap();
        let sent = message
            .write(&body("", ""), &Facts { subscription: 1, decimals: &[], public_url: url });
        let text = match format {
            Format::Text => String::from_utf8(sent.to_vec()).unwrap(),
            _ => {
                let sent: Value = serde_json::from_slice(&sent).unwrap();
                let text = sent.get("content").or(sent.get("text")).unwrap();
                text.as_str().unwrap().to_owned()
            }
        };
        assert_eq!(text, expected);
    }
    let message = Message::parse(Format::Slack, "{link}").unwrap();
    let sent =
        message.write(&body("", ""), &Facts { subscription: 1, decimals: &[], public_url: url });
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let link = json!({
        "type": "context",
        "elements": [{ "type": "mrkdwn", "text": "<https://orrery.example/event/7>", "verbatim": true }],
    });
    assert_eq!(sent["blocks"][1], link);
    assert_eq!(sent["blocks"].as_array().unwrap().len(), 2);
}
