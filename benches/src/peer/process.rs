//! A peer that we start: on a free port of the loopback device, ended when dropped.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::llama::LlamaServer;
use crate::error::Error;
use crate::machine;
use crate::subject::Subject;
use crate::watch::Watch;

/// How long a peer may take to load its model.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How often it is asked whether it has.
const POLL: Duration = Duration::from_millis(50);

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    port: u16,
    /// The command line, without folders: reports are published.
    pub(super) command: String,
}

impl Process {
    /// Starts `llama-server` with a subject's model file, context and threads.
    ///
    /// The cache of prompts in RAM (`--cache-ram`) is off: it would turn a skill
    /// that is meant to be new into one that is known. What it can give at its
    /// best is the case of an exact prefix hit, which is measured.
    pub(super) fn start(program: &Path, subject: &Subject) -> Result<Self, Error> {
        let failed = |source: std::io::Error| Error::Io {
            action: "start",
            path: program.to_owned(),
            source,
        };
        let port = free_port().map_err(failed)?;
        let threads = subject.model.backend().cpu().threads().count().to_string();
        let context = subject.model.context_length().to_string();
        let port_text = port.to_string();
        let options = [
            "-t",
            &threads,
            "-tb",
            &threads,
            "-c",
            &context,
            "-np",
            "1",
            "--cache-ram",
            "0",
            "--host",
            "127.0.0.1",
            "--port",
            &port_text,
        ];
        let child = Command::new(program)
            .arg("-m")
            .arg(&subject.model_path)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let name = |path: &Path| {
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        };
        let command =
            format!("{} -m {} {}", name(program), name(&subject.model_path), options.join(" "));
        Ok(Process { child, port, command })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until it answers.
    pub(super) fn wait(
        &mut self,
        server: &LlamaServer,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        while !server.is_ready() {
            watch.step("waiting for the peer to load its model")?;
            let ended = self.child.try_wait().ok().flatten();
            if let Some(status) = ended {
                return Err(server.fault(&format!("it ended at once: {status}")));
            }
            if started.elapsed() > START_LIMIT {
                return Err(server.fault("it did not become ready in time"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The most memory it has had resident.
    pub(super) fn peak_rss_bytes(&self) -> Option<u64> {
        machine::peak_rss_bytes(&self.child.id().to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
