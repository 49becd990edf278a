//! Lists the files of the site, and renders the documents.

#[path = "docs/build/mod.rs"]
mod docs;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let index = docs::write(&out)?;
    fs::write(out.join("site.rs"), site_files(&index)?)?;
    Ok(())
}

/// Directory of the site.
const SITE: &str = ".";

/// Returns the list in `files.rs`: all files of the site's directory that browsers load, by
/// name, and the search index of the documents.
fn site_files(index: &Path) -> Result<String, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SITE}");
    let mut list = String::from("&[\n");
    for path in files_below(Path::new(SITE))? {
        let media_type = match path.extension().and_then(|it| it.to_str()) {
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            _ => continue,
        };
        list += &entry(path.strip_prefix(SITE)?, media_type, &env::current_dir()?.join(&path));
    }
    list += &entry(Path::new("docs/search.json"), "application/json", index);
    Ok(list + "]")
}

/// Returns the entry of one file.
fn entry(name: &Path, media_type: &str, bytes: &Path) -> String {
    format!(
        "File {{ name: {name:?}, media_type: {media_type:?}, bytes: include_bytes!({bytes:?}) }},\n"
    )
}

/// Returns the paths of all files below a directory.
fn files_below(directory: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_below(&path)?);
        } else {
            found.insert(path);
        }
    }
    Ok(found)
}
