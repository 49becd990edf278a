//! Whether a sink could write: what its server is, and what is missing there.

use orrery_postgres::{Examined, examine, names};
use orrery_settings::Sink;

use super::address;
use super::report::SinkTestReport;

/// Connects to the server of the sink with this name, and looks at what it may do for these projects and for those that
/// its settings name. Changes nothing.
///
/// # Errors
/// A sentence, when the server cannot be asked.
pub async fn test(name: &str, sink: &Sink, projects: &[String]) -> Result<SinkTestReport, String> {
    let url = address::server(name, sink)?;
    let mut all: Vec<&String> = projects.iter().filter(|project| sink.has(project)).collect();
    let is_known = |named: &&String| !all.iter().any(|it| it.eq_ignore_ascii_case(named));
    let named: Vec<&String> = sink.named().into_iter().flatten().filter(is_known).collect();
    all.extend(named);
    let (mut schemas, mut refused) = (Vec::new(), Vec::new());
    for project in all {
        match names::schema(&sink.schema, project) {
            Ok(schema) => schemas.push(schema),
            Err(sentence) => refused.push(sentence),
        }
    }
    schemas.sort_unstable();
    schemas.dedup();
    let connection = url.connect().await.map_err(|error| error.to_string())?;
    let schemas: Vec<&str> = schemas.iter().map(String::as_str).collect();
    let examined = examine(&connection, &schemas).await.map_err(|error| error.to_string())?;
    let Examined { version, user, database, missing } = examined;
    Ok(SinkTestReport { address: url.to_string(), version, user, database, missing, refused })
}
