//! The files of the site: what the content security policy forbids. No browser.

use std::fs;
use std::path::{Path, PathBuf};

/// All files of the site that browsers get.
fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/site")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|it| it.to_str());
            if path.is_dir() {
                open.push(path);
            } else if matches!(extension, Some("js" | "css" | "html")) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn no_file_has_markup_or_code_in_texts() {
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.display();
        // What makes markup or code of text, and what keeps more than the token for the tab.
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
            "DOMParser",
            "createContextualFragment",
            "setHTML",
        ] {
            assert!(!text.contains(word), "{name}: {word}");
        }
        if file.extension().is_some_and(|it| it == "html") {
            for word in [" style=", "<style", " onclick", " onload", " onerror", "javascript:"] {
                assert!(!text.contains(word), "{name}: {word}");
            }
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, text.matches("<script type=\"module\" src=").count(), "{name}");
            for address in ["http://", "https://", "\"//"] {
                assert!(!text.contains(address), "{name}: {address}");
            }
        }
        if file.extension().is_some_and(|it| it == "css") {
            for word in ["@import", "url(http", "url(//", "expression("] {
                assert!(!text.contains(word), "{name}: {word}");
            }
        }
    }
}

/// Bytes of all JavaScript of the site before it showed what contracts hold.
const JAVASCRIPT_BEFORE: u64 = 374_519;
/// What the pages and forms of what contracts hold, and of what is watched, may add, in bytes.
const MOST_ADDED: u64 = 40_000;

/// Browsers load modules as they are written.
#[test]
fn what_contracts_hold_and_watching_add_little_javascript() {
    let modules = files().into_iter().filter(|file| file.extension().is_some_and(|it| it == "js"));
    let sizes = modules.map(|file| fs::metadata(file).unwrap().len());
    let added = sizes.sum::<u64>() - JAVASCRIPT_BEFORE;
    assert!(added <= MOST_ADDED, "{added} bytes");
}
