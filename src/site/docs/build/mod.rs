//! Renders the documents of `docs` and the reference of the HTTP interface to HTML, and makes the
//! index in which browsers search them.

mod page;
mod reference;

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use page::Page;

/// Directory of the documents, and the description of the HTTP interface.
const DOCS: &str = "../../docs";
const DESCRIPTION: &str = "../../schema/openapi.yaml";

/// Path of the reference below `/docs`.
const REFERENCE: &str = "api";

/// Files of `docs` whose pages have another path than their name. The index is the first page; the
/// guide leaves the short path to the reference.
const OTHER_PATHS: [(&str, &str); 2] = [("README", ""), ("api", "http")];

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
    pages.push(reference::page(REFERENCE, &description)?);
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

/// Returns the path of a document's page below `/docs`.
fn path_of(file: &str) -> String {
    let name = file.strip_suffix(".md").unwrap_or(file);
    let other = OTHER_PATHS.iter().find(|(it, _)| *it == name);
    other.map_or(name, |(_, path)| path).to_owned()
}

/// Returns the address of the page that a relative link of the document `from` leads to, to be seen
/// from the first page of the site; `None` when the file is not part of the binary.
fn address(from: &str, link: &str) -> Option<String> {
    let (file, part) = link.split_once('#').map_or((link, None), |(file, part)| (file, Some(part)));
    let mut segments: Vec<&str> = from.split('/').collect();
    segments.pop();
    segments.insert(0, "docs");
    for segment in file.split('/') {
        match segment {
            ".." => drop(segments.pop()),
            name => segments.push(name),
        }
    }
    let target = segments.join("/");
    let path = match target.as_str() {
        "schema/openapi.yaml" => REFERENCE.to_owned(),
        file => {
            let document = file.strip_prefix("docs/").filter(|it| it.ends_with(".md"))?;
            Path::new(DOCS).join(document).exists().then(|| path_of(document))?
        }
    };
    let page = if path.is_empty() { "docs".to_owned() } else { format!("docs/{path}") };
    Some(part.map_or(page.clone(), |part| format!("{page}#{part}")))
}
