//! A model file on the Hugging Face hub, over HTTP.
//!
//! The hub's own environment variables hold: `HF_ENDPOINT` (a mirror),
//! `HF_TOKEN`, `HF_HUB_OFFLINE`; and the usual proxy variables.
//!
//! A broken transfer is continued, in the same pull or a later one, by asking
//! for the missing range on condition that the entity tag is still the same.
//!
//! **Invariant:** the revision is a commit, so one URL always means the same
//! bytes. The token goes to the endpoint and never to where it redirects.

use std::env;
use std::time::Duration;

use ureq::http::Response;
use ureq::{Agent, Body, Proxy};

use super::{ModelSource, SourceError};
use crate::models::draft::{Copied, Draft, Report};

const ENDPOINT: &str = "https://huggingface.co";

/// A server that is there answers a connection at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest silence before a transfer counts as broken. There is no limit on
/// the whole transfer, since a slow line is no error.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a transfer that made progress is taken up again in one pull.
const CONTINUATIONS_MAX: usize = 5;

/// One file of a repository on the hub.
#[derive(Debug, Clone, Copy)]
pub struct HubSource {
    /// Owner and name.
    pub repo: &'static str,
    /// A commit, not a branch.
    pub revision: &'static str,
    /// Path of the file in the repository.
    pub file: &'static str,
}

impl ModelSource for HubSource {
    fn label(&self) -> String {
        format!("Hugging Face hub {}/{}", self.repo, self.file)
    }

    fn fetch(&self, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        self.fetch_with(&HubAccess::from_env(), draft)
    }
}

/// How the hub is reached.
struct HubAccess {
    endpoint: String,
    token: Option<String>,
    offline: bool,
    proxy: Option<Proxy>,
}

impl HubAccess {
    fn from_env() -> Self {
        let set = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        HubAccess {
            endpoint: endpoint.trim().trim_end_matches('/').to_owned(),
            token: set("HF_TOKEN").map(|token| token.trim().to_owned()),
            offline: set("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            proxy: Proxy::try_from_env(),
        }
    }
}

/// The spellings that the hub's own client takes for true.
fn is_true(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

/// How one request ended.
enum Transfer {
    Complete,
    /// The connection broke; what came is kept.
    Broken(String),
    /// The server would not continue, and the kept bytes are gone.
    StartOver,
}

impl HubSource {
    fn fetch_with(&self, access: &HubAccess, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        if access.offline {
            return Err(SourceError::refused("`HF_HUB_OFFLINE` is set"));
        }
        let agent = agent(access);
        let mut reached = 0;
        for _ in 0..=CONTINUATIONS_MAX {
            match self.transfer(&agent, access, draft)? {
                Transfer::Complete => return Ok(()),
                Transfer::StartOver => {}
                Transfer::Broken(reason) if draft.received() <= reached => {
                    return Err(SourceError::refused(reason));
                }
                Transfer::Broken(reason) => {
                    reached = draft.received();
                    tracing::debug!(%reason, reached, "transfer broken, continuing");
                }
            }
        }
        Err(SourceError::refused(format!(
            "the transfer broke more than {CONTINUATIONS_MAX} times, at last after {} of {} bytes",
            draft.received(),
            draft.expected_bytes()
        )))
    }

    fn transfer(
        &self,
        agent: &Agent,
        access: &HubAccess,
        draft: &mut Draft<'_>,
    ) -> Result<Transfer, SourceError> {
        let url =
            format!("{}/{}/resolve/{}/{}", access.endpoint, self.repo, self.revision, self.file);
        // Compression on the way would make ranges mean other bytes.
        let mut request = agent.get(&url).header("accept-encoding", "identity");
        if let Some(token) = &access.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(etag) = draft.resume(&url)? {
            request = request
                .header("range", format!("bytes={}-", draft.received()))
                .header("if-range", etag);
        }
        let response = request.call().map_err(|error| {
            SourceError::refused(format!("`{}` cannot be reached: {error}", access.endpoint))
        })?;
        match response.status().as_u16() {
            200 => {
                check_length(&response, draft)?;
                draft.begin(&url, strong_etag(&response))?;
            }
            206 if continues(&response, draft) => {}
            206 | 416 => {
                draft.discard();
                return Ok(Transfer::StartOver);
            }
            status => return Err(SourceError::refused(status_reason(status, &url))),
        }
        copy(response, draft)
    }
}

fn agent(access: &HubAccess) -> Agent {
    Agent::config_builder()
        .user_agent(concat!("skillgraft/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .proxy(access.proxy.clone())
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(IDLE_TIMEOUT))
        .timeout_per_read(Some(IDLE_TIMEOUT))
        .build()
        .into()
}

fn copy(response: Response<Body>, draft: &mut Draft<'_>) -> Result<Transfer, SourceError> {
    let mut body = response.into_body().into_reader();
    let end = draft.copy_from(&mut body, Report::Bytes)?;
    let (received, expected) = (draft.received(), draft.expected_bytes());
    if received == expected {
        return Ok(Transfer::Complete);
    }
    let why = match end {
        Copied::ToEnd => "the server closed the connection".to_owned(),
        Copied::Broken(error) => error.to_string(),
    };
    Ok(Transfer::Broken(format!("transfer broken after {received} of {expected} bytes: {why}")))
}

/// Refuses a file of another size before it is downloaded.
fn check_length(response: &Response<Body>, draft: &Draft<'_>) -> Result<(), SourceError> {
    let expected = draft.expected_bytes();
    match response.body().content_length() {
        Some(found) if found != expected => Err(SourceError::refused(format!(
            "offers a file of {found} bytes instead of {expected}"
        ))),
        _ => Ok(()),
    }
}

/// Whether a partial response is exactly the part that is missing.
fn continues(response: &Response<Body>, draft: &Draft<'_>) -> bool {
    let (from, size) = (draft.received(), draft.expected_bytes());
    let wanted = format!("bytes {from}-{}/{size}", size - 1);
    header(response, "content-range") == Some(wanted.as_str())
}

/// A weak entity tag does not promise equal bytes, so it cannot be continued on.
fn strong_etag(response: &Response<Body>) -> Option<&str> {
    header(response, "etag").filter(|etag| etag.starts_with('"'))
}

fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
    response.headers().get(name)?.to_str().ok()
}

fn status_reason(status: u16, url: &str) -> String {
    let meaning = match status {
        401 | 403 => ": access denied; `HF_TOKEN` may help",
        404 => ": no such file",
        429 => ": too many requests",
        _ => "",
    };
    format!("`{url}` answered {status}{meaning}")
}

#[cfg(test)]
mod tests;
