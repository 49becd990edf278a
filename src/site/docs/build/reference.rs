//! The reference of the HTTP interface: the OpenAPI description as a page, by tag, with the
//! parameters, the body, the responses and an example of each route.

use std::error::Error;
use std::fmt::Write;

use serde_yaml_ng::{Mapping, Value};

use super::page::{Ids, Page, Section, escaped, html};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// Base address of the routes, and the service that examples ask.
const BASE: &str = "/rest";
const SERVICE: &str = "http://127.0.0.1:8484";
/// How deep an example of a record goes.
const DEEPEST: usize = 5;
/// Prefixes of the ids of records, and of failures that many routes have.
const RECORD: &str = "record-";
const ERROR: &str = "error-";

/// The page while it is written.
struct Reference<'a> {
    root: &'a Value,
    html: String,
    sections: Vec<Section>,
    ids: Ids,
}

/// Renders the description.
pub fn page(path: &str, root: &Value) -> Result<Page, Box<dyn Error>> {
    const TITLE: &str = "API reference";
    let mut page =
        Reference { root, html: String::new(), sections: Vec::new(), ids: Ids::default() };
    page.heading(1, TITLE, TITLE);
    page.text(
        "The same as a description for programs (OpenAPI 3.1): [`/rest/openapi.json`](openapi).",
    )?;
    // The only link to something that is no document.
    page.html = page.html.replace("\"openapi\"", "\"{up}rest/openapi.json\"");
    page.heading(2, "In general", "In general");
    page.text(text(&root["info"]["description"]))?;
    for tag in root["tags"].as_sequence().into_iter().flatten() {
        page.tag(tag)?;
    }
    page.heading(2, "Errors", "Errors");
    page.errors()?;
    page.heading(2, "Records", "Records");
    for (name, schema) in mapping(&root["components"]["schemas"]) {
        page.record(text(name), schema)?;
    }
    let Reference { html, sections, .. } = page;
    Ok(Page::new(path, TITLE, html, sections))
}

impl Reference<'_> {
    /// Adds a heading, of which `shown` is the HTML.
    fn heading(&mut self, depth: u8, title: &str, shown: &str) {
        let id = self.ids.id(title);
        self.heading_at(depth, id, title, shown);
    }

    fn heading_at(&mut self, depth: u8, id: String, title: &str, shown: &str) {
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

    /// Adds all routes of a tag.
    fn tag(&mut self, tag: &Value) -> Result<(), Box<dyn Error>> {
        let name = text(&tag["name"]);
        self.heading(2, name, &escaped(name));
        self.text(text(&tag["description"]))?;
        for (path, item) in mapping(&self.root["paths"]).clone() {
            for method in METHODS {
                let operation = &item[method];
                let tags = operation["tags"].as_sequence();
                if tags.into_iter().flatten().any(|it| it.as_str() == Some(name)) {
                    self.operation(method, text(&path), operation, &item["parameters"])?;
                }
            }
        }
        Ok(())
    }

    fn operation(
        &mut self,
        method: &str,
        path: &str,
        operation: &Value,
        shared: &Value,
    ) -> Result<(), Box<dyn Error>> {
        let method = method.to_uppercase();
        let title = format!("{method} {BASE}{path}");
        let shown =
            format!("<span class=\"method\">{method}</span> <code>{BASE}{}</code>", escaped(path));
        self.heading(3, &title, &shown);
        self.text(text(&operation["summary"]))?;
        self.text(text(&operation["description"]))?;
        let is_public = operation["security"].as_sequence().is_some_and(Vec::is_empty);
        self.text(match (is_public, operation["x-public-read"].as_bool()) {
            (true, _) => "*No token needed.*",
            (false, Some(true)) => "*Needs a token, except where `http.public_read` is set.*",
            (false, _) => "*Needs a token.*",
        })?;
        let parameters: Vec<Value> = [shared, &operation["parameters"]]
            .into_iter()
            .flat_map(|list| list.as_sequence().into_iter().flatten())
            .map(|parameter| self.resolved(parameter).clone())
            .collect();
        self.parameters(&parameters)?;
        let body = self.resolved(&operation["requestBody"]).clone();
        self.contents("Body", &body)?;
        self.example(&method, path, is_public, &parameters, &body);
        self.responses(&operation["responses"])
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
                    shared
                        .push(format!("<a href=\"#{ERROR}{}\">{status}</a>", name.to_lowercase()));
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
                "<p>Also {}, as described in <a href=\"#errors\">errors</a>.</p>",
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
            self.heading_at(3, format!("{ERROR}{}", name.to_lowercase()), name, &escaped(name));
            self.text(text(&response["description"]))?;
        }
        Ok(())
    }

    /// Adds a record with its members.
    fn record(&mut self, name: &str, schema: &Value) -> Result<(), Box<dyn Error>> {
        self.heading_at(3, format!("{RECORD}{}", name.to_lowercase()), name, &escaped(name));
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
                format!("<a href=\"#{RECORD}{}\">{}</a>", name.to_lowercase(), escaped(name))
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
