//! The documents of `docs` and the reference of the HTTP interface, below `/docs`. The build renders
//! them, so a page is its frame with the rendered text.

use super::{BUILD, UP, files, health::escaped, way_up, with_links};

/// A rendered document.
struct Document {
    /// Path below `/docs`.
    path: &'static str,
    title: &'static str,
    /// Its HTML, with [`UP`] in the addresses of links.
    html: &'static str,
}

/// All documents. The build script writes the list.
const DOCUMENTS: &[Document] = include!(concat!(env!("OUT_DIR"), "/docs.rs"));

/// The frame of every document, with placeholders.
const FRAME: &str = include_str!("page.html");
const TITLE: &str = "<!-- title -->";
const CONTENT: &str = "<!-- content -->";
const VALUES: &str = "<!-- values -->";

/// Values that the examples need, shown to who tries the service on the same machine.
#[derive(Debug, Clone, Copy)]
pub struct ExampleValues<'a> {
    /// Base address of the HTTP interface.
    pub base: &'a str,
    /// Token with which requests are authorised.
    pub token: &'a str,
}

/// Returns the document (HTML) of the page at this path, `/docs` or one below it; `None` if there is
/// none. With `values`, it begins with commands that fill in what the examples need.
pub fn documentation(path: &str, values: Option<ExampleValues<'_>>) -> Option<String> {
    let name = path.trim_matches('/').strip_prefix("docs")?.trim_start_matches('/');
    let Document { title, html, .. } = DOCUMENTS.iter().find(|document| document.path == name)?;
    let page = with_links(FRAME)
        .replace(BUILD, files::build())
        .replacen(TITLE, &escaped(title), 1)
        .replacen(CONTENT, html, 1)
        .replace(UP, &way_up(path));
    Some(page.replacen(VALUES, &values.map(shown).unwrap_or_default(), 1))
}

fn shown(ExampleValues { base, token }: ExampleValues<'_>) -> String {
    let (base, token) = (escaped(base), escaped(token));
    format!(
        "<details class=\"values\">\n<summary>Address and token of this demo, for the examples</summary>\n\
         <p>Only this machine sees these lines. Instead of issuing a token, paste them into a terminal:</p>\n\
         <pre><code>export ORRERY_BASE={base}\nexport ORRERY_JWT={token}\nTOKEN=$ORRERY_JWT</code></pre>\n</details>\n"
    )
}

/// Returns the paths of all documents.
#[cfg(test)]
fn paths() -> impl Iterator<Item = String> {
    let full = |document: &Document| format!("/docs/{}", document.path);
    DOCUMENTS.iter().map(move |it| full(it).trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Values of an attribute.
    fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
        let begin = format!(" {name}=\"");
        html.split(&begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    /// The path of a link, as seen from a page at `from`, and the part of the page.
    fn resolved(from: &str, link: &str) -> (String, String) {
        let (path, part) = link.split_once('#').unwrap_or((link, ""));
        if path.is_empty() {
            return (from.to_owned(), part.to_owned());
        }
        let mut segments: Vec<&str> = from.split('/').collect();
        segments.pop();
        for segment in path.split('/') {
            match segment {
                "." | "" => {}
                ".." => drop(segments.pop()),
                name => segments.push(name),
            }
        }
        (segments.join("/"), part.to_owned())
    }

    #[test]
    fn all_links_of_documents_lead_somewhere() {
        let pages: BTreeMap<String, String> =
            paths().map(|path| (path.clone(), documentation(&path, None).unwrap())).collect();
        assert!(pages.len() > 25, "{:?}", pages.keys());
        let ids: BTreeMap<_, BTreeSet<_>> = pages
            .iter()
            .map(|(path, html)| (path, attributes(html, "id").into_iter().collect()))
            .collect();
        let others = ["/docs", "/rest/openapi.json", "/rest/health", "/rest/completeness", ""];
        let mut followed = 0;
        for (path, html) in &pages {
            assert_eq!(ids[path].len(), attributes(html, "id").len(), "{path}: an id twice");
            for link in attributes(html, "href") {
                if link.contains("://") || link == "data:," {
                    continue;
                }
                let (to, part) = resolved(path, link);
                let is_site = crate::PAGES.contains(&to.as_str()) || to.starts_with("/site/");
                let known = pages.contains_key(&to) || is_site || others.contains(&to.as_str());
                assert!(known, "{path}: {link} leads nowhere ({to})");
                let has_part = part.is_empty() || ids[&to].contains(part.as_str());
                assert!(has_part, "{path}: {link} names no heading");
                followed += 1;
            }
        }
        assert!(followed > 400, "{followed}");
    }

    #[test]
    fn documents_have_no_code_and_one_title() {
        for path in paths() {
            let html = documentation(&path, None).unwrap();
            assert_eq!(html.matches("<h1").count(), 1, "{path}");
            let scripts = html.matches("<script").count();
            assert_eq!(scripts, html.matches("<script type=\"module\" src=").count(), "{path}");
            for inline in
                [" style=", "<style", " onclick=", "javascript:", "<iframe", UP, BUILD, VALUES]
            {
                assert!(!html.contains(inline), "{path}: {inline}");
            }
        }
        assert!(documentation("/docs/nothing", None).is_none());
        assert!(documentation("/docs/../secrets", None).is_none());
        assert!(documentation("/other", None).is_none());
    }

    #[test]
    fn values_for_the_examples_are_shown_only_when_given() {
        let values = ExampleValues { base: "http://127.0.0.1:1/rest", token: "a.<b>.c" };
        let with = documentation("/docs/api", Some(values)).unwrap();
        assert!(with.contains("export ORRERY_JWT=a.&lt;b&gt;.c"));
        assert!(!documentation("/docs/api", None).unwrap().contains("export ORRERY_JWT="));
    }

    /// Most bytes of a page.
    const LARGEST: usize = 150_000;

    #[test]
    fn the_reference_has_every_route_of_the_description() {
        let below = |path: &String| path.starts_with("/docs/api/");
        let pages: Vec<_> = paths().filter(below).collect();
        let htmls: Vec<_> = pages.iter().map(|path| documentation(path, None).unwrap()).collect();
        let yaml = include_str!("../../../schema/openapi.yaml");
        let routes = yaml.lines().filter_map(|line| line.strip_prefix("  /")?.strip_suffix(':'));
        let mut shown = 0;
        for path in routes {
            let heading = format!("</span> <code>/rest/{path}</code></h2>");
            assert_eq!(htmls.iter().filter(|html| html.contains(&heading)).count(), 1, "{path}");
            shown += 1;
        }
        assert!(shown > 40, "{shown}");
        // Links to the first page find what is on another one.
        let first = documentation("/docs/api", None).unwrap();
        let first: BTreeSet<_> = attributes(&first, "id").into_iter().collect();
        for html in &htmls {
            let body = html.split_once("<article>").unwrap().1;
            for id in body.split("<h2 id=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(first.contains(id), "{id}");
            }
        }
    }

    #[test]
    fn no_document_is_large() {
        for path in paths() {
            let size = documentation(&path, None).unwrap().len();
            assert!(size <= LARGEST, "{path}: {size} bytes");
        }
    }
}
