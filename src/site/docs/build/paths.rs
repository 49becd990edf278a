//! Where documents are on the site, and where links between them lead.

use std::path::Path;

/// Directory of the documents.
pub const DOCS: &str = "../../docs";

/// Path of the reference below `/docs`.
pub const REFERENCE: &str = "api";

/// Files of `docs` whose pages have another path than their name. The index is the first page; the
/// guide leaves the short path to the reference.
const OTHER_PATHS: [(&str, &str); 2] = [("README", ""), ("api", "http")];

/// Returns the path of a document's page below `/docs`.
pub fn path_of(file: &str) -> String {
    let name = file.strip_suffix(".md").unwrap_or(file);
    let other = OTHER_PATHS.iter().find(|(it, _)| *it == name);
    other.map_or(name, |(_, path)| path).to_owned()
}

/// Returns the address of the page that a relative link of the document `from` leads to, to be seen
/// from the first page of the site; `None` when the file is not part of the binary.
pub fn address(from: &str, link: &str) -> Option<String> {
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
