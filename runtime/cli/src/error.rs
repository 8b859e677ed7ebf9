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
    let ours = error.downcast_ref::<skillgraft::Error>();
    if matches!(ours, Some(skillgraft::Error::Interrupted)) {
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
    if let Some(hint) = ours.and_then(skillgraft::Error::hint) {
        ui.hint(&hint);
    }
    ExitCode::from(if ours.is_some_and(skillgraft::Error::is_user_error) { 1 } else { 2 })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
