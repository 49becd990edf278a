//! The files of the site: style sheets and modules, which are part of the binary.
//!
//! Their addresses contain a hash over all of them. So browsers keep them for good, and after an
//! upgrade no old module meets a new one: the page names the new addresses, and the old ones are
//! answered with 404.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use crate::api::answer::Answer;
use crate::api::{ApiError, Deps};

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file by its path below the directory of the site, as it is in the directory.
struct File {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(File { name: $name, bytes: include_bytes!($name) }),*] };
}

/// All files. A file that is not listed is not served.
const FILES: &[File] = files![
    "actions.js",
    "address.js",
    "api.js",
    "app.js",
    "asset.js",
    "callers.js",
    "changes.js",
    "checks.js",
    "copy.js",
    "coverage.js",
    "csv.js",
    "derived.js",
    "disk.js",
    "dom.js",
    "event.js",
    "filter.js",
    "format.js",
    "health.js",
    "in_sight.js",
    "interface.js",
    "kept_rows.js",
    "live.js",
    "live_rows.js",
    "pages.js",
    "pages/account.js",
    "pages/contract.js",
    "pages/event.js",
    "pages/home.js",
    "pages/ledger.js",
    "pages/program.js",
    "pages/programs.js",
    "pages/search.js",
    "pages/sql.js",
    "pages/status.js",
    "pages/transaction.js",
    "pages/trust.js",
    "pages/webhook.js",
    "pages/webhooks.js",
    "parameters.js",
    "parts.css",
    "pasted.js",
    "places.js",
    "pieces.js",
    "plot.js",
    "problem.js",
    "program_backfill.js",
    "program_forms.js",
    "program_parts.js",
    "program_runs.js",
    "program_stats.js",
    "program_tables.js",
    "program_trial.js",
    "raw.js",
    "result.js",
    "retention.js",
    "router.js",
    "row_keys.js",
    "rows.js",
    "search.js",
    "sha256.js",
    "signers.js",
    "sql_editor.js",
    "sql_grid.js",
    "sql_history.js",
    "sql_names.js",
    "sql_plot.js",
    "sql_read.js",
    "sql_result.js",
    "sql_tables.js",
    "sql_words.js",
    "stream.js",
    "strkey.js",
    "style.css",
    "table.js",
    "title.js",
    "token.js",
    "topics.js",
    "transactions.js",
    "unit.js",
    "value.js",
    "view.js",
    "webhook_deliveries.js",
    "webhook_delivery.js",
    "webhook_form.js",
    "webhook_parts.js",
    "webhook_replay.js",
    "written.js",
];

/// The files as browsers get them, by name. Comments are for contributors, and a sixth of the bytes.
static SERVED: LazyLock<Vec<(&str, Vec<u8>)>> =
    LazyLock::new(|| FILES.iter().map(|file| (file.name, without_comments(file.bytes))).collect());

/// Returns a file without the lines that are comments. Lines of template literals are kept, whatever
/// they look like.
fn without_comments(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let (mut is_in_comment, mut is_in_literal) = (false, false);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii();
        if !is_in_literal && (is_in_comment || text.starts_with(b"/*")) {
            is_in_comment = !text.ends_with(b"*/");
        } else if is_in_literal || !text.starts_with(b"//") {
            is_in_literal ^= !backticks(line).is_multiple_of(2);
            kept.extend_from_slice(line);
        }
    }
    kept
}

/// Returns how many backticks of a line begin or end a literal: one that stands alone in a string does
/// not.
fn backticks(line: &[u8]) -> usize {
    let alone = line.windows(3).filter(|three| *three == b"\"`\"").count();
    line.iter().filter(|byte| **byte == b'`').count() - alone
}

/// Hash over all files, as 16 hexadecimal digits.
static BUILD: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for file in FILES {
        hash.update((file.name.len() as u64).to_be_bytes());
        hash.update(file.name);
        hash.update((file.bytes.len() as u64).to_be_bytes());
        hash.update(file.bytes);
    }
    hex::encode(&hash.finalize()[..8])
});

/// Returns the segment in the addresses of all files that changes with any of them.
pub(super) fn build() -> &'static str {
    &BUILD
}

/// Answers `/site/BUILD/NAME`.
pub(super) fn file(_: &Deps, path: &str) -> Result<Answer, ApiError> {
    let mut parts = path.trim_start_matches('/').splitn(3, '/').skip(1);
    let (build, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let found = SERVED.iter().find(|(known, _)| *known == name && build == *BUILD);
    let (_, bytes) = found.ok_or_else(|| ApiError::unknown_route(path))?;
    let media_type = if name.ends_with(".css") { STYLE } else { SCRIPT };
    Ok(Answer { media_type, ..Answer::json(bytes.clone()) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/site");

    /// Returns the paths of all modules and style sheets below a directory.
    fn in_directory(directory: &Path, prefix: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_name().unwrap().to_string_lossy());
            if path.is_dir() {
                found.extend(in_directory(&path, &format!("{name}/")));
            } else if name.ends_with(".js") || name.ends_with(".css") {
                found.insert(name);
            }
        }
        found
    }

    #[test]
    fn every_file_of_the_directory_is_served() {
        let served: BTreeSet<_> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(served.len(), FILES.len(), "a file is listed twice");
        assert_eq!(served, in_directory(Path::new(DIRECTORY), ""));
    }

    fn named(name: &str) -> &'static str {
        let file = SERVED.iter().find(|(known, _)| *known == name);
        std::str::from_utf8(&file.unwrap_or_else(|| panic!("{name} is not listed")).1).unwrap()
    }

    #[test]
    fn browsers_get_everything_but_the_comments() {
        for (source, served) in [
            ("// a\nlet b = 1; // c\n", "let b = 1; // c\n"),
            ("/**\n * a\n */\nb();\n  // c\n", "b();\n"),
            ("/* a */\nb {}\n", "b {}\n"),
            ("const a = `b\n// c\n/* d`;\n// e\n", "const a = `b\n// c\n/* d`;\n"),
            ("split(\"`\");\n// a\nb\n", "split(\"`\");\nb\n"),
            ("/`/; '`';\n// a\nb", "/`/; '`';\nb"),
        ] {
            assert_eq!(without_comments(source.as_bytes()), served.as_bytes(), "{source}");
        }
        for file in FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            assert!(
                backticks(named(file.name).as_bytes()).is_multiple_of(2),
                "{}: a literal does not end",
                file.name
            );
            // What follows the end of a comment in its line would be left out with it.
            let mut ends = text.lines().filter(|line| line.trim_start().starts_with("*/"));
            assert!(ends.all(|line| line.trim() == "*/"), "{}", file.name);
            let begins = text.lines().map(str::trim).filter(|line| line.starts_with("/*"));
            begins.for_each(|line| assert!(!line.contains("*/") || line.ends_with("*/"), "{line}"));
        }
        // An example that is shown keeps its comments.
        assert!(named("webhook_form.js").contains("// body: the bytes as they arrived"));
        assert!(!named("rows.js").contains("/** A list of which"));
    }

    /// Adds a module and those that it imports.
    fn add_with_imports(name: &str, seen: &mut BTreeSet<String>) {
        if !seen.insert(name.to_owned()) {
            return;
        }
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        let imports = named(name).lines().filter(|line| line.starts_with("import "));
        for import in imports {
            let path = import.rsplit('"').nth(1).unwrap();
            let path = match path.strip_prefix("../") {
                Some(above) => above.to_owned(),
                None => format!("{directory}/{}", path.trim_start_matches("./")),
            };
            add_with_imports(path.trim_start_matches('/'), seen);
        }
    }

    #[test]
    fn modules_are_small_and_every_page_is_light() {
        for file in FILES {
            let lines = file.bytes.split(|byte| *byte == b'\n').count() - 1;
            assert!(lines <= 300, "{} has {lines} lines", file.name);
        }
        let styles: usize =
            SERVED.iter().filter(|it| it.0.ends_with(".css")).map(|it| it.1.len()).sum();
        let all: usize = SERVED.iter().map(|it| it.1.len()).sum();
        assert!(all <= 350_000, "all code has {all} bytes");
        let pages = FILES.iter().filter(|file| file.name.starts_with("pages/"));
        for page in pages {
            let mut modules = BTreeSet::new();
            add_with_imports("app.js", &mut modules);
            add_with_imports(page.name, &mut modules);
            let code: usize = modules.iter().map(|name| named(name).len()).sum();
            let bytes = super::super::SHELL.len() + styles + code;
            assert!(bytes <= 150_000, "{} loads {bytes} bytes", page.name);
        }
    }

    const STYLES: &str = include_str!("style.css");

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
}
