//! Which templates may be meant by a path that has no route.

use crate::call::in_braces;

/// Longest path for which templates are compared, in bytes.
const LONGEST: usize = 200;
/// Maximum number of templates that are named.
const MOST: usize = 3;
/// How similar a template must be to a path, from 0 to 1.
const LIKENESS: f64 = 0.8;

/// Returns the routes of the API that may be meant by a path: those below it, else those that end
/// like it, else the most similar one.
pub(super) fn of(
    templates: impl Iterator<Item = &'static str> + Clone,
    path: &str,
) -> Vec<&'static str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some((_, last)) = path.rsplit_once('/').filter(|_| path.len() <= LONGEST) else {
        return Vec::new();
    };
    let templates = templates.filter(|it| it.starts_with("/rest/") && !it.contains('*'));
    let is_below =
        |template: &&str| template.strip_prefix(path).is_some_and(|it| it.starts_with('/'));
    let ends_so = |template: &&str| template.rsplit('/').next() == Some(last);
    // All routes are below `/rest`.
    if path.len() > "/rest".len() {
        let below: Vec<_> = templates.clone().filter(is_below).take(MOST).collect();
        let found = match below.is_empty() {
            true => templates.clone().filter(ends_so).take(MOST).collect(),
            false => below,
        };
        if !found.is_empty() {
            return found;
        }
    }
    let likeness =
        |template: &str| strsim::normalized_damerau_levenshtein(&filled(template, path), path);
    let best = templates.map(|template| (likeness(template), template));
    let best = best.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= LIKENESS);
    best.map(|(_, template)| template).into_iter().collect()
}

/// Returns a template with the segments of a path in place of those in braces.
fn filled(template: &str, path: &str) -> String {
    let mut given = path.split('/');
    let segments = template.split('/').map(|segment| {
        let given = given.next();
        if in_braces(segment).is_some() { given.unwrap_or(segment) } else { segment }
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATES: [&str; 8] = [
        "/rest/events/by-ledger",
        "/rest/events/by-tx/{tx_hex}",
        "/rest/retroshade/tables",
        "/rest/retroshade/{id}/status",
        "/rest/passkey-indexer/{*rest}",
        "/rest/status",
        "/rest/health",
        "/sql",
    ];

    #[test]
    fn wrong_paths_have_the_nearest_templates() {
        for (path, expected) in [
            ("/rest/events", &["/rest/events/by-ledger", "/rest/events/by-tx/{tx_hex}"][..]),
            ("/rest/events/", &["/rest/events/by-ledger", "/rest/events/by-tx/{tx_hex}"]),
            ("/rest/tables", &["/rest/retroshade/tables"]),
            ("/events/by-ledger", &["/rest/events/by-ledger"]),
            ("/rest/events/by-legder", &["/rest/events/by-ledger"]),
            ("/rest/event/by-tx/00ff", &["/rest/events/by-tx/{tx_hex}"]),
            ("/rest/healthy", &["/rest/health"]),
            ("/rest", &[]),
            ("/nonsense", &[]),
            ("nonsense", &[]),
            ("/", &[]),
        ] {
            assert_eq!(of(TEMPLATES.into_iter(), path), expected, "{path}");
        }
        assert!(of(TEMPLATES.into_iter(), &format!("/{}/tables", "x".repeat(200))).is_empty());
    }
}
