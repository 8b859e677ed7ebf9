//! Runs the built command in a world of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A temporary world: an empty cache folder, no configuration, no colours.
pub(crate) struct World {
    dir: TempDir,
}

/// What a run printed.
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> Self {
        World { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
        std::fs::write(&path, bytes).expect("it can be written");
        path
    }

    /// A folder of skills with one usable skill.
    pub(crate) fn with_a_skill(&self) -> PathBuf {
        let text =
            "---\nname: tea\ndescription: Brew tea. Use for tea.\n---\nSteep for 4 minutes.\n";
        self.write("skills/tea/SKILL.md", text);
        self.path("skills")
    }

    /// Runs the command; the model is kept where all tests share it, all else
    /// in this world.
    pub(crate) fn run(&self, args: &[&str]) -> Printed {
        self.run_with(args, Stdio::null())
    }

    /// Runs the command with a file's text as its input.
    pub(crate) fn run_with_input(&self, args: &[&str], text: &str) -> Printed {
        let file = self.write("input", text);
        self.run_with(args, File::open(file).expect("it was written").into())
    }

    fn run_with(&self, args: &[&str], input: Stdio) -> Printed {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skillgraft"));
        command.args(args).current_dir(self.dir.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SKILLGRAFT_") {
                command.env_remove(name);
            }
        }
        command.env("NO_COLOR", "1").env("SKILLGRAFT_CACHE_DIR", self.path("cache"));
        command.env("HOME", self.path("home"));
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command.env("XDG_STATE_HOME", self.path("state"));
        command.stdin(input);
        let Output { status, stdout, stderr } = command.output().expect("the command starts");
        Printed { code: status.code(), stdout: self.text(&stdout), stderr: self.text(&stderr) }
    }

    /// Output with this world's folder taken out.
    fn text(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
        let real = std::fs::canonicalize(self.dir.path()).expect("the folder is there");
        let text = text.replace(&*real.to_string_lossy(), "[DIR]");
        text.replace(&*self.dir.path().to_string_lossy(), "[DIR]")
    }

    pub(crate) fn share_models(&self, folder: &Path) {
        let models = self.path("cache/models");
        std::fs::create_dir_all(self.path("cache")).expect("it can be made");
        #[cfg(unix)]
        std::os::unix::fs::symlink(folder, models).expect("it can be linked");
        #[cfg(not(unix))]
        std::fs::create_dir_all(models).expect("it can be made");
    }
}

impl Printed {
    /// Exit status and both streams, for a snapshot.
    pub(crate) fn all(&self) -> String {
        let code = self.code.map_or("none".to_owned(), |code| code.to_string());
        format!("exit {code}\n--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr)
    }
}
