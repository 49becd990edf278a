//! The web site: its pages (`/`, `/tx/…`, `/sql` and others) and the files that they load. The service
//! renders only the state of its health; modules in the browser fetch and draw everything else
//! through the routes that all clients use.
//!
//! All pages have the same document, in which addresses are relative to the page's own, so that the
//! site works behind a proxy that adds a path prefix. Does not depend on the API, which serves it.

mod docs;
mod files;
mod health;

pub use docs::{ExampleValues, documentation};
pub use files::file;

use orrery_runtime::observe::health::Record;

/// The document of every page, with placeholders.
const SHELL: &str = include_str!("index.html");
/// Placeholders for the links to the pages, and those at the foot, which documents have, too.
const PAGE_LINKS: (&str, &str) = ("<!-- pages -->", include_str!("pages.html"));
const FOOT_LINKS: (&str, &str) = ("<!-- links -->", include_str!("links.html"));
/// Placeholder for the way from the page's directory up to that of the first page.
const UP: &str = "{up}";
/// Placeholder for the segment in the addresses of files.
const BUILD: &str = "{build}";
/// Placeholders for the beginning of the title, and of the content.
const TITLE: &str = "<!-- title -->";
const MAIN: &str = "<!-- main -->";
/// Placeholder for the attribute that says that reading needs no token.
const READING: &str = "<!-- reading -->";
/// Placeholder for the data directory, which commands in the pages name.
const DATA_DIR: &str = "{data_dir}";
/// Placeholders for the state of the service: a word, the word with a sentence, and all of it.
const STATE: &str = "<!-- state -->";
const BADGE: &str = "<!-- badge -->";
const HEALTH: &str = "<!-- health -->";

/// Content security policy: the page runs, displays and fetches only what this service serves, and
/// no other page may frame it (W3C, Content Security Policy Level 3).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of all responses of the site.
pub const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
];

/// Paths of all pages, with their variable segments in braces. `pages.js` has the pages' modules.
pub const PAGES: [&str; 14] = [
    "/",
    "/search",
    "/ledger/{ledger}",
    "/tx/{hash}",
    "/event/{id}",
    "/contract/{contract}",
    "/account/{address}",
    "/programs",
    "/programs/{id}",
    "/webhooks",
    "/webhooks/{id}",
    "/sql",
    "/status",
    "/trust",
];

/// What pages are told of the service besides its health.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told<'a> {
    /// Whether events, transactions and contracts are read without a token.
    pub is_public_read: bool,
    /// The data directory as commands on the service's machine name it; `None` where that is not told.
    pub data_dir: Option<&'a str>,
}

/// Returns the document (HTML) of the page at this path.
pub fn document(path: &str, record: &Record<'_>, told: &Told<'_>) -> String {
    filled(path, record, told, "", "")
}

/// Returns the document (HTML) for a path that no page has.
pub fn missing_page(path: &str, record: &Record<'_>, told: &Told<'_>) -> String {
    const TITLE: &str = "No such page · ";
    const MAIN: &str = "<noscript>\n<h1>No such page</h1>\n</noscript>\n";
    filled(path, record, told, TITLE, MAIN)
}

/// Fills in the document, with what stands before the title and at the beginning of the content.
fn filled(path: &str, record: &Record<'_>, told: &Told<'_>, title: &str, main: &str) -> String {
    let state = health::escaped(record.service);
    let sentence = health::sentence(record.service, record.lag_ledgers, record.lag_seconds);
    let badge = format!("<strong>{state}</strong> <span>{}</span>", health::escaped(&sentence));
    // Text of components comes last, so that nothing in it is taken for a placeholder.
    with_links(SHELL)
        .replace(UP, &way_up(path))
        .replace(BUILD, files::build())
        .replacen(TITLE, title, 1)
        .replacen(MAIN, main, 1)
        .replacen(READING, if told.is_public_read { " data-public-read" } else { "" }, 1)
        .replacen(DATA_DIR, &health::escaped(told.data_dir.unwrap_or_default()), 1)
        .replacen(STATE, &state, 1)
        .replacen(BADGE, &badge, 1)
        .replacen(HEALTH, &health::of(record), 1)
}

/// Returns a document with the links that all have.
fn with_links(document: &str) -> String {
    let (pages, foot) = (PAGE_LINKS, FOOT_LINKS);
    document.replacen(pages.0, pages.1, 1).replacen(foot.0, foot.1.trim_end(), 1)
}

/// Maximum number of steps up: pages have few segments, and a page names many addresses.
const MOST_UP: usize = 16;

/// Returns the relative address of the first page, seen from a page with this path.
fn way_up(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".to_owned(),
        segments => "../".repeat((segments - 1).min(MOST_UP)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_up_ends_at_the_first_page() {
        assert_eq!(way_up("/"), "./");
        assert_eq!(way_up("/sql"), "./");
        assert_eq!(way_up("/sql/"), "../");
        assert_eq!(way_up("/tx/00"), "../");
        assert_eq!(way_up("/tx/00/"), "../../");
        assert!(way_up(&"/".repeat(30_000)).len() < 100);
    }

    #[test]
    fn every_page_has_a_module() {
        let modules = include_str!("pages.js").lines();
        let paths =
            modules.filter_map(|line| line.trim().strip_prefix("[\"")?.split_once("\", () =>"));
        let of_modules: Vec<_> = paths.map(|(path, _)| format!("/{path}")).collect();
        assert_eq!(of_modules, PAGES.map(|page| page.replace('{', ":").replace('}', "")));
    }

    #[test]
    fn the_document_has_no_inline_code_and_each_placeholder_once() {
        let links = [PAGE_LINKS.0, FOOT_LINKS.0];
        for placeholder in
            [TITLE, MAIN, READING, DATA_DIR, STATE, BADGE, HEALTH].into_iter().chain(links)
        {
            assert_eq!(SHELL.matches(placeholder).count(), 1, "{placeholder}");
        }
        for inline in ["style=", "<style", "onclick", "onload", "javascript:"] {
            assert!(!SHELL.contains(inline), "{inline}");
        }
        assert_eq!(
            SHELL.matches("<script").count(),
            SHELL.matches("<script type=\"module\" src=").count()
        );
    }
}
