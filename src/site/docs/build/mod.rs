//! Renders the documents of `docs` and the reference of the HTTP interface to HTML, and makes the
//! index in which browsers search them.

mod page;
mod paths;
mod reference;

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use page::Page;
use paths::{DOCS, path_of};

/// The description of the HTTP interface.
const DESCRIPTION: &str = "../../schema/openapi.yaml";

/// Writes the pages, their list, and the search index. Returns the path of the index.
pub fn write(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={DOCS}");
    println!("cargo::rerun-if-changed={DESCRIPTION}");
    let mut pages = Vec::new();
    for file in files()? {
        let text = fs::read_to_string(Path::new(DOCS).join(&file))?;
        pages.push(Page::of_markdown(path_of(&file), &file, &text)?);
    }
    let description = serde_yaml_ng::from_str(&fs::read_to_string(DESCRIPTION)?)?;
    pages.extend(reference::pages(&description)?);
    let mut list = String::from("&[\n");
    for Page { path, title, html, .. } in &pages {
        writeln!(list, "Document {{ path: {path:?}, title: {title:?}, html: {html:?} }},")?;
    }
    fs::write(out.join("docs.rs"), list + "]")?;
    let index = out.join("search.json");
    let places: Vec<_> = pages.iter().flat_map(Page::places).collect();
    fs::write(&index, serde_json::to_vec(&places)?)?;
    Ok(env::current_dir()?.join(index))
}

/// Returns all documents, as paths below `docs`.
fn files() -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    for folder in ["", "architecture/"] {
        for entry in fs::read_dir(Path::new(DOCS).join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                found.push(format!("{folder}{name}"));
            }
        }
    }
    found.sort();
    Ok(found)
}
