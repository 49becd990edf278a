//! A web server with a history archive, and how it is asked for a file.

use orrery_net::http::{HttpError, redacted};
use orrery_net::reqwest::header::{LOCATION, RANGE};
use orrery_net::reqwest::{Client, Method, Response, StatusCode, Url};
use tokio::runtime::Handle;

use crate::error::{CheckpointError, Result};

/// A web server with an archive. Its methods block, and may not be called from a task of a runtime.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Address of the archive, without a slash at its end.
    pub base: Url,
    pub client: Client,
    pub runtime: Handle,
}

impl Server {
    /// Returns the address of a file.
    pub fn url(&self, file: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{file}", self.base.path().trim_end_matches('/')));
        url
    }

    /// Requests a file from a byte on; `None` when it does not exist. Follows redirects on the same
    /// server only.
    pub fn request(
        &self,
        method: Method,
        url: &Url,
        shown: &str,
        from: u64,
    ) -> Result<Option<Response>> {
        let mut request = self.client.request(method, url.clone());
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        // Sending needs the runtime from its first step on.
        let response = self.runtime.block_on(async { request.send().await });
        let response =
            response.map_err(|error| CheckpointError::unreadable(shown, HttpError::from(error)))?;
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(Some(response)),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            status if status.is_redirection() => {
                let target = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let target = target.and_then(|to| url.join(to).ok());
                let target = target.map_or_else(|| "elsewhere".to_owned(), |to| redacted(&to));
                Err(CheckpointError::refused(
                    shown,
                    format!(
                        "its server redirects to {target}: give the address of the archive itself"
                    ),
                ))
            }
            status => {
                let status = status.as_u16();
                Err(CheckpointError::unreadable(shown, format!("the server answers {status}")))
            }
        }
    }
}
