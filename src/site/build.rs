//! Lists the files of the site.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("site.rs"), site_files()?)?;
    Ok(())
}

/// Directory of the site.
const SITE: &str = ".";

/// Returns the list in `files.rs`: all files of the site's directory that browsers load, by
/// name.
fn site_files() -> Result<String, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SITE}");
    let mut list = String::from("&[\n");
    for path in files_below(Path::new(SITE))? {
        let media_type = match path.extension().and_then(|it| it.to_str()) {
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            _ => continue,
        };
        let (name, bytes) = (path.strip_prefix(SITE)?, env::current_dir()?.join(&path));
        writeln!(
            list,
            "File {{ name: {name:?}, media_type: {media_type:?}, bytes: include_bytes!({bytes:?}) }},"
        )?;
    }
    Ok(list + "]")
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
