//! Other programs that answer the same questions, asked over HTTP.
//!
//! **Invariant:** a peer gets the same token ids, the same model file and as many
//! threads; what it says it has cached or prefilled is reported as it says it. A
//! program that we started ends with its [`Peer`].

mod llama;
mod process;

use std::path::PathBuf;
use std::str::FromStr;

use skillgraft_kv::TokenId;

use crate::error::Error;
use crate::report::PeerReport;
use crate::subject::Subject;
use crate::watch::Watch;

pub(crate) use llama::{Answer, Ask};

/// A peer to measure beside: `llama-server=URL` or `llama-server=PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSpec {
    /// Where it is.
    pub place: PeerPlace,
}

/// Where a peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerPlace {
    /// It runs and answers under this address.
    Url(String),
    /// The program, to be started for the measurement and ended after it.
    Program(PathBuf),
}

impl FromStr for PeerSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, place) = text.split_once('=').ok_or("expected NAME=URL or NAME=PATH")?;
        if name != llama::NAME {
            return Err(format!("unknown peer `{name}`; peers: {}", llama::NAME));
        }
        if place.is_empty() {
            return Err(format!("`{name}=` must be followed by an address or a program"));
        }
        if place.starts_with("https://") {
            return Err("a peer is asked over plain HTTP".to_owned());
        }
        let place = if place.starts_with("http://") {
            PeerPlace::Url(place.trim_end_matches('/').to_owned())
        } else {
            PeerPlace::Program(place.into())
        };
        Ok(PeerSpec { place })
    }
}

/// A peer that answers.
#[derive(Debug)]
pub(crate) struct Peer {
    server: llama::LlamaServer,
    process: Option<process::Process>,
    report: PeerReport,
}

impl Peer {
    /// Connects to a peer, or starts it and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not start or answer, or serves another file.
    pub(crate) fn open(
        spec: &PeerSpec,
        subject: &Subject,
        watch: &mut Watch<'_>,
    ) -> Result<Self, Error> {
        let (process, url) = match &spec.place {
            PeerPlace::Url(url) => (None, url.clone()),
            PeerPlace::Program(program) => {
                watch.step(&format!("starting {}", program.display()))?;
                let process = process::Process::start(program, subject)?;
                let url = process.url();
                (Some(process), url)
            }
        };
        let mut peer =
            Peer { server: llama::LlamaServer::new(url), process, report: PeerReport::default() };
        if let Some(process) = &mut peer.process {
            process.wait(&peer.server, watch)?;
        }
        peer.report = peer.describe(subject)?;
        Ok(peer)
    }

    fn describe(&self, subject: &Subject) -> Result<PeerReport, Error> {
        let served = self.server.props()?;
        let ours = subject.model_path.file_name().map(|name| name.to_string_lossy().into_owned());
        if served.model.is_some() && served.model != ours {
            return Err(self.server.fault(&format!(
                "it serves `{}`, not `{}`",
                served.model.unwrap_or_default(),
                ours.unwrap_or_default()
            )));
        }
        let mut notes = Vec::new();
        if served.model.is_none() {
            notes.push("it does not tell which file it serves".to_owned());
        }
        if self.process.is_none() {
            notes.push("started by somebody else: its threads are not known here".to_owned());
        }
        Ok(PeerReport {
            name: llama::NAME.to_owned(),
            version: served.version,
            command: self.process.as_ref().map(|process| process.command.clone()),
            model: served.model,
            http_ms: self.server.http_ms()?,
            peak_rss_bytes: None,
            notes,
        })
    }

    /// What it is called in reports.
    pub(crate) fn name(&self) -> &str {
        &self.report.name
    }

    pub(crate) fn fault(&self, reason: &str) -> Error {
        self.server.fault(reason)
    }

    /// Asks for a continuation of tokens.
    ///
    /// # Errors
    /// [`Error::Peer`].
    pub(crate) fn ask(&self, tokens: &[TokenId], ask: Ask) -> Result<Answer, Error> {
        self.server.ask(tokens, ask)
    }

    /// What is said of it in the end: with the memory it took.
    pub(crate) fn report(&self) -> PeerReport {
        let peak_rss_bytes = self.process.as_ref().and_then(process::Process::peak_rss_bytes);
        PeerReport { peak_rss_bytes, ..self.report.clone() }
    }
}

#[cfg(test)]
mod tests;
