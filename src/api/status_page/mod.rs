//! The status page, `/`, and its static files. Renders only health as HTML; the page's scripts
//! fetch and draw everything else through the routes that all clients use.

use std::fmt::Write;

use super::access::Access;
use super::answer::Answer;
use super::health::{self, Record};
use super::route::{MemoryHandler, Route, Work};
use super::{ApiError, Deps};

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const INDEX: &str = include_str!("index.html");
/// Placeholder in the page that is replaced by health.
const PLACEHOLDER: &str = "<!-- health -->";

/// Content security policy: the page runs, displays and fetches only what this service serves, and
/// no other page may frame it (W3C, Content Security Policy Level 3).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

type Headers = &'static [(&'static str, &'static str)];

const PAGE: Headers = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
];

/// Route of a static file of the page, by its name under `/status/`.
macro_rules! asset {
    ($name:literal, $media_type:expr) => {{
        const BYTES: &[u8] = include_bytes!($name);
        const TAG_BYTES: [u8; 20] = entity_tag(BYTES);
        const TAG: &str = match std::str::from_utf8(&TAG_BYTES) {
            Ok(tag) => tag,
            Err(_) => panic!("an entity tag is ASCII"),
        };
        const HEADERS: Headers = &[
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            // Asked for each time, and sent when it is another one: after an upgrade no old script meets a new page.
            ("cache-control", "no-cache"),
            ("etag", TAG),
        ];
        fn answer(_: &Deps) -> Result<Answer, ApiError> {
            Ok(Answer { media_type: $media_type, ..Answer::json(BYTES.to_vec()) })
        }
        route(concat!("/status/", $name), answer, HEADERS)
    }};
}

const fn route(template: &'static str, handler: MemoryHandler, headers: Headers) -> Route {
    let work = Work::memory(Access::Public, handler);
    Route { headers, ..Route::new("GET", template, work).ignoring_parameters() }
}

/// Routes of this area.
pub(super) static ROUTES: [Route; 9] = [
    Route { no_store: true, ..route("/", page, PAGE) },
    asset!("style.css", STYLE),
    asset!("app.js", SCRIPT),
    asset!("common.js", SCRIPT),
    asset!("panels.js", SCRIPT),
    asset!("explorer.js", SCRIPT),
    asset!("console.js", SCRIPT),
    asset!("plot.js", SCRIPT),
    asset!("scval.js", SCRIPT),
];

/// Returns `W/"…"` with the 64-bit FNV-1a hash of these bytes (RFC 9110, section 8.8.3). The tag is
/// weak, because the compressed body has the same one.
const fn entity_tag(bytes: &[u8]) -> [u8; 20] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    let mut tag = *b"W/\"................\"";
    let mut digit = 0;
    while digit < 16 {
        tag[3 + digit] = DIGITS[(hash >> (60 - 4 * digit)) as usize & 15];
        digit += 1;
    }
    tag
}

fn page(deps: &Deps) -> Result<Answer, ApiError> {
    let health = of(&health::record(deps));
    let page = INDEX.replacen(PLACEHOLDER, &health, 1);
    Ok(Answer { media_type: HTML, ..Answer::json(page.into_bytes()) })
}

/// Renders health for clients without scripts. Reasons and details of components may contain any
/// text, including text from other servers, so all of it is escaped.
fn of(record: &Record<'_>) -> String {
    let mut out = String::new();
    let state = record.service;
    let sentence = match (state, record.lag_ledgers) {
        ("up", Some(0..=1)) => "Everything works, and nothing is behind.".to_owned(),
        ("up", Some(lag)) => format!("Everything works; {lag} ledgers behind the network."),
        ("up", None) => "Everything works.".to_owned(),
        _ => "Something needs attention: see below.".to_owned(),
    };
    line(
        &mut out,
        format_args!("<p class=\"state {state}\" id=\"state\"><strong>{state}</strong> "),
    );
    line(
        &mut out,
        format_args!("<span>{}</span></p>\n<dl class=\"figures\">\n", escaped(&sentence)),
    );
    let unknown = || "–".to_owned();
    let number = |value: Option<u32>| value.map_or_else(unknown, |value| value.to_string());
    let seconds = record.lag_seconds.map_or_else(unknown, |seconds| format!("{seconds} s"));
    for (id, name, value) in [
        ("service_latest_ledger", "Latest ledger here", number(record.service_latest_ledger)),
        ("network_latest_ledger", "Latest of the network", number(record.network_latest_ledger)),
        ("lag_ledgers", "Ledgers behind", number(record.lag_ledgers)),
        ("lag_seconds", "Age of the latest", seconds),
        ("oldest_ledger", "Oldest with events", number(record.oldest_ledger)),
        ("version", "Version", record.version.to_owned()),
    ] {
        let value = escaped(&value);
        line(&mut out, format_args!("<div><dt>{name}</dt><dd id=\"{id}\">{value}</dd></div>\n"));
    }
    out.push_str("</dl>\n<ul class=\"components\" id=\"components\">\n");
    for (name, component) in &record.components {
        let text = component.reason.as_deref().or(component.detail.as_deref()).unwrap_or_default();
        let (name, status, text) = (escaped(name), component.status, escaped(text));
        line(&mut out, format_args!("<li class=\"{status}\"><b>{name}</b> <i>{status}</i> "));
        line(&mut out, format_args!("<span>{text}</span></li>\n"));
    }
    out.push_str("</ul>\n");
    let network = match record.network {
        "custom" => record.network_passphrase,
        name => name,
    };
    line(
        &mut out,
        format_args!("<p class=\"note\">Network: <b id=\"network\">{}</b></p>\n", escaped(network)),
    );
    let (warning, hidden) =
        (record.warning.unwrap_or_default(), if record.warning.is_some() { "" } else { " hidden" });
    line(
        &mut out,
        format_args!("<p class=\"warning\" id=\"warning\"{hidden}>{}</p>\n", escaped(warning)),
    );
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(text);
}

/// Escapes text for HTML, also inside attribute values.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_are_hashes_of_the_bytes() {
        // Test vectors of the hash (draft-eastlake-fnv, appendix C).
        assert_eq!(&entity_tag(b""), b"W/\"cbf29ce484222325\"");
        assert_eq!(&entity_tag(b"foobar"), b"W/\"85944171f73967e8\"");
    }

    #[test]
    fn the_page_has_one_placeholder_for_health() {
        assert_eq!(INDEX.matches(PLACEHOLDER).count(), 1);
    }
}
