//! A document as a page: its HTML, with headings that can be linked to and links that work on the
//! site, and the places that its search finds.

use std::collections::HashMap;
use std::error::Error;

use markdown::mdast::Node;
use markdown::{CompileOptions, Options, ParseOptions, to_html_with_options, to_mdast};
use serde_json::{Value, json};

use super::paths::address;

/// Most letters of a section that its search looks at.
const SEARCHED: usize = 4000;
/// Sections from which on a page begins with a list of them.
const LISTED: usize = 4;
/// Letters of titles up to which a list has narrow columns.
const NARROW: usize = 24;

/// A page of the documents.
pub struct Page {
    /// Path below `/docs`.
    pub path: String,
    pub title: String,
    pub html: String,
    sections: Vec<Section>,
}

/// A heading with the text below it.
pub struct Section {
    pub id: String,
    pub title: String,
    pub depth: u8,
    pub text: String,
}

impl Page {
    /// Renders the document `file`, a path below `docs`.
    pub fn of_markdown(path: String, file: &str, text: &str) -> Result<Self, Box<dyn Error>> {
        let sections = sections(text)?;
        let title = sections.first().ok_or_else(|| format!("docs/{file} has no heading"))?;
        let title = title.title.clone();
        let html = with_links(&with_ids(&html(text)?, &sections), file);
        let html = with_scrolled_tables(&html);
        // The first page is itself a list.
        let html = if path.is_empty() { html } else { with_contents(&html, &sections) };
        Ok(Self { path, title, html, sections })
    }

    /// Makes a page of HTML.
    pub fn new(path: String, title: &str, html: String, sections: Vec<Section>) -> Self {
        let html = with_contents(&with_scrolled_tables(&html), &sections);
        Self { path, title: title.to_owned(), html, sections }
    }

    /// Returns what the search looks at: the address of each section, below `docs`, its titles and its
    /// text.
    pub fn places(&self) -> impl Iterator<Item = Value> {
        self.sections.iter().map(|section| {
            let address = match section.depth {
                1 => self.path.clone(),
                _ => format!("{}#{}", self.path, section.id),
            };
            let text: String = section.text.chars().take(SEARCHED).collect();
            json!([address, self.title, section.title, text])
        })
    }
}

/// Renders Markdown. Documents may contain HTML: they are part of the source.
pub fn html(text: &str) -> Result<String, Box<dyn Error>> {
    let compile = CompileOptions { allow_dangerous_html: true, ..CompileOptions::gfm() };
    let options = Options { parse: ParseOptions::gfm(), compile };
    to_html_with_options(text, &options).map_err(|error| error.to_string().into())
}

/// Returns the sections of a document.
fn sections(text: &str) -> Result<Vec<Section>, Box<dyn Error>> {
    let tree = to_mdast(text, &ParseOptions::gfm()).map_err(|error| error.to_string())?;
    let mut sections: Vec<Section> = Vec::new();
    let mut ids = Ids::default();
    for node in tree.children().into_iter().flatten() {
        if let Node::Heading(heading) = node {
            let title = node.to_string();
            let id = ids.id(&title);
            sections.push(Section { id, title, depth: heading.depth, text: String::new() });
        } else if let Some(section) = sections.last_mut() {
            append_text(node, &mut section.text);
        }
    }
    Ok(sections)
}

/// Appends the text of a node, with blanks between its parts.
fn append_text(node: &Node, text: &mut String) {
    match node {
        Node::Text(it) => text.push_str(&it.value),
        Node::InlineCode(it) => text.push_str(&it.value),
        Node::Code(it) => text.push_str(&it.value),
        _ => {
            for child in node.children().into_iter().flatten() {
                append_text(child, text);
            }
        }
    }
    if matches!(node, Node::Paragraph(_) | Node::Code(_) | Node::TableCell(_) | Node::ListItem(_)) {
        text.push(' ');
    }
}

/// Makes the ids of headings as GitHub does, so that links work there, too.
#[derive(Default)]
pub struct Ids(HashMap<String, u32>);

impl Ids {
    pub fn id(&mut self, title: &str) -> String {
        let plain = title.to_lowercase().replace(' ', "-");
        let id: String =
            plain.chars().filter(|it| it.is_alphanumeric() || matches!(it, '-' | '_')).collect();
        let uses = self.0.entry(id.clone()).or_default();
        *uses += 1;
        if *uses == 1 { id } else { format!("{id}-{}", *uses - 1) }
    }
}

/// Gives the headings of a rendered document their ids. Text that looks like a heading is escaped, so
/// only headings begin like one.
fn with_ids(html: &str, sections: &[Section]) -> String {
    let (mut out, mut rest) = (String::new(), html);
    for Section { id, depth, .. } in sections {
        let begin = format!("<h{depth}>");
        if let Some((before, after)) = rest.split_once(&begin) {
            out.push_str(before);
            out.push_str(&format!("<h{depth} id=\"{id}\">"));
            rest = after;
        }
    }
    out + rest
}

/// Makes links lead to pages of the site. What is not part of the binary is named, and not linked to.
fn with_links(html: &str, file: &str) -> String {
    const BEGIN: &str = "<a href=\"";
    const END: &str = "</a>";
    let (mut out, mut rest) = (String::new(), html);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        out.push_str(before);
        let (link, content) = after.split_once("\">").unwrap_or((after, ""));
        let (content, after) = content.split_once(END).unwrap_or((content, ""));
        let is_absolute = link.starts_with('#') || link.contains("://");
        match if is_absolute { Some(link.to_owned()) } else { address(file, link) } {
            Some(link) if is_absolute => out += &format!("{BEGIN}{link}\">{content}{END}"),
            Some(link) => out += &format!("{BEGIN}{{up}}{link}\">{content}{END}"),
            None => out.push_str(content),
        }
        rest = after;
    }
    out + rest
}

/// Lets wide tables scroll by themselves, with the keyboard, too. Each has a name of its own, and a head
/// without text is a cell. They are no regions, of which a long page would have a hundred.
fn with_scrolled_tables(html: &str) -> String {
    let html = html.replace("<th></th>", "<td></td>").replace("</table>", "</table></div>");
    let mut parts = html.split("<table>");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (part, number) in parts.zip(1..) {
        out += &format!(
            "<div class=\"wide-table\" tabindex=\"0\" role=\"group\" aria-label=\"Table {number}\"><table>{part}"
        );
    }
    out
}

/// Puts a list of the sections below the title of a long page.
fn with_contents(html: &str, sections: &[Section]) -> String {
    let listed: Vec<_> = sections.iter().filter(|section| section.depth == 2).collect();
    let Some((title, rest)) = html.split_once("</h1>").filter(|_| listed.len() >= LISTED) else {
        return html.to_owned();
    };
    let items = listed.iter().map(|Section { id, title, .. }| {
        format!("<li><a href=\"#{id}\">{}</a></li>\n", escaped(title))
    });
    let items: String = items.collect();
    let is_short = listed.iter().all(|section| section.title.chars().count() <= NARROW);
    let class = if is_short { "contents short" } else { "contents" };
    format!(
        "{title}</h1>\n<nav class=\"{class}\" aria-label=\"On this page\"><ul>\n{items}</ul></nav>{rest}"
    )
}

/// Escapes text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
