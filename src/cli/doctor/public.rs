//! Checks what others reach at the address that the operator gives them, such as that of a proxy.

use std::time::Duration;

use orrery::net::http::{self, Timeouts, read_capped};
use orrery::net::reqwest::{StatusCode, Url};

use super::super::serve::runtime;
use super::{Failure, Finding, State};

const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(10), idle: Duration::from_secs(10) };
/// Number of bytes of an answer that are read.
const MOST_READ: u64 = 16 << 20;
/// Beginning of the names of the service's own metrics.
const METRIC: &str = "orrery_";

/// Parses the address of a service as others reach it, of which only the root matters.
pub(super) fn root_of(text: &str) -> Result<Url, String> {
    let wrong = || "give the address of the service, such as https://orrery.example.org".to_owned();
    let url: Url = text.trim().parse().map_err(|_| wrong())?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(wrong());
    }
    url.join("/").map_err(|_| wrong())
}

/// Asks for the metrics at the address of the service's root.
pub(super) fn metrics(root: &Url) -> Result<Finding, Failure> {
    let shown = http::redacted(root);
    let finding = |state, text: String| Finding::new("metrics", state, text);
    let asked = runtime()?.block_on(async {
        let client = http::client(TIMEOUTS)?;
        let url =
            root.join("metrics").map_err(|error| http::HttpError::Broken(error.to_string()))?;
        let answer = client.get(url).send().await?;
        let status = answer.status();
        let body = read_capped(answer, MOST_READ).await?;
        Ok::<_, http::HttpError>((status, String::from_utf8_lossy(&body).into_owned()))
    });
    Ok(match asked {
        Err(error) => {
            let mend = "check the address, and the proxy behind it";
            finding(State::Look, format!("{shown} does not answer ({error}): {mend}"))
        }
        Ok((StatusCode::OK, body)) if body.lines().any(|line| line.starts_with(METRIC)) => finding(
            State::Broken,
            format!(
                "everybody who reaches {shown} can read the metrics at {shown}/metrics: let the proxy \
                 refuse that path, or set http.metrics = \"off\""
            ),
        ),
        Ok((status, _)) if status.is_server_error() => finding(
            State::Look,
            format!(
                "{shown} answers with {status}, so whether it keeps the metrics from others is not known: \
                 start the service behind the proxy, and run this again"
            ),
        ),
        Ok(_) => finding(State::Ok, format!("{shown} keeps the metrics from others")),
    })
}
