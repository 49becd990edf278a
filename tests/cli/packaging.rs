//! The shipped Grafana dashboard and Prometheus alert rules: a running service exports every metric
//! and label that they name, and docs/metrics.md lists exactly the exported metrics. The documents of a package lead
//! to what is in it, and nothing is packaged without its crates or released without an address.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use orrery_testkit::binary::Service;
use orrery_testkit::wait::wait_until;

const DASHBOARD: &str = include_str!("../../packaging/grafana/orrery.json");
const ALERTS: &str = include_str!("../../packaging/prometheus/alerts.yml");
const DOCUMENTED: &str = include_str!("../../docs/metrics.md");

/// Suffixes that Prometheus adds to the name of a histogram.
const OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_sum", "_count"];
/// Labels that Prometheus adds to every metric.
const ADDED: [&str; 2] = ["instance", "job"];

/// Label names by metric name.
type Metrics = BTreeMap<String, BTreeSet<String>>;

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Names of `orrery_` and `process_` metrics in an expression, with the labels in the braces that
/// follow each.
fn named(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("orrery_").into_iter().chain(rest.find("process_")).min() {
        rest = &rest[at..];
        let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        let name = rest[..end].to_owned();
        rest = &rest[end..];
        let labels = rest.strip_prefix('{').and_then(|it| it.split_once('}')).map_or("", |it| it.0);
        let labels = labels.split(',').filter(|it| !it.is_empty());
        let labels = labels.map(|it| it.chars().take_while(|it| is_name(*it)).collect()).collect();
        found.push((name, labels));
    }
    found
}

/// Parses the metrics that a service exports.
fn printed(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|it| it.split(' ').next()) {
            metrics.entry(name.to_owned()).or_default();
        } else if !line.starts_with('#') {
            for (name, labels) in named(line) {
                metrics.entry(name).or_default().extend(labels);
            }
        }
    }
    metrics
}

fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(text) if ["expr", "query"].contains(&name.as_str()) => {
                        found.push(text.to_owned());
                    }
                    _ => expressions(member, found),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|it| expressions(it, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_and_alerts_use_existing_metrics() {
    let directory = tempfile::tempdir().unwrap();
    // Metrics of a sink are there while its server is not.
    let sink = "[sinks.main]\nurl = \"postgres://nobody@127.0.0.1:1/none\"\nprojects = [\"*\"]\n";
    std::fs::write(directory.path().join("orrery.toml"), sink).unwrap();
    let (demo, _) = Service::demo(directory.path(), &["--config", "orrery.toml"]);
    // Some metrics appear only with the first measurement, request or refusal.
    let metrics = wait_until("all metrics are there", || {
        demo.health();
        let metrics = printed(&demo.metrics());
        let has_value = metrics.contains_key("orrery_http_request_seconds_bucket");
        let has_sink = metrics.contains_key("orrery_sink_failures_total");
        (has_value && has_sink && metrics.len() > 30).then_some(metrics)
    });

    let alerts: serde_yaml_ng::Value = serde_yaml_ng::from_str(ALERTS).unwrap();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for (file, value) in
        [("dashboard", dashboard), ("alerts", serde_json::to_value(alerts).unwrap())]
    {
        let mut found = Vec::new();
        expressions(&value, &mut found);
        let mut count = 0;
        for expression in &found {
            let names = named(expression);
            let is_up = expression.starts_with("up{");
            assert!(
                !names.is_empty() || is_up || expression == "prometheus",
                "{file}: {expression}"
            );
            for (name, labels) in names {
                let known = metrics
                    .get(&name)
                    .unwrap_or_else(|| panic!("{file}: no metric is called {name}"));
                for label in labels.iter().filter(|label| !ADDED.contains(&label.as_str())) {
                    assert!(known.contains(label), "{file}: {name} has no label {label}");
                }
                count += 1;
            }
        }
        assert!(count > 10, "{file}: {count}");
    }

    let stem = |name: &str| {
        let base = OF_HISTOGRAMS.iter().find_map(|end| name.strip_suffix(end));
        base.filter(|base| metrics.contains_key(*base)).unwrap_or(name).to_owned()
    };
    let known: BTreeSet<String> = metrics.keys().map(|name| stem(name)).collect();
    let documented: BTreeSet<String> = DOCUMENTED
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("orrery_") || name.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(documented, known);
}

/// The documents of the package and the tarball, where these install them.
#[test]
fn links_of_packaged_documents_lead_to_packaged_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for changelog in ["changelog.gz", "CHANGELOG.md"] {
        let share = tempfile::tempdir().unwrap();
        let documents = share.path().join("doc/orrery");
        let script = root.join("packaging/documents");
        let written =
            Command::new("python3").args([&script, &documents, &PathBuf::from(changelog)]).status();
        assert!(written.unwrap().success());
        std::fs::write(documents.join(changelog), "").unwrap();
        for shipped in ["prometheus/alerts.yml", "grafana/orrery.json"] {
            let installed = share.path().join("orrery").join(shipped);
            std::fs::create_dir_all(installed.parent().unwrap()).unwrap();
            std::fs::copy(root.join("packaging").join(shipped), installed).unwrap();
        }
        let mut followed = 0;
        let folder = |path: &Path| std::fs::read_dir(path).unwrap().map(|it| it.unwrap().path());
        for document in folder(&documents).chain(folder(&documents.join("docs"))) {
            if document.extension().is_none_or(|it| it != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&document).unwrap();
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if link.starts_with('#') || link.starts_with("http") {
                    continue;
                }
                let target = document.parent().unwrap().join(link.split('#').next().unwrap());
                assert!(target.exists(), "{}: {link} leads nowhere", document.display());
                followed += 1;
            }
        }
        assert!(followed > 60, "{followed}");
        let read = |name: &str| std::fs::read_to_string(documents.join(name)).unwrap();
        assert!(read("SECURITY.md").contains("](packaging/publication)"));
        assert!(read("README.md").contains("](SECURITY.md)"));
    }
}

/// A checkout in which nothing was built.
#[test]
fn packaging_without_the_crates_says_how_to_fetch_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = tempfile::tempdir().unwrap();
    let mut written = Command::new("python3");
    written.arg(root.join("packaging/copyright")).env("CARGO_HOME", home.path());
    let written = written.output().unwrap();
    let said = String::from_utf8_lossy(&written.stderr);
    assert_eq!(written.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cargo fetch --locked"), "{said}");
}

/// The step of the workflow, with and without an address.
#[test]
fn nothing_is_released_before_the_address_is_decided() {
    let workflow = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows/release.yml");
    let workflow = std::fs::read_to_string(workflow).unwrap();
    let workflow: Value = serde_yaml_ng::from_str(&workflow).unwrap();
    let steps = workflow["jobs"]["build"]["steps"].as_array().unwrap();
    let mut runs = steps.iter().filter_map(|step| step["run"].as_str());
    let check = runs.find(|run| run.contains("packaging/publication")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("packaging")).unwrap();
    let is_accepted = |text: &str| {
        std::fs::write(directory.path().join("packaging/publication"), text).unwrap();
        let ran = Command::new("sh").args(["-ec", check]).current_dir(directory.path()).output();
        ran.unwrap().status.success()
    };
    let decided = "ADDRESS=\"https://orrery.example\"\nMAINTAINERS=\"M <m@orrery.example>\"\n";
    assert!(is_accepted(decided));
    assert!(!is_accepted(&decided.replace("https://orrery.example", "https://orrery.invalid")));
    assert!(!is_accepted(&decided.replace("m@orrery.example", "m@orrery.invalid")));
}
