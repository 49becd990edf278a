//! The reference of the HTTP interface: the OpenAPI description as pages. The first lists all routes
//! and records, and has what holds of all of them; there is one for each tag, with the parameters, the
//! body, the responses and an example of each route, and one of the records.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

use serde_yaml_ng::{Mapping, Value};

use super::page::{Ids, Page, Section, escaped, html};
use super::paths::REFERENCE;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// Base address of the routes, and the service that examples ask.
const BASE: &str = "/rest";
const SERVICE: &str = "http://127.0.0.1:8484";
/// How deep an example of a record goes.
const DEEPEST: usize = 5;
/// Prefixes of the ids of records, and of failures that many routes have.
const RECORD: &str = "record-";
const ERROR: &str = "error-";
/// Title of the first page, and the beginning of the others' titles.
const TITLE: &str = "API reference";
/// Last part of the path, and the heading, of the page of records.
const RECORDS: (&str, &str) = ("records", "Records");

/// The page that is being written.
struct Reference<'a> {
    root: &'a Value,
    html: String,
    sections: Vec<Section>,
}

/// A route of a tag.
struct Operation<'a> {
    method: &'static str,
    path: &'a str,
    said: &'a Value,
    /// Parameters of all methods of the path.
    shared: &'a Value,
}

impl Operation<'_> {
    fn title(&self) -> String {
        format!("{} {BASE}{}", self.method.to_uppercase(), self.path)
    }

    /// Returns the title as HTML.
    fn shown(&self) -> String {
        let (method, path) = (self.method.to_uppercase(), escaped(self.path));
        format!("<span class=\"method\">{method}</span> <code>{BASE}{path}</code>")
    }
}

/// Renders the description.
pub fn pages(root: &Value) -> Result<Vec<Page>, Box<dyn Error>> {
    let mut page = Reference { root, html: String::new(), sections: Vec::new() };
    page.first()?;
    let mut pages = vec![page.ended(REFERENCE.to_owned(), TITLE)];
    for tag in tags(root) {
        let name = text(&tag["name"]);
        let title = page.begin(name)?;
        page.text(text(&tag["description"]))?;
        for operation in operations(root, name) {
            page.operation(&operation)?;
        }
        pages.push(page.ended(page_of(name), &title));
    }
    let title = page.begin(RECORDS.1)?;
    for (name, schema) in records(root) {
        page.record(name, schema)?;
    }
    pages.push(page.ended(page_of(RECORDS.0), &title));
    Ok(pages)
}

fn tags(root: &Value) -> impl Iterator<Item = &Value> {
    root["tags"].as_sequence().into_iter().flatten()
}

/// Returns all records, by name.
fn records(root: &Value) -> BTreeMap<&str, &Value> {
    mapping(&root["components"]["schemas"]).iter().map(|(name, of)| (text(name), of)).collect()
}

/// Returns all routes of a tag.
fn operations<'a>(root: &'a Value, tag: &str) -> Vec<Operation<'a>> {
    let mut found = Vec::new();
    for (path, item) in mapping(&root["paths"]) {
        for method in METHODS {
            let tags = item[method]["tags"].as_sequence();
            if tags.into_iter().flatten().any(|it| it.as_str() == Some(tag)) {
                let (path, said, shared) = (text(path), &item[method], &item["parameters"]);
                found.push(Operation { method, path, said, shared });
            }
        }
    }
    found
}

/// Returns the path of the page of a tag, or of the records, below `/docs`.
fn page_of(name: &str) -> String {
    format!("{REFERENCE}/{}", id(name))
}

/// Returns the id of a heading.
fn id(title: &str) -> String {
    Ids::default().id(title)
}

/// Returns an item of a list of the first page. It has the id of the heading that it leads to, so that
/// links to the first page find it.
fn item(id: &str, page: &str, shown: &str, told: &str) -> String {
    format!("<li id=\"{id}\"><a href=\"{{up}}docs/{page}#{id}\">{shown}</a>{told}</li>\n")
}

impl Reference<'_> {
    /// Begins a page other than the first. Returns its title.
    fn begin(&mut self, name: &str) -> Result<String, Box<dyn Error>> {
        let title = format!("{TITLE}: {name}");
        writeln!(
            self.html,
            "<p class=\"note\"><a href=\"{{up}}docs/{REFERENCE}\">{TITLE}</a></p>"
        )?;
        self.heading(1, id(&title), &title, &escaped(name));
        Ok(title)
    }

    /// Ends the page.
    fn ended(&mut self, path: String, title: &str) -> Page {
        Page::new(path, title, std::mem::take(&mut self.html), std::mem::take(&mut self.sections))
    }

    /// Writes the first page.
    fn first(&mut self) -> Result<(), Box<dyn Error>> {
        self.heading(1, id(TITLE), TITLE, TITLE);
        self.html += "<p>What holds of all routes (tokens, pages of lists, costs, limits) is below: \
            <a href=\"#in-general\">in general</a>, <a href=\"#errors\">errors</a>. The same as a \
            description for programs (OpenAPI 3.1): \
            <a href=\"{up}rest/openapi.json\"><code>/rest/openapi.json</code></a>.</p>\n";
        for tag in tags(self.root) {
            self.list_of_routes(tag)?;
        }
        self.heading(2, id("In general"), "In general", "In general");
        self.text(text(&self.root["info"]["description"]))?;
        self.heading(2, id("Errors"), "Errors", "Errors");
        self.errors()?;
        let (name, shown) = RECORDS;
        self.list_heading(name, shown, &page_of(name))?;
        self.html += "<ul class=\"names\">\n";
        for (record, _) in records(self.root) {
            let shown = format!("<code>{}</code>", escaped(record));
            self.html += &item(&record_id(record), &page_of(name), &shown, "");
        }
        self.html += "</ul>\n";
        Ok(())
    }

    /// Lists the routes of a tag, with what each does.
    fn list_of_routes(&mut self, tag: &Value) -> Result<(), Box<dyn Error>> {
        let name = text(&tag["name"]);
        self.list_heading(&id(name), name, &page_of(name))?;
        self.html += &html(text(&tag["description"]))?;
        self.html += "\n<ul class=\"routes\">\n";
        for operation in operations(self.root, name) {
            let told = html(text(&operation.said["summary"]))?;
            let page = page_of(name);
            self.html += &item(&id(&operation.title()), &page, &operation.shown(), &told);
        }
        self.html += "</ul>\n";
        Ok(())
    }

    /// Adds the heading of a list, which leads to the page that is listed. The search finds that page.
    fn list_heading(&mut self, id: &str, name: &str, page: &str) -> Result<(), Box<dyn Error>> {
        writeln!(
            self.html,
            "<h2 id=\"{id}\"><a href=\"{{up}}docs/{page}\">{}</a></h2>",
            escaped(name)
        )?;
        Ok(())
    }

    /// Adds a heading, of which `shown` is the HTML.
    fn heading(&mut self, depth: u8, id: String, title: &str, shown: &str) {
        self.html += &format!("<h{depth} id=\"{id}\">{shown}</h{depth}>\n");
        self.sections.push(Section { id, title: title.to_owned(), depth, text: String::new() });
    }

    /// Adds text in Markdown.
    fn text(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        self.html += &html(text)?;
        self.html.push('\n');
        if let Some(section) = self.sections.last_mut() {
            section.text += text;
            section.text.push(' ');
        }
        Ok(())
    }

    /// Follows a reference within the description.
    fn resolved<'v>(&'v self, value: &'v Value) -> &'v Value {
        let Some(reference) = value["$ref"].as_str() else { return value };
        let steps = reference.trim_start_matches("#/").split('/');
        steps.fold(self.root, |value, name| &value[name])
    }

    fn operation(&mut self, operation: &Operation<'_>) -> Result<(), Box<dyn Error>> {
        let Operation { method, path, said, shared } = operation;
        let title = operation.title();
        self.heading(2, id(&title), &title, &operation.shown());
        self.text(text(&said["summary"]))?;
        self.text(text(&said["description"]))?;
        let is_public = said["security"].as_sequence().is_some_and(Vec::is_empty);
        self.text(match (is_public, said["x-public-read"].as_bool()) {
            (true, _) => "*No token needed.*",
            (false, Some(true)) => "*Needs a token, except where `http.public_read` is set.*",
            (false, _) => "*Needs a token.*",
        })?;
        let parameters: Vec<Value> = [shared, &said["parameters"]]
            .into_iter()
            .flat_map(|list| list.as_sequence().into_iter().flatten())
            .map(|parameter| self.resolved(parameter).clone())
            .collect();
        self.parameters(&parameters)?;
        let body = self.resolved(&said["requestBody"]).clone();
        self.contents("Body", &body)?;
        self.example(&method.to_uppercase(), path, is_public, &parameters, &body);
        self.responses(&said["responses"])
    }

    fn parameters(&mut self, parameters: &[Value]) -> Result<(), Box<dyn Error>> {
        if parameters.is_empty() {
            return Ok(());
        }
        self.begin_table(["Parameter", "Type", "Meaning"]);
        for parameter in parameters {
            let name = text(&parameter["name"]);
            let place = match (text(&parameter["in"]), parameter["required"].as_bool()) {
                ("path", _) => "in the path",
                ("header", _) => "a header",
                (_, Some(true)) => "required",
                _ => "",
            };
            let kind = self.kind(&parameter["schema"]);
            let told = html(text(&parameter["description"]))?;
            writeln!(
                self.html,
                "<tr><td><code>{}</code> <span class=\"note\">{place}</span></td><td>{kind}</td><td>{told}</td></tr>",
                escaped(name)
            )?;
            self.searched(name);
        }
        self.html += "</tbody></table>\n";
        Ok(())
    }

    /// Adds text to what the search of the last section looks at.
    fn searched(&mut self, text: &str) {
        if let Some(section) = self.sections.last_mut() {
            section.text += text;
            section.text.push(' ');
        }
    }

    /// Adds the contents of a body.
    fn contents(&mut self, title: &str, body: &Value) -> Result<(), Box<dyn Error>> {
        let contents = mapping(&body["content"]).clone();
        if contents.is_empty() {
            return Ok(());
        }
        let told = text(&body["description"]);
        self.text(&format!("**{title}**{}{told}", if told.is_empty() { "" } else { ": " }))?;
        for (media, content) in contents {
            let kind = self.kind(&content["schema"]);
            writeln!(self.html, "<p><code>{}</code> {kind}</p>", escaped(text(&media)))?;
        }
        Ok(())
    }

    /// Adds a command that calls the route.
    fn example(
        &mut self,
        method: &str,
        path: &str,
        is_public: bool,
        parameters: &[Value],
        body: &Value,
    ) {
        let mut command = String::from("curl -s");
        if method != "GET" {
            command += &format!(" -X {method}");
        }
        if !is_public {
            command += " -H \"Authorization: Bearer $ORRERY_JWT\"";
        }
        let json = &body["content"]["application/json"]["schema"];
        if !json.is_null() {
            let sample = compact(&self.sample(json, 0));
            command += &format!(" \\\n  -H 'Content-Type: application/json' -d '{sample}'");
        }
        let is_needed = |it: &&Value| {
            it["in"].as_str() == Some("query") && it["required"].as_bool() == Some(true)
        };
        let query =
            parameters.iter().filter(is_needed).map(|it| format!("{}=…", text(&it["name"])));
        let query = query.collect::<Vec<_>>().join("&");
        let mark = if query.is_empty() { "" } else { "?" };
        command += &format!(" \\\n  '{SERVICE}{BASE}{path}{mark}{query}'");
        self.html += &format!("<pre><code>{}</code></pre>\n", escaped(&command));
    }

    /// Adds the responses of a route. Failures that many routes have are described once.
    fn responses(&mut self, responses: &Value) -> Result<(), Box<dyn Error>> {
        self.begin_table(["Status", "Meaning", "Record"]);
        let (mut shared, mut shape) = (Vec::new(), None);
        for (status, response) in mapping(responses).clone() {
            let status = status.as_str().map_or_else(|| compact(&status), str::to_owned);
            if let Some(name) = shared_response(&response) {
                if status != "default" {
                    shared.push(format!(
                        "<a href=\"{{up}}docs/{REFERENCE}#{}\">{status}</a>",
                        error_id(name)
                    ));
                }
                continue;
            }
            self.response(&status, &response)?;
            if status.starts_with('2') && shape.is_none() {
                shape = self.shape(&response["content"]["application/json"]);
            }
        }
        self.html += "</tbody></table>\n";
        if !shared.is_empty() {
            writeln!(
                self.html,
                "<p>Also {}, as described in <a href=\"{{up}}docs/{REFERENCE}#errors\">errors</a>.</p>",
                shared.join(", ")
            )?;
        }
        if let Some(shape) = shape {
            let shape = escaped(&serde_json::to_string_pretty(&shape)?);
            writeln!(
                self.html,
                "<details><summary>Shape of the answer</summary>\n<pre><code>{shape}</code></pre></details>"
            )?;
        }
        Ok(())
    }

    fn begin_table(&mut self, columns: [&str; 3]) {
        let columns = columns.map(|column| format!("<th>{column}</th>")).concat();
        self.html += &format!("<table>\n<thead><tr>{columns}</tr></thead>\n<tbody>\n");
    }

    /// Adds the row of a response.
    fn response(&mut self, status: &str, response: &Value) -> Result<(), Box<dyn Error>> {
        let told = html(text(&response["description"]))?;
        let contents = mapping(&response["content"]).iter();
        let kinds: Vec<_> = contents.map(|(_, content)| self.kind(&content["schema"])).collect();
        let kinds = kinds.join(", ");
        writeln!(
            self.html,
            "<tr><td>{}</td><td>{told}</td><td>{kinds}</td></tr>",
            escaped(status)
        )?;
        Ok(())
    }

    /// Returns the given example of a response, or one of its type.
    fn shape(&self, content: &Value) -> Option<Value> {
        let shape = match &content["example"] {
            Value::Null => self.sample(&content["schema"], 0),
            given => given.clone(),
        };
        Some(shape).filter(|it| !it.is_null())
    }

    /// Adds the failures that many routes have.
    fn errors(&mut self) -> Result<(), Box<dyn Error>> {
        for (name, response) in mapping(&self.root["components"]["responses"]).clone() {
            let name = text(&name);
            self.heading(3, error_id(name), name, &escaped(name));
            self.text(text(&response["description"]))?;
        }
        Ok(())
    }

    /// Adds a record with its members.
    fn record(&mut self, name: &str, schema: &Value) -> Result<(), Box<dyn Error>> {
        self.heading(2, record_id(name), name, &escaped(name));
        self.text(text(&schema["description"]))?;
        let members = mapping(&schema["properties"]).clone();
        if members.is_empty() {
            let kind = self.kind_of(schema);
            writeln!(self.html, "<p>{kind}</p>")?;
            return Ok(());
        }
        let required: Vec<_> = schema["required"].as_sequence().into_iter().flatten().collect();
        self.begin_table(["Member", "Type", "Meaning"]);
        for (member, of) in members {
            let (kind, told) = (self.kind(&of), html(text(&of["description"]))?);
            let may_lack = if required.contains(&&member) { "" } else { "may be absent" };
            writeln!(
                self.html,
                "<tr><td><code>{}</code> <span class=\"note\">{may_lack}</span></td><td>{kind}</td><td>{told}</td></tr>",
                escaped(text(&member))
            )?;
            self.searched(text(&member));
        }
        self.html += "</tbody></table>\n";
        Ok(())
    }

    /// Returns the type of a value as HTML; a record is a link to it.
    fn kind(&self, schema: &Value) -> String {
        match schema["$ref"].as_str().and_then(|it| it.strip_prefix("#/components/schemas/")) {
            Some(name) => {
                let (page, id) = (page_of(RECORDS.0), record_id(name));
                format!("<a href=\"{{up}}docs/{page}#{id}\">{}</a>", escaped(name))
            }
            None => self.kind_of(schema),
        }
    }

    fn kind_of(&self, schema: &Value) -> String {
        if let Some(value) = schema.get("const") {
            return format!("<code>{}</code>", escaped(&compact(value)));
        }
        for (name, between) in
            [("enum", " | "), ("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")]
        {
            if let Some(several) = schema[name].as_sequence() {
                let kinds = several.iter().map(|it| match name {
                    "enum" => format!("<code>{}</code>", escaped(&compact(it))),
                    _ => self.kind(it),
                });
                return kinds.collect::<Vec<_>>().join(between);
            }
        }
        let names: Vec<_> = match &schema["type"] {
            Value::Sequence(several) => several.iter().map(text).collect(),
            one => vec![text(one)],
        };
        let kinds = names.iter().map(|name| match *name {
            "array" => format!("array of {}", self.kind(&schema["items"])),
            "" => "any".to_owned(),
            name => name.to_owned(),
        });
        kinds.collect::<Vec<_>>().join(" or ")
    }

    /// Returns an example of a value with this type.
    fn sample(&self, schema: &Value, depth: usize) -> Value {
        let schema = self.resolved(schema);
        for given in [
            &schema["example"],
            &schema["examples"][0],
            &schema["const"],
            &schema["default"],
            &schema["enum"][0],
        ] {
            if !given.is_null() {
                return given.clone();
            }
        }
        for name in ["oneOf", "anyOf", "allOf"] {
            if let Some(first) = schema[name].as_sequence().and_then(|it| it.first()) {
                return self.sample(first, depth);
            }
        }
        let members = mapping(&schema["properties"]);
        let kind = match &schema["type"] {
            Value::Sequence(several) => several.first().map_or("", text),
            one => text(one),
        };
        match kind {
            _ if !members.is_empty() && depth < DEEPEST => {
                let samples =
                    members.iter().map(|(name, of)| (name.clone(), self.sample(of, depth + 1)));
                Value::Mapping(samples.collect())
            }
            "array" if depth < DEEPEST => {
                Value::Sequence(vec![self.sample(&schema["items"], depth + 1)])
            }
            "array" => Value::Sequence(Vec::new()),
            "object" => Value::Mapping(Mapping::new()),
            "string" => Value::from("…"),
            "integer" | "number" => {
                schema.get("minimum").cloned().unwrap_or_else(|| Value::from(1))
            }
            "boolean" => Value::from(true),
            _ => Value::Null,
        }
    }
}

fn record_id(name: &str) -> String {
    format!("{RECORD}{}", name.to_lowercase())
}

fn error_id(name: &str) -> String {
    format!("{ERROR}{}", name.to_lowercase())
}

/// Returns the name of a response that several routes have.
fn shared_response(response: &Value) -> Option<&str> {
    response["$ref"].as_str()?.strip_prefix("#/components/responses/")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn compact(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns a mapping; an empty one for anything else.
fn mapping(value: &Value) -> &Mapping {
    static NONE: std::sync::LazyLock<Mapping> = std::sync::LazyLock::new(Mapping::new);
    value.as_mapping().unwrap_or(&NONE)
}
