//! Health as HTML, for readers without scripts.

use std::fmt::Write;

use orrery_runtime::observe::health::{Component, Record};

/// Age of the latest ledger, in seconds, from which on a service that has all ledgers of its source is
/// not called up to date: a source may have ended long ago.
const OLD_SECONDS: u64 = 3600;

/// Describes the state of the service in one sentence.
pub(super) fn sentence(state: &str, lag_ledgers: Option<u32>, lag_seconds: Option<u64>) -> String {
    match (state, lag_ledgers) {
        ("up", Some(0..=1)) => match lag_seconds.filter(|seconds| *seconds >= OLD_SECONDS) {
            Some(age) => {
                format!("Everything works; the source has nothing newer than {} h ago.", age / 3600)
            }
            None => "Everything works, and nothing is behind.".to_owned(),
        },
        ("up", Some(lag)) => format!("Everything works; {lag} ledgers behind the network."),
        ("up", None) => "Everything works.".to_owned(),
        _ => "Something needs attention.".to_owned(),
    }
}

/// Renders health for clients without scripts. Reasons and details of components may contain any
/// text, including text from other servers, so all of it is escaped.
pub(super) fn of(record: &Record<'_>) -> String {
    let mut out = String::new();
    let state = record.service;
    let sentence = sentence(state, record.lag_ledgers, record.lag_seconds);
    line(
        &mut out,
        format_args!("<p class=\"state {state}\" id=\"state\"><strong>{state}</strong> "),
    );
    line(
        &mut out,
        format_args!("<span>{}</span></p>\n<dl class=\"figures\">\n", escaped(&sentence)),
    );
    add_figures(record, &mut out);
    add_components(record, &mut out);
    let network = match record.network {
        "custom" => record.network_passphrase,
        name => name,
    };
    line(
        &mut out,
        format_args!("<p class=\"note\">Network: <b id=\"network\">{}</b></p>\n", escaped(network)),
    );
    let (warning, hidden) =
        (record.warning.unwrap_or_default(), if record.warning.is_some() { "" } else { " hidden" });
    line(
        &mut out,
        format_args!("<p class=\"warning\" id=\"warning\"{hidden}>{}</p>\n", escaped(warning)),
    );
    out
}

fn add_figures(record: &Record<'_>, out: &mut String) {
    let unknown = || "–".to_owned();
    let number = |value: Option<u32>| value.map_or_else(unknown, |value| value.to_string());
    let seconds = record.lag_seconds.map_or_else(unknown, |seconds| format!("{seconds} s ago"));
    for (id, name, value) in [
        ("service_latest_ledger", "Newest ledger stored", number(record.service_latest_ledger)),
        ("attested_ledger", "Newest attested ledger", number(record.attested_ledger)),
        ("network_latest_ledger", "Newest of the network", number(record.network_latest_ledger)),
        ("lag_ledgers", "Ledgers behind the network", number(record.lag_ledgers)),
        ("lag_seconds", "Newest ledger closed", seconds),
        ("oldest_ledger", "Oldest ledger with events", number(record.oldest_ledger)),
        ("version", "Version", record.version.to_owned()),
    ] {
        let value = escaped(&value);
        line(out, format_args!("<div><dt>{name}</dt><dd id=\"{id}\">{value}</dd></div>\n"));
    }
    out.push_str("</dl>\n");
}

fn add_components(record: &Record<'_>, out: &mut String) {
    out.push_str("<ul class=\"components\" id=\"components\">\n");
    for (name, component) in &record.components {
        let (status, text) = match component {
            Component::Up { detail } => ("up", detail.as_deref().unwrap_or_default()),
            Component::Behind(behind) => ("up", behind.reason.as_deref().unwrap_or_default()),
            Component::Down { reason } => ("down", reason.as_str()),
        };
        let (name, text) = (escaped(name), escaped(text));
        line(out, format_args!("<li class=\"{status}\"><b>{name}</b> <i>{status}</i> "));
        line(out, format_args!("<span>{text}</span></li>\n"));
    }
    out.push_str("</ul>\n");
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(text);
}

/// Escapes text for HTML, also inside attribute values.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_source_is_not_called_up_to_date() {
        let up = |ledgers, seconds| sentence("up", Some(ledgers), Some(seconds));
        assert_eq!(up(0, 3599), "Everything works, and nothing is behind.");
        assert!(up(0, 7300).contains("nothing newer than 2 h ago"));
        assert_eq!(up(5, 7300), "Everything works; 5 ledgers behind the network.");
        assert!(sentence("down", Some(0), Some(1)).contains("attention"));
    }
}
