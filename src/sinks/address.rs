//! From the settings of a sink to its server.

use orrery_postgres::{Password, ServerUrl};
use orrery_settings::Sink;

/// Returns the address of the server with its password, which is read again for each connection.
///
/// # Errors
/// A sentence, when the address or the file with the password cannot be used.
pub(crate) fn server(name: &str, sink: &Sink) -> Result<ServerUrl, String> {
    let url = ServerUrl::without_password(&sink.url);
    let url = url.map_err(|error| format!("sinks.{name}.url: {error}"))?;
    if let Some(password) = sink.password.as_option() {
        return Ok(url.with_password(Password::new(password)));
    }
    if sink.password_file.as_os_str().is_empty() {
        return Ok(url);
    }
    let read = std::fs::read_to_string(&sink.password_file);
    let password = read.map_err(|error| {
        format!(
            "sinks.{name}.password_file, {}: {error}: the service must be able to read it",
            sink.password_file.display()
        )
    })?;
    Ok(url.with_password(Password::new(&password)))
}

/// Returns the address of a sink's server as it is shown: without parameters.
pub(crate) fn shown(sink: &Sink) -> String {
    ServerUrl::without_password(&sink.url).map(|url| url.to_string()).unwrap_or_default()
}
