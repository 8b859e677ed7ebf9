//! Errors to messages and exit codes.

use std::process::ExitCode;

use crate::ui::Ui;

/// Exit status after Ctrl-C: 128 and the number of SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Prints an error with its causes and a hint, and gives the exit status.
pub(crate) fn report(error: &anyhow::Error, ui: &Ui) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let verdict = Verdict::of(error);
    if verdict.is_interruption {
        ui.error("interrupted");
        return ExitCode::from(INTERRUPTED);
    }
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Transparent errors repeat the message of what they wrap.
        if !message.ends_with(&cause) {
            message.push_str(": ");
            message.push_str(&cause);
        }
    }
    ui.error(&message);
    if let Some(hint) = verdict.hint {
        ui.hint(&hint);
    }
    ExitCode::from(if verdict.is_user_error { 1 } else { 2 })
}

/// What the library that an error comes from says about it. An error of neither
/// library is ours.
#[derive(Default)]
struct Verdict {
    is_interruption: bool,
    is_user_error: bool,
    hint: Option<String>,
}

impl Verdict {
    fn of(error: &anyhow::Error) -> Self {
        use skillgraft_bench::Error as BenchError;
        match (error.downcast_ref::<BenchError>(), error.downcast_ref()) {
            (Some(BenchError::Runtime(error)), _) | (None, Some(error)) => Verdict {
                is_interruption: matches!(error, skillgraft::Error::Interrupted),
                is_user_error: error.is_user_error(),
                hint: error.hint(),
            },
            (Some(error), _) => Verdict {
                is_interruption: false,
                is_user_error: error.is_user_error(),
                hint: error.hint(),
            },
            (None, None) => Verdict::default(),
        }
    }
}

/// Prints what clap has to say: help, the version, or what is wrong with the
/// arguments. Its own exit status for the latter would be 2, which is ours.
pub(crate) fn report_usage(usage: &clap::Error) -> ExitCode {
    // Nobody is left to tell when the terminal is gone.
    let _ = usage.print();
    ExitCode::from(u8::from(usage.use_stderr()))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
