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

/// Age of the latest ledger, in seconds, from which on a service that has all ledgers of its source is
/// not called up to date: a source may have ended long ago.
const OLD_SECONDS: u64 = 3600;

fn page(deps: &Deps) -> Result<Answer, ApiError> {
    let health = of(&health::record(deps));
    let page = INDEX.replacen(PLACEHOLDER, &health, 1);
    Ok(Answer { media_type: HTML, ..Answer::json(page.into_bytes()) })
}

fn sentence(state: &str, lag_ledgers: Option<u32>, lag_seconds: Option<u64>) -> String {
    match (state, lag_ledgers) {
        ("up", Some(0..=1)) => match lag_seconds.filter(|seconds| *seconds >= OLD_SECONDS) {
            Some(age) => {
                format!("Everything works; the source has nothing newer than {} h ago.", age / 3600)
            }
            None => "Everything works, and nothing is behind.".to_owned(),
        },
        ("up", Some(lag)) => format!("Everything works; {lag} ledgers behind the network."),
        ("up", None) => "Everything works.".to_owned(),
        _ => "Something needs attention: see below.".to_owned(),
    }
}

/// Renders health for clients without scripts. Reasons and details of components may contain any
/// text, including text from other servers, so all of it is escaped.
fn of(record: &Record<'_>) -> String {
    let mut out = String::new();
    let state = record.service;
    let sentence = sentence(state, record.lag_ledgers, record.lag_seconds);
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
        ("attested_ledger", "Attested ledger", number(record.attested_ledger)),
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
    fn an_ended_source_is_not_called_up_to_date() {
        let up = |ledgers, seconds| sentence("up", Some(ledgers), Some(seconds));
        assert_eq!(up(0, 3599), "Everything works, and nothing is behind.");
        assert!(up(0, 7300).contains("nothing newer than 2 h ago"));
        assert_eq!(up(5, 7300), "Everything works; 5 ledgers behind the network.");
        assert!(sentence("down", Some(0), Some(1)).contains("attention"));
    }

    const STYLES: &str = include_str!("style.css");
    const SCRIPTS: [&str; 3] =
        [include_str!("common.js"), include_str!("panels.js"), include_str!("console.js")];

    /// Relative luminance of `#rgb` or `#rrggbb` (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let digits = colour.trim_start_matches('#');
        let width = digits.len() / 3;
        let part = |at: usize| {
            let part = &digits[at * width..(at + 1) * width];
            let value = u8::from_str_radix(&part.repeat(3 - width), 16).unwrap();
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(1) + 0.0722 * part(2)
    }

    #[test]
    fn text_has_enough_contrast_in_both_colour_schemes() {
        let schemes: Vec<_> = STYLES.split(":root {").skip(1).collect();
        assert_eq!(schemes.len(), 2, "light and dark");
        for scheme in schemes {
            let scheme = scheme.split('}').next().unwrap();
            let colour = |name: &str| {
                let value = scheme.split(&format!("--{name}: ")).nth(1);
                luminance(value.and_then(|value| value.split(';').next()).unwrap())
            };
            for text in ["ink", "soft", "accent", "second", "good", "bad", "amber"] {
                for ground in ["paper", "card", "tint"] {
                    let (a, b) = (colour(text) + 0.05, colour(ground) + 0.05);
                    let contrast = f64::max(a / b, b / a);
                    assert!(contrast >= 4.5, "{text} on {ground}: {contrast:.2} in {scheme}");
                }
            }
        }
    }

    #[test]
    fn the_page_can_be_used_with_a_keyboard_and_a_screen_reader() {
        for script in SCRIPTS {
            for table in script.lines().filter(|line| line.contains("table([")) {
                assert!(!table.contains(", \"\","), "a column without a name: {table}");
            }
        }
        assert!(SCRIPTS[0].contains("scrolled.tabIndex = 0"), "tables can be scrolled");
        let scrolled = INDEX.lines().filter(|line| line.contains("class=\"scrolled"));
        assert!(scrolled.into_iter().all(|line| line.contains("tabindex=\"0\"")));
        let form = INDEX.split("<form").nth(1).unwrap().split("</form>").next().unwrap();
        assert!(form.contains("type=\"password\"") && form.contains("type=\"submit\""), "{form}");
    }

    #[test]
    fn the_page_has_one_placeholder_for_health() {
        assert_eq!(INDEX.matches(PLACEHOLDER).count(), 1);
    }
}
