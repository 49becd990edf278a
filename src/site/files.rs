//! The files of the site: style sheets and modules, which are part of the binary.
//!
//! Their addresses contain a hash over all of them. So browsers keep them for good, and after an
//! upgrade no old module meets a new one: the page names the new addresses, and the old ones are
//! answered with 404.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// A file by its path below the directory of the site, as it is in the directory.
struct File {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

/// All modules and style sheets of the directory, ordered by name. The build script writes the list.
const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/site.rs"));

/// The files, and their bytes as browsers get them. Comments are for contributors, and a sixth of the
/// bytes.
static SERVED: LazyLock<Vec<(&File, Vec<u8>)>> =
    LazyLock::new(|| FILES.iter().map(|file| (file, file.served())).collect());

impl File {
    /// Returns the bytes as browsers get them.
    fn served(&self) -> Vec<u8> {
        // JSON has no comments, and texts that look like some.
        if self.name.ends_with(".json") {
            self.bytes.to_vec()
        } else {
            without_comments(self.bytes)
        }
    }
}

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

/// Returns the media type and the bytes of the file at the path `/site/BUILD/NAME`; `None` if there is
/// none in this build.
pub fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    let mut parts = path.trim_start_matches('/').splitn(3, '/').skip(1);
    let (build, name) = (parts.next()?, parts.next()?);
    let (file, bytes) = SERVED.iter().find(|(file, _)| file.name == name && build == *BUILD)?;
    Some((file.media_type, bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn named(name: &str) -> &'static str {
        let file = SERVED.iter().find(|(file, _)| file.name == name);
        std::str::from_utf8(&file.unwrap_or_else(|| panic!("there is no {name}")).1).unwrap()
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
        for file in FILES.iter().filter(|file| !file.name.ends_with(".json")) {
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
        assert!(named("webhook/receiving.js").contains("// body: the bytes as they arrived"));
        assert!(!named("rows.js").contains("/** A list of which"));
    }

    /// Returns the names of the modules that are named in the lines of a module which this accepts.
    fn imports(name: &str, accepts: fn(&str) -> bool) -> impl Iterator<Item = String> {
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        named(name).lines().filter(move |line| accepts(line)).map(move |import| {
            let path = import.rsplit('"').nth(1).unwrap();
            let path = match path.strip_prefix("../") {
                Some(above) => above.to_owned(),
                None => format!("{directory}/{}", path.trim_start_matches("./")),
            };
            path.trim_start_matches('/').to_owned()
        })
    }

    /// Whether a line imports a module that is loaded together with this one.
    fn is_import(line: &str) -> bool {
        line.starts_with("import ")
    }

    /// Adds a module and those that it imports.
    fn add_with_imports(name: &str, seen: &mut BTreeSet<String>) {
        if seen.insert(name.to_owned()) {
            imports(name, is_import).for_each(|imported| add_with_imports(&imported, seen));
        }
    }

    /// Adds a module after all those that it imports, also while it runs; `open` are those that import
    /// it.
    fn add_after_imports(name: &str, open: &mut Vec<String>, done: &mut BTreeSet<String>) {
        assert!(!open.iter().any(|it| it == name), "a circle: {open:?}, and again {name}");
        if done.contains(name) {
            return;
        }
        open.push(name.to_owned());
        for imported in imports(name, |line| is_import(line) || line.contains("import(\"")) {
            add_after_imports(&imported, open, done);
        }
        done.extend(open.pop());
    }

    #[test]
    fn the_page_needs_every_module_and_no_module_needs_itself() {
        let mut needed = BTreeSet::new();
        add_after_imports("app.js", &mut Vec::new(), &mut needed);
        // The pages of documents have one of their own.
        add_after_imports("docs/docs.js", &mut Vec::new(), &mut needed);
        let names = FILES.iter().map(|file| file.name.to_owned());
        assert_eq!(needed, names.filter(|name| name.ends_with(".js")).collect());
    }

    #[test]
    fn modules_are_small_and_every_page_is_light() {
        // The documents and the index for their search are apart.
        let own = || SERVED.iter().filter(|it| !it.0.name.starts_with("docs/"));
        for file in FILES.iter().filter(|file| !file.name.ends_with(".json")) {
            let lines = file.bytes.split(|byte| *byte == b'\n').count() - 1;
            assert!(lines <= 300, "{} has {lines} lines", file.name);
        }
        let styles: usize =
            own().filter(|it| it.0.name.ends_with(".css")).map(|it| it.1.len()).sum();
        let all: usize = own().map(|it| it.1.len()).sum();
        assert!(all <= 365_000, "all code has {all} bytes");
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
