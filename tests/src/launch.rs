//! How to start a process.

use anyhow::{Context as _, Result};
use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Sets the parent-death signal, makes sure that the parent had not died before, and becomes the program. `$0` is our pid.
const LEASH: &str = r#"[ "$PPID" -eq "$0" ] || exit 125; exec "$@""#;

/// How to start a process. A copy of it starts the same process again.
#[derive(Debug, Clone)]
pub struct Launch {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    clear_env: bool,
    directory: Option<PathBuf>,
    stdin: Option<PathBuf>,
    stdout: Option<PathBuf>,
    log: Option<PathBuf>,
}

impl Launch {
    /// Starts `program`, called `name` in messages, with our environment, empty input, and output to nowhere.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            clear_env: false,
            directory: None,
            stdin: None,
            stdout: None,
            log: None,
        }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts with only the variables that [`Launch::env`] sets, and `PATH`.
    #[must_use]
    pub fn env_clear(mut self) -> Self {
        self.clear_env = true;
        self
    }

    /// The working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Reads standard input from this file.
    #[must_use]
    pub fn stdin(mut self, file: impl Into<PathBuf>) -> Self {
        self.stdin = Some(file.into());
        self
    }

    /// Writes standard output to this file instead of the log.
    #[must_use]
    pub fn stdout(mut self, file: impl Into<PathBuf>) -> Self {
        self.stdout = Some(file.into());
        self
    }

    /// Appends what the process prints to this file.
    #[must_use]
    pub fn log(mut self, file: impl Into<PathBuf>) -> Self {
        self.log = Some(file.into());
        self
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The file that gets what it prints.
    pub fn log_path(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// The command that starts it on a leash: it dies with the thread that spawns it.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "sh", "-c", LEASH]).arg(std::process::id().to_string());
        command.arg(&self.program).args(&self.args);
        if self.clear_env {
            // `env_clear` would clear PATH too, and the leash is found by it.
            for (key, _) in std::env::vars_os().filter(|(key, _)| key != "PATH") {
                command.env_remove(key);
            }
        }
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        // A group of its own: Ctrl-C in a terminal is ours to handle, and signals reach what the process started.
        command.process_group(0);
        command.stdin(match &self.stdin {
            Some(file) => File::open(file).with_context(|| format!("could not open {}", file.display()))?.into(),
            None => Stdio::null(),
        });
        let log = self.log.as_deref().map(append).transpose()?;
        let stdout = self.stdout.as_deref().map(append).transpose()?;
        command.stdout(match (stdout, &log) {
            (Some(file), _) => file.into(),
            (None, Some(log)) => log.try_clone().context("could not share the log")?.into(),
            (None, None) => Stdio::null(),
        });
        command.stderr(log.map_or_else(Stdio::null, Into::into));
        Ok(command)
    }
}

impl std::fmt::Display for Launch {
    /// The command line as a person would type it, without quoting.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.to_string_lossy()))
    }
}

fn append(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("could not open {} to write", path.display()))
}
