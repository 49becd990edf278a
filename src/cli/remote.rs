//! Client of a service's HTTP interface.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use orrery::control::{Client, STATUS};
use orrery::net::http::{self, Timeouts};
use orrery::net::reqwest::header::CONTENT_TYPE;
use orrery::net::reqwest::{self, Method, StatusCode};
use serde_json::Value;

use super::installed::{self, SETTINGS};
use super::serve::runtime;
use super::{Failure, escape, grid, output, wording};

/// Which service is asked, and as whom.
#[derive(Debug, Clone, Args)]
pub struct Remote {
    /// Base address of the service's REST interface; if not given, that of the service that runs on
    /// --data-dir, with --config, or with the settings in /etc/orrery; else http://127.0.0.1:8484/rest
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "ORRERY_BASE",
        value_parser = base_address,
        help_heading = "Which service is asked"
    )]
    base: Option<String>,
    /// The data directory and the file with settings that were given.
    #[arg(skip)]
    data_dir: Option<PathBuf>,
    #[arg(skip)]
    config: Option<PathBuf>,
    /// The address that was found, so that all requests of a command go to the same service.
    #[arg(skip)]
    found: OnceLock<String>,
    /// Token, as `orrery token issue` prints it
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "ORRERY_JWT",
        value_parser = without_line_end,
        hide_env_values = true,
        help_heading = "Which service is asked"
    )]
    pub jwt: Option<String>,
}

/// Returns the base address of the service that runs on a data directory, if one does and may be asked.
fn running_on(data_dir: &Path) -> Option<String> {
    let mut client = Client::connect(data_dir).ok()??;
    let listen = client.ask(STATUS, &()).ok()?.listen?;
    Some(base_of(installed::on_this_machine(listen.parse().ok()?)))
}

/// Returns the base address of a service that listens there.
pub fn base_of(address: SocketAddr) -> String {
    format!("http://{address}{REST}")
}

/// Returns a token without the blanks and line ends around it, which files and orchestrators add.
fn without_line_end(text: &str) -> Result<String, Infallible> {
    Ok(text.trim().to_owned())
}

fn base_address(text: &str) -> Result<String, String> {
    let text = text.trim();
    if ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) {
        Ok(text.to_owned())
    } else {
        Err("begin with http:// or https://, as in http://127.0.0.1:8484/rest".to_owned())
    }
}

/// Base address of a service with the default settings.
pub const DEFAULT_BASE: &str = "http://127.0.0.1:8484/rest";
/// End of the base address of a service.
const REST: &str = "/rest";

/// Timeouts of a request. A query may take ten seconds, and compiling a module longer.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(10), idle: Duration::from_secs(120) };

/// Body of a successful response.
pub struct Body(pub Vec<u8>);

impl Remote {
    /// Remembers the data directory and the file with settings that were given, whose service is asked
    /// by default.
    #[must_use]
    pub fn beside(self, data_dir: Option<PathBuf>, config: Option<PathBuf>) -> Self {
        Self { data_dir, config, ..self }
    }

    /// Returns whether the address of a service was given.
    pub fn is_named(&self) -> bool {
        self.base.is_some()
    }

    /// Returns the base address, without a slash at its end.
    ///
    /// # Errors
    /// None is given, and the settings that are given cannot be read, or several services run on this
    /// machine.
    pub fn base(&self) -> Result<String, Failure> {
        if let Some(base) = &self.base {
            return Ok(base.trim_end_matches('/').to_owned());
        }
        if let Some(base) = self.found.get() {
            return Ok(base.clone());
        }
        let base = self.search()?;
        Ok(self.found.get_or_init(|| base).clone())
    }

    fn search(&self) -> Result<String, Failure> {
        if let Some(base) = self.data_dir.as_deref().and_then(running_on) {
            return Ok(base);
        }
        let address = match &self.config {
            Some(settings) => Some(installed::listen_of(settings)?),
            None if self.data_dir.is_none() => installed::running(Path::new(SETTINGS))?,
            None => None,
        };
        Ok(address.map_or_else(|| DEFAULT_BASE.to_owned(), base_of))
    }

    /// Sends a request and waits for the response.
    ///
    /// Fails with the service's error message when the service refuses.
    pub fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Body, Failure> {
        self.token()?;
        let base = self.base()?;
        let body = body.map(|body| body.to_string().into_bytes());
        let (status, answer) = self.exchange(method, &format!("{base}/{path}"), body)?;
        if status.is_success() { Ok(answer) } else { Err(refusal(&base, status, &answer.0)) }
    }

    /// Sends a message of the Model Context Protocol, and returns the status and the answer, which is
    /// empty for a notification.
    ///
    /// # Errors
    /// There is no token, or no answer.
    pub fn send_message(&self, message: Vec<u8>) -> Result<(StatusCode, Body), Failure> {
        self.token()?;
        let base = self.base()?;
        let root = base.strip_suffix(REST).ok_or_else(|| not_a_base(&base))?;
        self.exchange(Method::POST, &format!("{root}/mcp"), Some(message))
    }

    /// Returns the token.
    ///
    /// # Errors
    /// None is given, or it cannot be one.
    pub fn token(&self) -> Result<&str, Failure> {
        let Some(token) = &self.jwt else {
            return Err(Failure::usage(
                "a token is needed: give --jwt or set ORRERY_JWT to what `orrery token issue` prints",
            ));
        };
        if token.is_empty() || !token.bytes().all(|letter| letter.is_ascii_graphic()) {
            return Err(Failure::usage(
                "the token in --jwt or ORRERY_JWT is empty, or has blanks or line ends in it: give exactly \
                 what `orrery token issue` prints",
            ));
        }
        Ok(token)
    }

    /// Sends a request with a JSON document, if there is one, and returns the status and the answer.
    fn exchange(
        &self,
        method: Method,
        url: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Body), Failure> {
        runtime()?.block_on(async {
            let answer = self.answer(method, url, body, &[]).await?;
            let status = answer.status();
            let body = answer.bytes().await.map_err(|error| unreachable(url, &reason(&error)))?;
            Ok((status, Body(body.to_vec())))
        })
    }

    /// Sends a request with a JSON document, if there is one, and returns the answer before its body has
    /// been received.
    async fn answer(
        &self,
        method: Method,
        url: &str,
        body: Option<Vec<u8>>,
        headers: &[(&'static str, &str)],
    ) -> Result<reqwest::Response, Failure> {
        let (token, is_default) = (self.token()?, self.base()? == DEFAULT_BASE);
        let not_sent = |error: reqwest::Error| {
            let failure = unreachable(url, &reason(&error));
            if !error.is_connect() {
                return failure;
            }
            let hint = installed::hint(Path::new(SETTINGS)).filter(|_| is_default);
            let failure = match hint {
                Some(hint) => failure.and(hint),
                None => failure,
            };
            failure.and("is a service running there? Give its address with --base or ORRERY_BASE")
        };
        let client = http::client(TIMEOUTS).map_err(|error| unreachable(url, &error))?;
        let mut request = client.request(method, url).bearer_auth(token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        request.send().await.map_err(not_sent)
    }

    /// Sends a GET request whose answer has no end, and gives `receive` what comes of it, until the
    /// service or the connection ends it. Returns the failure if there was no answer now.
    ///
    /// # Errors
    /// When the service refuses, and the first error of `receive`.
    pub fn follow(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        mut receive: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<Option<Failure>, Failure> {
        self.token()?;
        let base = self.base()?;
        let url = format!("{base}/{path}");
        runtime()?.block_on(async {
            let mut answer = match self.answer(Method::GET, &url, None, headers).await {
                Ok(answer) => answer,
                Err(failure) => return Ok(Some(failure)),
            };
            let status = answer.status();
            if !status.is_success() {
                let body = answer.bytes().await.unwrap_or_default();
                let refused = refusal(&base, status, &body);
                let may_pass = status.is_server_error()
                    || matches!(
                        status,
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                    );
                return if may_pass { Ok(Some(refused)) } else { Err(refused) };
            }
            // How a stream ends does not matter: whoever follows it asks again.
            while let Ok(Some(piece)) = answer.chunk().await {
                receive(&piece)?;
            }
            Ok(None)
        })
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str) -> Result<Body, Failure> {
        self.send(Method::GET, path, None)
    }

    /// Sends a POST request.
    pub fn post(&self, path: &str, body: &Value) -> Result<Body, Failure> {
        self.send(Method::POST, path, Some(body))
    }

    /// Sends a DELETE request.
    pub fn delete(&self, path: &str) -> Result<Body, Failure> {
        self.send(Method::DELETE, path, None)
    }
}

impl Body {
    /// Parses the body as JSON.
    pub fn json(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.0)
            .map_err(|error| Failure::failed(format!("the service's answer is not JSON: {error}")))
    }

    /// Prints the body: as a table if standard output is a terminal and `json` is false, otherwise
    /// as received. An empty `columns` shows all columns.
    pub fn show(&self, json: bool, columns: &[&str]) -> Result<(), Failure> {
        if draws_tables(json) {
            output::print(&grid::draw(&self.0, columns)?)
        } else {
            self.print()
        }
    }

    /// Prints the body as text with a final line break; control characters are escaped on a
    /// terminal.
    pub fn print(&self) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.trim_end();
        if output::is_terminal() {
            output::print(&format!("{}\n", escape::control_lines(text)))
        } else {
            output::print(&format!("{text}\n"))
        }
    }
}

fn unreachable(url: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("the request to {url} failed: {error}"))
}

/// Returns the failure for an address that is not the base of a service.
fn not_a_base(base: &str) -> Failure {
    Failure::failed(format!(
        "{base} is not a base address: it ends in {REST}; give --base {base}{REST}"
    ))
}

/// Returns the failure for an error response: the service's message, or its status if there is
/// none.
fn refusal(base: &str, status: StatusCode, body: &[u8]) -> Failure {
    let message = serde_json::from_slice::<Value>(body).ok();
    let message = message.as_ref().and_then(|body| body.get("error")?.as_str());
    let failure = Failure::failed(match message {
        Some(sentence) if sentence.starts_with("there is no route") => match base.ends_with(REST) {
            true => {
                format!("the service at {base} does not know this command: is it an older version?")
            }
            false => return not_a_base(base),
        },
        Some(sentence) => wording::of(sentence),
        None => format!("the service answered {status}: check --base, which ends in {REST}"),
    });
    if status == StatusCode::UNAUTHORIZED {
        let hint = "a token is valid for the data directory that it was issued for";
        return failure.and(format_args!("{base} was asked, and {hint}"));
    }
    failure
}

/// Returns the message of the innermost cause, which is the most specific.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Whether to draw tables: standard output is a terminal and JSON was not requested.
pub fn draws_tables(json: bool) -> bool {
    !json && output::is_terminal()
}

/// Appends parameters to a path as its query string, leaving out those that are `None`.
pub fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}
