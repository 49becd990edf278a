//! What Cargo runs before it builds the package: lists the files of the site, converts the API's
//! description, and says how the released binary is linked.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    set_link_options();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("site.rs"), site_files()?)?;
    fs::write(out.join("openapi.json"), description()?)?;
    Ok(())
}

fn set_link_options() {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    // The tables of virtual functions of the C++ libraries are relocated at start. Packed (DT_RELR,
    // glibc 2.36), their list takes a few dozen kilobytes instead of 5 MB. Rust links with LLD on
    // x86-64, which knows this option; GNU ld on other machines may not.
    if is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Directory of the site.
const SITE: &str = "src/site";

/// Returns the list in `src/site/files.rs`: all files of the site's directory that browsers load, by
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

/// Returns the description of the API as JSON.
fn description() -> Result<Vec<u8>, Box<dyn Error>> {
    const YAML: &str = "schema/openapi.yaml";
    println!("cargo::rerun-if-changed={YAML}");
    let description: serde_yaml_ng::Value = serde_yaml_ng::from_str(&fs::read_to_string(YAML)?)?;
    Ok(serde_json::to_vec(&description)?)
}
